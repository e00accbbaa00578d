package vm

import (
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
		got += r.name + " " + r.action + "; "
	}
	// A binary that crashed fails the test that it ran.
	if want := "TestA fail; TestA/b fail; TestS skip; TestU unfinished; "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
