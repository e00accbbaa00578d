package say

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/testneeds"
)

// run carries a command out literally, in a netns unless that is empty, and returns what it printed and whether it succeeded.
func run(netns, command string) (string, bool) {
	args := []string{"sh", "-c", command}
	if netns != "" {
		args = append([]string{"ip", "netns", "exec", netns}, args...)
	}
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	return string(out), err == nil
}

// sandbox is a new netns with the address on its loopback device, and another one.
func sandbox(t *testing.T, name string) (netns string, f *document.Facts) {
	t.Helper()
	netns = fmt.Sprintf("say-%d-%s", os.Getpid(), name)
	for _, command := range []string{
		"ip netns add " + netns, "ip -n " + netns + " link set lo up",
		"ip -n " + netns + " addr add 10.0.0.5/24 dev lo", "ip -n " + netns + " addr add 10.0.1.6/24 dev lo",
	} {
		if out, ok := run("", command); !ok {
			t.Fatalf("%s: %s", command, out)
		}
	}
	t.Cleanup(func() { run("", "ip netns del "+netns) })
	path := "/run/netns/" + netns
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return netns, &document.Facts{NetnsPath: path, NetnsInode: info.Sys().(*syscall.Stat_t).Ino}
}

// has are the addresses of a netns.
func has(netns string) string {
	out, _ := run(netns, "ip -o -4 addr show dev lo scope global; ip -o -4 addr show dev lo scope host")
	var found []string
	for _, want := range []string{"10.0.0.5", "10.0.1.6"} {
		if strings.Contains(out, want+"/") {
			found = append(found, want)
		}
	}
	return strings.Join(found, " ")
}

// Commands hit the holder that they were made for, or nothing: here another netns has its path or its process.
func TestTakeAddressHitsOneNetns(t *testing.T) {
	testneeds.Root(t)
	netns, f := sandbox(t, "a")
	_, other := sandbox(t, "b")
	process := exec.Command("ip", "netns", "exec", netns, "sleep", "60")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = process.Process.Kill(); _ = process.Wait() }()
	inNetns := fmt.Sprintf("net:[%d]", f.NetnsInode)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if link, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", process.Process.Pid)); link == inNetns {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the process is in %s", link)
		}
	}
	byProcess := func(inode uint64, pid int) *document.Facts {
		return &document.Facts{NetnsInode: inode, Process: &document.Process{PID: pid}}
	}
	for name, f := range map[string]*document.Facts{
		"another netns has the path":         {NetnsPath: f.NetnsPath, NetnsInode: other.NetnsInode},
		"nothing has the path":               {NetnsPath: f.NetnsPath + "x", NetnsInode: f.NetnsInode},
		"the process is in another netns":    byProcess(other.NetnsInode, process.Process.Pid),
		"another process has the number":     byProcess(f.NetnsInode, os.Getpid()),
		"no process has the number any more": byProcess(f.NetnsInode, 1<<22+1),
	} {
		command := takeAddress(f, ip)
		if out, ok := run("", command); ok || has(netns) != "10.0.0.5 10.0.1.6" {
			t.Errorf("%s: %s succeeded: %t, %s; the netns has %s", name, command, ok, out, has(netns))
		}
	}
	for name, f := range map[string]*document.Facts{"by its path": f, "by its process": byProcess(f.NetnsInode, process.Process.Pid)} {
		run("", "ip -n "+netns+" addr replace 10.0.0.5/24 dev lo")
		command := takeAddress(f, ip)
		if out, ok := run("", command); !ok || has(netns) != "10.0.1.6" {
			t.Errorf("%s: %s succeeded: %t, %s; the netns has %s", name, command, ok, out, has(netns))
		}
	}
}

func TestRemoveNetnsHitsOneNetns(t *testing.T) {
	testneeds.Root(t)
	_, f := sandbox(t, "c")
	_, other := sandbox(t, "d")
	if command := removeNetns(&document.Facts{NetnsPath: f.NetnsPath, NetnsInode: other.NetnsInode}); command == "" {
		t.Error("no command")
	} else if out, ok := run("", command); ok {
		t.Errorf("%s removed another one: %s", command, out)
	}
	if _, err := os.Stat(f.NetnsPath); err != nil {
		t.Fatal(err)
	}
	if out, ok := run("", removeNetns(f)); !ok {
		t.Error(out)
	}
	if _, err := os.Stat(f.NetnsPath); err == nil {
		t.Error("it is still there")
	}
	if command := removeNetns(&document.Facts{NetnsPath: "/run/docker/netns/c", NetnsInode: 1}); command != "" {
		t.Errorf(`"ip netns" does not know this one: %s`, command)
	}
}

