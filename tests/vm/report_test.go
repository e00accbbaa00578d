package vm

import (
	"bytes"
	"strings"
	"testing"
)

// What is neither success nor a kernel problem.
func TestKernelProblems(t *testing.T) {
	for line, want := range map[string]bool{
		"[    1.9] WARNING: CPU: 0 PID: 1 at net/core/dev.c:1 dev+0x1/0x2":  true,
		"[    1.9] BUG: kernel NULL pointer dereference, address: 0":        true,
		"[    1.9] Kernel panic - not syncing: sysrq triggered crash":       true,
		"[    1.9] Oops: 0002 [#1] PREEMPT SMP":                             true,
		"vm: module veth is not loaded":                                     true,
		"[    1.9] IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready": false,
		"[    1.9] Speculative Store Bypass: Vulnerable":                    false,
		"[    1.9] veth: veth0: Caught tx_queue_len zero misconfig":         false,
		"[    1.9] reboot: Power down":                                      false,
	} {
		if got := problems.MatchString("[    0.1] Linux version 6.1\n" + line + "\n"); got != want {
			t.Errorf("%q is a kernel problem: %t, want %t", line, got, want)
		}
	}
}

func TestDecode(t *testing.T) {
	log := strings.ReplaceAll(strings.Join([]string{
		"^=== RUN   TestA", "^=== RUN   TestA/b", "    a_test.go:1: said",
		"^--- FAIL: TestA (0.10s)", "    ^--- FAIL: TestA/b (0.05s)",
		"^=== RUN   TestS", "^--- SKIP: TestS (0.00s)",
		"^=== RUN   TestU", "panic: boom", "",
	}, "\n"), "^", "\x16")
	results, _, err := decode(log)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, r := range results {
		got += r.Name + " " + r.Action + "; "
	}
	// A binary that crashed fails the test that it ran.
	if want := "TestA fail; TestA/b fail; TestS skip; TestU unfinished; "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Forms of one scenario are counted each, by the device that they name, else by that of the suite.
func TestMatrix(t *testing.T) {
	var m matrix
	m.add("6.1", suite{pair: "veth", mode: "tc"}, `PASS
ID   EXPECTED SEEN              SUSPECTED CONFIRMED  SITUATION
D1   found    found               0.013 s   1.014 s  same node
D14  found    missed                                 a form that the row says is no error
D14  found    FOUND               0.013 s   1.014 s  inside one VLAN [vlan]; 2 nodes
     why it failed
Q4   quiet    quiet, suspected                       the host's own traffic
Q4   quiet    FALSE ALARM                            its uplink is a bond [bond]
found 2 of 3
`)
	twice := "D1   found    found               0.013 s   1.014 s  same node\nD1   found    found               0.013 s   1.214 s  same node\n"
	m.add("6.12", suite{pair: "netkit", mode: "tcx"}, twice)
	m.add("6.1", suite{pair: "veth"}, "no scenario")
	var out bytes.Buffer
	m.print(&out)
	want := `DEVICE       KERNEL  MODE  FOUND      QUIET     SECONDS  SCENARIOS
bond         6.1     tc    0 of 0     0 of 1             Q4 (FALSE ALARM)
netkit       6.12    tcx   2 of 2     0 of 0        1.2  D1
veth         6.1     tc    1 of 2     1 of 1        1.0  D1 D14 (missed) Q4
vlan         6.1     tc    0 of 1     0 of 0        1.0  D14 (FOUND)
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
