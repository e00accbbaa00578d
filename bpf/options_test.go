package bpf

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
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

// TestConstants: what an option does not say stays as the C sources have it, which are the documented defaults.
func TestConstants(t *testing.T) {
	defaults := map[string]uint64{
		"records": 1 << 20, "addresses": 65536, "interfaces": 4096,
		"refresh_ns": 30e9, "change_ns": 5e9, "solicit_mac": 0,
		"data_token_ns": 1e9 / 10, "data_full_ns": 64 * 1e9 / 10,
		"announced_token_ns": 1e9 / 50, "announced_full_ns": 100 * 1e9 / 50,
		"refresh_token_ns": 1e9 / 20, "refresh_full_ns": 256 * 1e9 / 20,
		"answer_token_ns": 1e9 / 200, "answer_full_ns": 400 * 1e9 / 200,
		"share_token_ns": 1e9 / 20, "share_full_ns": 40 * 1e9 / 20,
	}
	for _, c := range []struct {
		opts Options
		want map[string]uint64
	}{
		{Options{}, nil},
		{Options{MaxAddresses: 1 << 24, MaxInterfaces: 3}, map[string]uint64{"addresses": 1 << 24, "interfaces": 3}},
		{Options{RingBytes: 1<<21 - 1}, map[string]uint64{"records": 1 << 21}},
		{Options{RingBytes: 1}, map[string]uint64{"records": uint64(os.Getpagesize())}},
		{Options{Constants: limits{Refresh: time.Hour, MACChange: time.Second}.constants()}, map[string]uint64{"refresh_ns": 3600e9, "change_ns": 1e9}},
		{Options{SolicitMAC: [3]byte{1, 2, 3}}, map[string]uint64{"solicit_mac": 0x030201}},
		{Options{Constants: limits{DataRate: Rate{1, 3}}.constants()}, map[string]uint64{"data_token_ns": 1e9, "data_full_ns": 3e9}},
		{Options{Constants: limits{AnnounceRate: Rate{2, 3}}.constants()}, map[string]uint64{"announced_token_ns": 5e8, "announced_full_ns": 15e8}},
		{Options{Constants: limits{RefreshRate: Rate{2, 3}}.constants()}, map[string]uint64{"refresh_token_ns": 5e8, "refresh_full_ns": 15e8}},
		{Options{Constants: limits{AnswerRate: Rate{10, 30}}.constants()}, map[string]uint64{
			"answer_token_ns": 1e8, "answer_full_ns": 3e9, "share_token_ns": 1e9, "share_full_ns": 3e9,
		}},
		{Options{Constants: limits{AnswerRate: Rate{10, 1}}.constants()}, map[string]uint64{
			"answer_token_ns": 1e8, "answer_full_ns": 1e8, "share_token_ns": 1e9, "share_full_ns": 1e9,
		}},
	} {
		spec, err := loadObserver()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.opts.apply(spec); err != nil {
			t.Fatal(err)
		}
		got := make(map[string]uint64)
		for name, variable := range spec.Variables {
			if !variable.Constant() || variable.Size() != 8 || name == "tick_ns" { // that is the kernel's
				continue
			}
			var value uint64
			if err := variable.Get(&value); err != nil {
				t.Fatal(err)
			}
			got[name] = value
		}
		for _, name := range []string{"records", "addresses", "interfaces"} {
			got[name] = uint64(spec.Maps[name].MaxEntries)
		}
		want := maps.Clone(defaults)
		maps.Copy(want, c.want)
		if diff := diff(want, got); diff != "" {
			t.Errorf("%+v (-want +got)\n%s", c.opts, diff)
		}
	}
}

// limits are the constants of the observer that tests change; those that are zero stay.
type limits struct {
	Refresh, MACChange                              time.Duration
	DataRate, AnnounceRate, RefreshRate, AnswerRate Rate
}

// Rate is a token bucket: Burst at once, PerSecond on average.
type Rate struct{ PerSecond, Burst int }

func (l limits) constants() map[string]uint64 {
	all := map[string]uint64{"refresh_ns": uint64(l.Refresh), "change_ns": uint64(l.MACChange)}
	for name, rate := range map[string]Rate{
		"data": l.DataRate, "announced": l.AnnounceRate, "refresh": l.RefreshRate, "answer": l.AnswerRate,
	} {
		if rate != (Rate{}) {
			all[name+"_token_ns"] = uint64(time.Second) / uint64(rate.PerSecond)
			all[name+"_full_ns"] = all[name+"_token_ns"] * uint64(rate.Burst)
		}
	}
	// One address can use a tenth of the bucket for answers to us, and at least one token.
	all["share_token_ns"] = 10 * all["answer_token_ns"]
	all["share_full_ns"] = max(all["share_token_ns"], all["answer_full_ns"])
	maps.DeleteFunc(all, func(_ string, value uint64) bool { return value == 0 })
	return all
}