func TestCutOffHitsOneInterface(t *testing.T) {
	testneeds.Root(t)
	netns, _ := sandbox(t, "e")
	if out, ok := run("", "ip -n "+netns+" link add veth0 index 77 type veth peer name eth0 && ip -n "+netns+" link set veth0 up"); !ok {
		t.Fatal(out)
	}
	isUp := func() bool {
		out, _ := run(netns, "ip -o link show dev veth0")
		return strings.Contains(out, ",UP")
	}
	if out, ok := run(netns, cutOff(document.Binding{Holder: document.Holder{Interface: "veth0", Ifindex: 78}})); ok || !isUp() {
		t.Errorf("another interface with the name: %s", out)
	}
	if out, ok := run(netns, cutOff(document.Binding{Holder: document.Holder{Interface: "veth0", Ifindex: 77}})); !ok || isUp() {
		t.Errorf("the interface: %s", out)
	}
}

func TestTakeFromNode(t *testing.T) {
	testneeds.Root(t)
	netns, _ := sandbox(t, "f")
	command := takeFromNode(document.Machine{Device: "lo", Prefix: netip.MustParsePrefix("10.0.0.5/24")}, true)
	if out, ok := run(netns, command); ok || has(netns) != "10.0.0.5 10.0.1.6" {
		t.Errorf("the address is permanent by now: %s", out)
	}
	run(netns, "ip addr change 10.0.0.5/24 dev lo valid_lft 1000 preferred_lft 1000")
	if out, ok := run(netns, command); !ok || has(netns) != "10.0.1.6" {
		t.Errorf("the address has a lifetime: %s; the node has %s", out, has(netns))
	}
}

func TestForget(t *testing.T) {
	testneeds.Root(t)
	netns, _ := sandbox(t, "g")
	run(netns, "ip link add cni0 type veth peer name x && ip link set cni0 up && ip neigh add 10.0.0.7 lladdr 02:00:00:00:00:07 dev cni0 nud stale && "+
		"ip neigh add 10.0.0.8 lladdr 02:00:00:00:00:08 dev cni0 nud stale")
	if out, ok := run(netns, forget(netip.MustParseAddr("10.0.0.7"), "cni0")); !ok {
		t.Error(out)
	}
	if out, _ := run(netns, "ip neigh show dev cni0 | grep lladdr"); strings.Contains(out, "10.0.0.7") || !strings.Contains(out, "10.0.0.8") {
		t.Error(out)
	}
}

// What kubectl prints of other addresses is not shown.
func TestReadPods(t *testing.T) {
	for address, lines := range map[string]string{
		"10.0.0.5":   "shop a 10.0.0.5 n1|shop b 10.0.0.50 n1|shop c 110.0.0.5 n1|shop d 10.0.0.5-1 n1|shop e 10a0b0c5 n1",
		"fd00::5":    "shop a fd00::5 n1|shop a 10.0.0.9,fd00::5 n1|shop b fd00::50 n1|shop c fd00::5:1 n1|shop d 1fd00::5 n1",
		"10.0.0.123": "shop a 10.0.0.123|shop b 10.0.0.12 n1",
	} {
		_, filter, _ := strings.Cut(readPods(netip.MustParseAddr(address)), " | ")
		out, _ := run("", "printf '"+strings.ReplaceAll(lines, "|", `\n`)+`\n' | `+filter)
		if strings.Count(out, "\n") != strings.Count(out, "shop a") || strings.Count(out, "shop a") != strings.Count(lines, "shop a") {
			t.Errorf("of %s: %s", address, out)
		}
	}
}

