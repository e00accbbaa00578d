// Package vm runs tests under other kernels: Debian's Linux 5.10, the oldest that dupip supports, 6.1, which has no
// tcx either, 6.12, which has netkit, and the newest that Debian has. They run in a virtual machine that qemu emulates without hardware
// acceleration; in CI, Linux 5.10 runs as a program of this machine (Documentation/virt/uml), which takes a tenth of the time for the
// verifier. The kernels come from apt and are not installed. The machine has a generated initramfs with busybox and the tests'
// binaries, and no disk or network.
//
// It owns the machine and the choice of tests, which are compiled from other packages.
package vm

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/testjson"
)

//go:embed init.sh
var initScript []byte

// modules are those the tests need; what they depend on comes along.
var modules = []string{
	"ipv6", "veth", "bridge", "sch_ingress", "cls_bpf", "cls_u32", "dummy", "vxlan", "8021q", "bonding", "vrf", "macvlan", "ipvlan", "openvswitch",
}

// programs are those the tests run; their libraries come along.
var programs = []string{"ip", "ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl"}

// ovsSchema is the file that makes a database of Open vSwitch.
const ovsSchema = "/usr/share/openvswitch/vswitch.ovsschema"

// suite is the tests of one package.
type suite struct {
	// name is the package's folder.
	name string
	// processor is one of the machine's two. Its suites run one after the other. What
	// takes time is the kernel's verifier, which keeps one processor busy.
	processor int
	// pair is how the pods of the tests are joined to their nodes: by veth, netkit or netkit-l3.
	pair string
	// mode is how agents attach that are not told: tc, tcx or xdp; empty for auto.
	mode string
	// run chooses the tests: what the kernel does otherwise than others, and what does not measure time. Other flags may follow.
	run string
	// whole replaces run if one kernel is chosen, which CI does not have the time for; empty for the same.
	whole string
	// skip are those of them that this kernel cannot run, as an expression; empty for none.
	skip string
	// atLeast is how many tests run chooses: an expression that has come to choose none
	// must not pass. wholeAtLeast is the same for whole.
	atLeast, wholeAtLeast int
}

// Scenarios that need a device which not every kernel has: those that dupip observes under each kernel, and all of them.
const (
	withDevices    = "(D9|D14|Q4)-vlan|[DQ][0-9]+-(bond|vrf|dummy|openvswitch)"
	withAllDevices = "[DQ][0-9]+-[a-z]+"
)

// inUserMode is the kernel that runs as a program.
const inUserMode = "5.10-um"

// suites are what runs under each kernel.
var suites = map[string][]suite{
	// It has one processor, and no types of its own (BTF). The tests that are skipped fail there: a map that is filled quickly gets no
	// memory, and a reader beside one that attaches and detaches reads nothing.
	inUserMode: {
		{name: "bpf", pair: "veth", run: ".", skip: "^TestCaptureFullRing$|^TestConcurrent$/^xdp$", atLeast: 50},
		{name: "tests/scenarios", pair: "veth", mode: "tc", run: scenarios("D1|D3|D15|Q4|Q17|D14-vlan|D38-openvswitch"), skip: withNft, atLeast: 10},
		{name: "tests/scenarios", pair: "veth", mode: "xdp", run: scenarios("D1|Q4"), atLeast: 3},
		{name: "tests/e2e", pair: "veth", run: "^(" + ofAttaching + ")$", atLeast: 8},
		{name: "agent/netns", pair: "veth", run: ".", atLeast: 30},
		{name: "agent/doctor", pair: "veth", run: ofKernels, atLeast: 3},
	},
	"5.10":   withoutTCX,
	"6.1":    withoutTCX,
	"6.12":   withNetkit,
	"newest": withNetkit,
}

// inCI are the kernels that CI boots.
var inCI = []string{inUserMode, "6.12"}