func TestUnknownMode(t *testing.T) {
	if o, err := Load(Options{Mode: "netkit"}); err == nil {
		t.Error("Load went through")
		_ = o.Close()
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

// TestObjectIsOldEnough looks for kinds of maps, helpers, instructions and functions that Linux 5.10 does not have on amd64 or arm64:
// the machine that runs the tests is newer and would load them. All of those that are known here are in 5.8, to which
// [CheckKernel] goes back. Only the programs that run by tcx inside a netns, and by netkit, may call the kernel and know its types.
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
	for name, m := range spec.Maps {
		switch m.Type {
		case ebpf.Array, ebpf.Hash, ebpf.LRUHash, ebpf.PerCPUArray, ebpf.RingBuf:
		default:
			t.Errorf("%s is a %v", name, m.Type)
		}
	}
	atomics, kernel := 0, 0
	for name, program := range spec.Programs {
		for _, instruction := range program.Instructions {
			if instruction.IsBuiltinCall() && !helpers[asm.BuiltinFunc(instruction.Constant)] {
				t.Errorf("%s calls %v", name, instruction)
			}
			relocated := btf.CORERelocationMetadata(&instruction) != nil
			if instruction.IsKfuncCall() || relocated {
				kernel++
				if name != "dupip_inside" && name != "dupip_netkit" {
					t.Errorf("%s needs the types of the kernel: %v", name, instruction)
				}
			}
			if instruction.OpCode.Class() == asm.StXClass && instruction.OpCode.Mode() == asm.AtomicMode {
				atomics++
				if instruction.OpCode.AtomicOp() != asm.AddAtomic {
					t.Errorf("%s has an atomic other than add without fetch: %v", name, instruction)
				}
			}
		}
	}
	// Functions that the verifier checks once can be given memory since Linux 5.12 (btf_check_func_arg_match, kernel/bpf/btf.c).
	global := 0
	for function := range all(t, spec) {
		if function.Linkage != btf.GlobalFunc || strings.HasPrefix(function.Name, "dupip_") {
			continue
		}
		global++
		for _, param := range function.Type.(*btf.FuncProto).Params {
			if _, number := btf.UnderlyingType(param.Type).(*btf.Int); !number {
				t.Errorf("%s takes %s, a %v", function.Name, param.Name, param.Type)
			}
		}
	}
	if global < 4 {
		t.Errorf("found %d global functions: this test looks for the wrong thing", global)
	}
	if atomics == 0 || kernel == 0 {
		t.Error("found no atomic add, or none of the kernel's types: this test looks for the wrong thing")
	}
}

// all yields the functions of the types of the objects.
func all(t *testing.T, spec *ebpf.CollectionSpec) iter.Seq[*btf.Func] {
	t.Helper()
	return func(yield func(*btf.Func) bool) {
		for typ, err := range spec.Types.All() {
			if err != nil {
				t.Fatal(err)
			}
			if function, ok := typ.(*btf.Func); ok && !yield(function) {
				return
			}
		}
	}
}

// TestVerifierEffort keeps the programs far from the limit of a million instructions: older verifiers
// find fewer states alike, and take more of them: where 6.18 goes through 25,000, 5.10 takes 39,000.
func TestVerifierEffort(t *testing.T) {
	testneeds.Root(t)
	raiseMemlock()
	for name, has := range map[string]bool{
		"dupip_observer": true, "dupip_xdp": true, "dupip_delivered": true, "dupip_inside": hasTCX(t), "dupip_netkit": byNetkit,
	} {
		if !has {
			continue
		}
		spec, err := specOf(name)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
		if err != nil {
			t.Fatal(err)
		}
		defer objects.Close()
		effort := 0
		_, after, _ := strings.Cut(objects.Programs[name].VerifierLog, "processed ")
		_, err = fmt.Sscan(after, &effort)
		t.Logf("%s: %d instructions", name, effort)
		if err != nil || effort > 200_000 {
			t.Errorf("%s: the verifier went through %d instructions, %v", name, effort, err)
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
	for _, name := range []string{"address", "mapping", "known", "seen", "bucket", "interface", "line", "line_set", "slot", "ipv6_packet", "packet", "finding", "inside_device", "inside_slot"} {
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
