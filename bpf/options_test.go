package bpf

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
)

func monotonic(t *testing.T) time.Duration {
	t.Helper()
	return clock(t, unix.CLOCK_MONOTONIC)
}

func clock(t *testing.T, id int32) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(id, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

func TestParseMode(t *testing.T) {
	for _, want := range []Mode{Auto, TCX, TC, XDP} {
		if got, err := ParseMode(string(want)); err != nil || got != want {
			t.Errorf("ParseMode(%q) = %q, %v", want, got, err)
		}
	}
	for _, wrong := range []string{"", "TC", "netkit"} {
		if got, err := ParseMode(wrong); err == nil {
			t.Errorf("ParseMode(%q) = %q", wrong, got)
		}
	}
}

func TestDefaults(t *testing.T) {
	got, err := Options{RingBytes: 5000, DataRate: Rate{Burst: 3}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	want := Options{
		Mode: Auto, RingBytes: 8192, MaxAddresses: 65536, MaxInterfaces: 4096,
		Refresh: 30 * time.Second, MACChange: 5 * time.Second,
		DataRate: Rate{10, 3}, AnnounceRate: Rate{50, 100}, RefreshRate: Rate{20, 256}, AnswerRate: Rate{200, 400},
	}
	if diff := diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, wrong := range []Options{
		{Mode: "netkit"},
		{RingBytes: -1},
		{RingBytes: 1 << 31},
		{MaxAddresses: -1},
		{MaxInterfaces: 1 << 21},
		{Refresh: -time.Second},
		{MACChange: -time.Second},
		{RefreshRate: Rate{PerSecond: -1}},
		{DataRate: Rate{PerSecond: -1}},
		{AnnounceRate: Rate{Burst: -1}},
		{AnswerRate: Rate{PerSecond: 1e6 + 1}},
	} {
		if o, err := Load(wrong); err == nil {
			t.Errorf("Load(%+v) went through", wrong)
			_ = o.Close()
		}
	}
}

// TestDefaultsOfC: the defaults of the C sources are those of Options.
func TestDefaultsOfC(t *testing.T) {
	spec, err := loadObserver()
	if err != nil {
		t.Fatal(err)
	}
	constants := func() map[string]uint64 {
		all := make(map[string]uint64)
		for name, variable := range spec.Variables {
			if !variable.Constant() || variable.Size() != 8 || name == "tick_ns" { // that is the kernel's
				continue
			}
			var value uint64
			if err := variable.Get(&value); err != nil {
				t.Fatal(err)
			}
			all[name] = value
		}
		for _, name := range []string{"records", "addresses", "interfaces"} {
			all[name] = uint64(spec.Maps[name].MaxEntries)
		}
		return all
	}
	inC := constants()
	opts, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if err := opts.apply(spec); err != nil {
		t.Fatal(err)
	}
	if diff := diff(constants(), inC); diff != "" {
		t.Errorf("(-Options +C)\n%s", diff)
	}
	if len(inC) != 16 {
		t.Errorf("found %d constants, want 16", len(inC))
	}
}

func TestAutoMode(t *testing.T) {
	want := TCX
	if !hasTCX(t) {
		want = TC
		wantTCXRefused(t)
	}
	if got := load(t, Options{}).Mode(); got != want {
		t.Errorf("auto is %s, want %s", got, want)
	}
}

// TestMissingCapabilities gives one thread fewer capabilities than it needs.
func TestMissingCapabilities(t *testing.T) {
	testneeds.Root(t)
	for _, c := range []struct {
		keep  uint64
		names []string
		not   []string
	}{
		{0, []string{"CAP_NET_ADMIN", "CAP_BPF", "CAP_PERFMON"}, nil},
		{1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_BPF, []string{"CAP_PERFMON"}, []string{"CAP_NET_ADMIN", "CAP_BPF"}},
		{1 << unix.CAP_SYS_ADMIN, []string{"CAP_NET_ADMIN"}, []string{"CAP_BPF", "CAP_PERFMON"}},
	} {
		err := onThread(func() error {
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			sets := [2]unix.CapUserData{
				{Effective: uint32(c.keep), Permitted: uint32(c.keep)},
				{Effective: uint32(c.keep >> 32), Permitted: uint32(c.keep >> 32)},
			}
			if err := unix.Capset(&header, &sets[0]); err != nil {
				return err
			}
			o, err := Load(Options{})
			if err == nil {
				_ = o.Close()
			}
			return err
		})
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("with capabilities %#x: %v", c.keep, err)
			continue
		}
		for _, name := range c.names {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("with capabilities %#x: %q does not name %s", c.keep, err, name)
			}
		}
		for _, name := range c.not {
			if strings.Contains(err.Error(), name) {
				t.Errorf("with capabilities %#x: %q names %s", c.keep, err, name)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("more than one line: %q", err)
		}
	}
}

// TestEnoughCapabilities: loading needs no more than the three that errors name.
func TestEnoughCapabilities(t *testing.T) {
	testneeds.Root(t)
	const keep = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON
	for _, mode := range []Mode{Auto, TC, XDP} {
		if err := onThread(func() error {
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			sets := [2]unix.CapUserData{
				{Effective: keep & 0xffffffff, Permitted: keep & 0xffffffff},
				{Effective: keep >> 32, Permitted: keep >> 32},
			}
			if err := unix.Capset(&header, &sets[0]); err != nil {
				return err
			}
			o, err := Load(Options{Mode: mode})
			if err != nil {
				return err
			}
			return o.Close()
		}); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// TestObjectIsOldEnough looks for instructions and helpers that Linux 5.15 does not have on amd64 or
// arm64: the machine that runs the tests is newer and would load them.
func TestObjectIsOldEnough(t *testing.T) {
	spec, err := loadObserver()
	if err != nil {
		t.Fatal(err)
	}
	known := []asm.BuiltinFunc{
		asm.FnMapLookupElem, asm.FnMapUpdateElem, asm.FnKtimeGetNs, asm.FnJiffies64,
		asm.FnSkbLoadBytes, asm.FnSkbPullData, asm.FnRingbufReserve, asm.FnRingbufSubmit,
	}
	helpers := make(map[asm.BuiltinFunc]bool)
	for _, helper := range known {
		helpers[helper] = true
	}
	atomics := 0
	for name, program := range spec.Programs {
		for _, instruction := range program.Instructions {
			if instruction.IsBuiltinCall() && !helpers[asm.BuiltinFunc(instruction.Constant)] {
				t.Errorf("%s calls %v", name, instruction)
			}
			if instruction.OpCode.Class() == asm.StXClass && instruction.OpCode.Mode() == asm.AtomicMode {
				atomics++
				if instruction.OpCode.AtomicOp() != asm.AddAtomic {
					t.Errorf("%s has an atomic other than add without fetch: %v", name, instruction)
				}
			}
		}
	}
	if atomics == 0 {
		t.Error("found no atomic add: this test looks for the wrong thing")
	}
}

// TestVerifierEffort keeps the programs far from the limit of a million instructions: older verifiers
// find fewer states alike, and take more of them: where 6.18 goes through 28,000, 6.1 takes 50,000.
func TestVerifierEffort(t *testing.T) {
	for _, mode := range []Mode{TC, XDP} {
		info, err := load(t, Options{Mode: mode}).program.Info()
		if err != nil {
			t.Fatal(err)
		}
		effort, ok := info.VerifiedInstructions()
		t.Logf("%s: %d instructions", mode, effort)
		if !ok || effort > 200_000 {
			t.Errorf("%s: the verifier went through %d instructions, %v", mode, effort, ok)
		}
	}
}

// TestNoPadding: kernels before 6.3 refuse reads of uninitialized stack, and a program that copies a
// struct also reads its padding.
func TestNoPadding(t *testing.T) {
	spec, err := loadObserver()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"address", "mapping", "known", "seen", "bucket", "interface", "cached", "cache_set", "ipv6_packet", "packet", "finding"} {
		var s *btf.Struct
		if err := spec.Types.TypeByName(name, &s); err != nil {
			t.Fatalf("struct %s: %v", name, err)
		}
		members := 0
		for _, member := range s.Members {
			size, err := btf.Sizeof(member.Type)
			if err != nil {
				t.Fatalf("struct %s: %v", name, err)
			}
			members += size
		}
		if members != int(s.Size) {
			t.Errorf("struct %s has %d bytes of padding", name, int(s.Size)-members)
		}
	}
}