// The repairs of a book write and remove the file of the reservation that they were made for.
func TestRepairOfABook(t *testing.T) {
	store := filepath.Join(t.TempDir(), "pods")
	reserve, free := finding(document.Unreserved), finding(document.Unheld)
	reserve.Store, free.Store, free.ReservedFor = store, store, reserve.Sandbox
	command := func(f document.Finding) string {
		_, steps := Finding(f)
		return steps[0].Command
	}
	if out, ok := run("", command(reserve)); !ok {
		t.Fatal(out)
	}
	file := filepath.Join(store, "10.1.2.5")
	if text, _ := os.ReadFile(file); string(text) != reserve.Sandbox+"\r\neth0" {
		t.Errorf("%q", text)
	}
	again := reserve
	again.Sandbox = strings.Repeat("b2", 32)
	if out, ok := run("", command(again)); ok {
		t.Errorf("it took the reservation of another one: %s", out)
	}
	other := free
	other.ReservedFor = strings.Repeat("c3", 32)
	if _, ok := run("", command(other)); ok {
		t.Error("it freed the reservation of another one")
	}
	if out, ok := run("", command(free)); !ok {
		t.Error(out)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the address is still reserved")
	}
}

// What ends a diversion removes that and nothing else, also for IPv6 and VLANs, and fails if it is not there any more.
func TestDivertedCommands(t *testing.T) {
	testneeds.Root(t)
	netns, _ := sandbox(t, "diverted")
	for _, command := range []string{
		"ip link add eth0.7 type veth peer name peer0", "ip link set eth0.7 up", "ip link set peer0 up", "ip addr add 10.9.0.1/24 dev eth0.7",
		"ip route add 10.1.2.0/24 dev peer0", "ip route add 10.1.2.5 dev peer0 metric 9", "ip -6 route add fd01::/64 dev peer0",
	} {
		if out, ok := run(netns, command); !ok {
			t.Fatalf("%s: %s", command, out)
		}
	}
	state := func() string {
		out, _ := run(netns, "(ip route show table all; ip -6 route show table all; ip neigh show proxy; sysctl net.ipv4.conf.eth0/7.proxy_arp) | grep -vE 'fe80|ff00'") // these come later
		return out
	}
	for begin, f := range map[string]document.Finding{
		"ip route add local 10.1.2.0/24 dev eth0.7 table local": {End: document.EndsAtSelf, Route: netip.MustParsePrefix("10.1.2.0/24"), Table: 255, Protocol: "66"},
		"ip -6 route add local fd01::/64 dev eth0.7 table local": {
			End: document.EndsAtSelf, IP: netip.MustParseAddr("fd01::5"), Route: netip.MustParsePrefix("fd01::/64"), Table: 255, Protocol: "boot",
		},
		"ip route add 10.1.2.5 dev eth0.7":           {End: document.EndsAtPods, Route: netip.MustParsePrefix("10.1.2.5/32"), Table: 254, Protocol: "boot"},
		"ip route add 10.1.2.5 dev eth0.7 table 77":  {End: document.EndsAtNode, Route: netip.MustParsePrefix("10.1.2.5/32"), Table: 77, Protocol: "static"},
		"ip -6 route add fd01::5 dev eth0.7":         {End: document.EndsAtPods, IP: netip.MustParseAddr("fd01::5"), Route: netip.MustParsePrefix("fd01::5/128"), Table: 254, Protocol: "boot"},
		"ip neigh add proxy 10.1.2.5 dev eth0.7":     {End: document.EndsByProxy},
		"ip -6 neigh add proxy fd01::5 dev eth0.7":   {End: document.EndsByProxy, IP: netip.MustParseAddr("fd01::5")},
		"sysctl -w net.ipv4.conf.eth0/7.proxy_arp=1": {End: document.EndsByProxyARP},
	} {
		if f.Device = "eth0.7"; !f.IP.IsValid() {
			f.IP = netip.MustParseAddr("10.1.2.5")
		}
		before := state()
		if out, ok := run(netns, begin); !ok {
			t.Fatalf("%s: %s", begin, out)
		}
		if out, ok := run(netns, lookDiverted(f)); !ok || out == "" {
			t.Errorf("%s: %s: %s", begin, lookDiverted(f), out)
		}
		if out, ok := run(netns, endDiverted(f)); !ok || state() != before {
			t.Errorf("%s: %s: %s\n%s\nbefore:\n%s", begin, endDiverted(f), out, state(), before)
		}
		if out, ok := run(netns, endDiverted(f)); f.End != document.EndsByProxyARP && ok || state() != before {
			t.Errorf("%s, twice: %s: %s", begin, endDiverted(f), out)
		}
	}
}