// Tests of other packages that are for kernels without tcx, and what they cannot do there.
const (
	ofAttaching = "TestForeignFilters|TestFirstPriorityTaken|TestAttachAuto|TestAttachTCX|TestOneAgentPerNode|TestMacvlanWithoutTCX"
	withNft     = "^TestScenarios$/^Q17$/^cluster$"
	withTCX     = "^(TestNoPacketLost|TestHostEndMovesAway)$/^tcx"
	ofKernels   = "^(TestKernelHere|TestFeatures|TestSelfTestNeedsTheRecord)$"
)

// withoutTCX is what runs where the kernel has neither netkit nor tcx.
var withoutTCX = []suite{
	{name: "bpf", processor: 0, pair: "veth", run: ".", atLeast: 50},
	{name: "tests/scenarios", processor: 1, pair: "veth", mode: "tc", run: scenarios("D1|D2|D3|D5|D6|D15|Q4|Q5|Q16|Q17|Q21|Q27|Q38|Q42|" + withDevices), skip: withNft, atLeast: 30},
	{name: "tests/scenarios", processor: 1, pair: "veth", mode: "xdp", run: scenarios("D1|D2|D3|D5|D6|D15|Q4|Q5|Q27|Q38|Q42"), atLeast: 8},
	{name: "tests/e2e", processor: 0, pair: "veth", run: "^(" + ofAttaching + "|TestDrill|TestNoPacketLost|TestHostEndMovesAway|TestSilentForAWhile)$", skip: withTCX, atLeast: 18},
	{name: "agent/netns", processor: 1, pair: "veth", run: ".", atLeast: 30},
	{name: "agent/report/route", processor: 1, pair: "veth", run: ".", atLeast: 7},
	{name: "agent/doctor", processor: 1, pair: "veth", run: ofKernels, atLeast: 3},
}

// withNetkit is what runs where the kernel has netkit and tcx.
var withNetkit = []suite{
	{
		name: "bpf", processor: 0, pair: "netkit", atLeast: 3, wholeAtLeast: 5,
		run:   "^(TestNetkitOrder|TestNetkitPolicy|TestFateUnchanged|TestNoPacketLost)$/^tcx",
		whole: "^(TestNetkitOrder|TestNetkitPolicy|TestCaptureRealFrames|TestFateUnchanged|TestRealFrames|TestRingFrames|TestNoPacketLost)$/^tcx -test.bench=Netkit",
	},
	{
		name: "bpf", processor: 0, pair: "ipvlan", atLeast: 3, wholeAtLeast: 8,
		run:   "^(TestNoPacketLost|TestKilled|TestInsideEnds)$/^inside_ipvlan_l2",
		whole: "^(TestNoPacketLost|TestKilled|TestCaptureRealFrames|TestRealFrames|TestRingFrames|TestAttachTwice|TestConcurrent|TestInside.*)$/^inside",
	},
	{
		name: "tests/scenarios", processor: 1, pair: "netkit", mode: "tcx", atLeast: 5, wholeAtLeast: 25,
		run:   scenarios("D1|D3|Q1|(D35|Q48)-ipvlan"),
		whole: scenarios("D1|D2|D3|D4|D5|D6|D7|D8|D9|Q1|Q2|Q4|Q5|Q27|" + withAllDevices),
	},
	// Not those about MACs (D8), and about what neighbours send through each other (Q5).
	{
		name: "tests/scenarios", processor: 0, pair: "netkit-l3", mode: "tcx", atLeast: 5, wholeAtLeast: 12,
		run:   "^(TestScenarios|TestConfigured.*)$/^(D2|D3|D9|Q2)$",
		whole: "^(TestScenarios|TestConfigured.*)$/^(D1|D2|D3|D4|D5|D6|D7|D9|Q1|Q2|Q4)$",
	},
}

func scenarios(ids string) string { return "^TestScenarios$/^(" + ids + ")$" }

// TestLinux boots a machine with each kernel, or with the one that DUPIP_TEST_KERNEL names, and reports each test that ran in it
// as one here.
func TestLinux(t *testing.T) {
	testneeds.Slow(t)
	only := os.Getenv("DUPIP_TEST_KERNEL")
	if only != "" && suites[only] == nil {
		t.Fatalf("KERNEL=%s: the kernels are %q", only, slices.Sorted(maps.Keys(suites)))
	}
	var played matrix
	kernels := inCI
	if only != "" {
		kernels = []string{only}
	}
	for _, name := range kernels {
		chosen := slices.Clone(suites[name])
		for i := range chosen {
			if s := &chosen[i]; only != "" {
				s.run, s.atLeast = cmp.Or(s.whole, s.run), max(s.atLeast, s.wholeAtLeast)
			}
		}
		t.Run(name, func(t *testing.T) { boot(t, name, chosen, &played) })
	}
	played.print(os.Stdout)
}

func boot(t *testing.T, name string, suites []suite, played *matrix) {
	began := time.Now()
	k, err := findKernel(name, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSuffix(name, "-um"); name != "newest" && k.series != want {
		t.Fatalf("this is Linux %s, want %s", k.series, want)
	}
	m := &machine{dir: t.TempDir(), lines: 1 + len(suites)}
	initramfs := filepath.Join(m.dir, "initramfs")
	if err := build(k, suites, initramfs); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("Linux %s and the tests are ready to boot after %.1f s\n", k.series, time.Since(began).Seconds())
	booted := time.Now()
	err = m.run(t.Context(), k, initramfs)
	fault := brokenPatch.FindString(m.log(0)) // of what emulates, and not of the tests
	if errors.Is(err, errSilent) {
		fault = err.Error()
	}
	if fault != "" {
		t.Logf("%s: the machine boots again; the last output:\n%s", fault, tail(m.log(1), 20))
		err = m.run(t.Context(), k, initramfs)
	}
	ran := time.Since(booted)
	if err != nil {
		t.Errorf("%v; the last output:\n%s", err, tail(m.log(0), 40))
	}
	t.Run("kernel", func(t *testing.T) {
		if !k.userMode && !strings.Contains(m.log(0), lockedDown) {
			t.Errorf("the kernel does not say %q", lockedDown)
		}
		for _, line := range problems.FindAllString(m.log(0), 20) {
			t.Errorf("the kernel reported: %s", line)
		}
		if t.Failed() {
			t.Logf("the last output:\n%s", tail(m.log(0), 80))
		}
	})
	for i, s := range suites {
		t.Run(strings.Join([]string{s.name, s.pair, s.mode}, " "), func(t *testing.T) { played.add(k.series, s, report(t, s, m.log(1+i))) })
	}
	fmt.Printf("the machine ran for %.1f s, all took %.1f s\n", ran.Seconds(), time.Since(began).Seconds())
}

// build compiles the tests and packs them into an initramfs.
func build(k *kernel, suites []suite, file string) error {
	order, err := k.inOrder(modules)
	if err != nil {
		return err
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return errors.New("there is no busybox: tests/install.sh vm installs it")
	}
	if static, err := isStatic(busybox); err != nil {
		return fmt.Errorf("read busybox: %w", err)
	} else if !static {
		return fmt.Errorf("%s needs libraries: tests/install.sh vm installs the static one", busybox)
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	w := &cpioWriter{out: out, added: make(map[string]bool)}
	w.add("init", cpioExecutable, initScript)
	w.addFile("bin/busybox", busybox)
	for _, name := range order {
		w.addFile("modules/"+name, k.modules[name])
	}
	for _, name := range programs {
		if err := w.addProgram(name); err != nil {
			return fmt.Errorf("%w (tests/install.sh vm installs it)", err)
		}
	}
	w.addFile(ovsSchema, ovsSchema)
	w.addFile("deploy/alerts.yaml", product+"/deploy/alerts.yaml") // from the folder of a suite in /tmp, TestDrill finds it there
	w.add("modules/order", cpioExecutable, []byte(strings.Join(order, "\n")+"\n"))

	dir := filepath.Dir(file)
	dupip := filepath.Join(dir, "dupip")
	if err := compile(product, "build", "-trimpath", "-o", dupip, "./cmd/dupip"); err != nil {
		return err
	}
	w.addFile("bin/dupip", dupip)
	list := ""
	compiled := make(map[string]bool)
	for i, s := range suites {
		binary := strings.ReplaceAll(s.name, "/", "-")
		path := filepath.Join(dir, binary)
		module, folder := product, s.name
		if below, ok := strings.CutPrefix(s.name, "tests/"); ok {
			module, folder = "..", below
		}
		if !compiled[binary] {
			if err := compile(module, "test", "-c", "-o", path, "./"+folder); err != nil {
				return err
			}
			w.addFile("suites/"+binary, path)
			compiled[binary] = true
		}
		skip := cmp.Or(s.skip, "^$")
		if s.pair == "veth" {
			skip += "|^TestNetkit|/^inside" // of what the kernel does not have, each of which would load the program
		}
		list += fmt.Sprintf("%d ttyS%d %s %s %s -test.v=test2json -test.parallel=3 -test.timeout=%v -test.skip=%s -test.run=%s\n",
			s.processor, 1+i, s.pair, cmp.Or(s.mode, "auto"), binary, guestDeadline, skip, s.run)
	}
	w.add("suites/list", cpioExecutable, []byte(list))
	return errors.Join(w.close(), out.Close())
}

// product is the folder of the product's module. That of the tests' module is the one above.
const product = "../.."

// compile runs the go command in a module's folder. What comes out needs no library.
func compile(module, command string, args ...string) error {
	cmd := exec.Command("go", append([]string{command, "-ldflags=-s -w", "-buildvcs=false"}, args...)...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64", "GOOS=linux")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s %s: %w\n%s", command, strings.Join(args, " "), err, out)
	}
	return nil
}

// ended is the last line of a suite, by init.sh: the exit code, and the age of the machine.
var ended = regexp.MustCompile(`(?m)^vm: exit code (\d+) at ([\d.]+) `)

// report turns the log of a suite into tests of the host, and returns what belongs to none.
func report(t *testing.T, s suite, log string) (rest string) {
	match := ended.FindStringSubmatchIndex(log)
	if match == nil {
		t.Fatalf("it did not end; the last output:\n%s", tail(log, 60))
	}
	code, err := strconv.Atoi(log[match[2]:match[3]])
	if err != nil {
		t.Fatal(err)
	}
	results, rest, err := decode(log[:match[0]])
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		t.Run(r.Name, func(t *testing.T) {
			// A test that is skipped where it was chosen to run is one that does not run.
			if r.Action != "pass" {
				// It begins with why, and the logs of processes come last.
				head, end := string(r.Output), ""
				if all := strings.SplitAfterN(head, "\n", 31); len(all) > 30 {
					head, end = strings.Join(all[:30], ""), "...\n"+tail(all[30], 70)
				}
				t.Errorf("%s under this kernel:\n%s%s", r.Action, head, end)
			}
		})
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	if len(results) < s.atLeast {
		t.Errorf("%d tests ran, want at least %d", len(results), s.atLeast)
	}
	fmt.Printf("%s by %s %s: %d tests, exit code %d, %s s after boot\n%s", s.name, s.pair, s.mode, len(results), code, log[match[4]:match[5]],
		strings.TrimPrefix(strings.TrimSpace(rest)+"\n", "PASS\n"))
	return rest
}

// decode reads the output of a test binary under -test.v=test2json.
func decode(log string) (results []*testjson.Test, rest string, err error) {
	cmd := exec.Command("go", "tool", "test2json")
	cmd.Stdin = strings.NewReader(log)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, "", fmt.Errorf("run go tool test2json: %w", err)
	}
	results, _, rest = testjson.Read(out)
	return results, rest, nil
}
