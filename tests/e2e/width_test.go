package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dupip/dupip/tests/lab"
)

// Tables fit a terminal of 80 columns whatever the addresses and names are.
func TestLongNames(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	w := l.Watch(a)
	long := netip.MustParseAddr("fd5f:5801:f9ef:a93e:16d3:e3fc:a5ab:9d40")
	short := n.IPv4(5)
	for i, name := range []string{"payments-reconciliation-worker-6f4c9d7b58-x2x9z", "checkout-frontend-canary-7d9f8b6c5d-abcde"} {
		l.Pod(n, name, lab.PodOptions{
			Addrs:         []netip.Addr{short, long},
			HostInterface: fmt.Sprintf("vethabcdef%05d", i),
		})
	}
	for _, ip := range []netip.Addr{short, long} {
		_, err := w.WaitConfirmed(ip, patience)
		l.Do(err)
	}
	for _, args := range [][]string{{"bindings"}, {"conflicts"}, {"conflicts", "--all"}, {"explain", long.String()}, {"status"}} {
		got := dupip(t, nil, append(args, "--api-socket", a.Socket)...)
		if got.code != 0 {
			t.Errorf("dupip %v: %+v", args, got)
		}
		if args[0] != "status" && !strings.Contains(got.stdout, long.String()) {
			t.Errorf("dupip %v: the address is not whole:\n%s", args, got.stdout)
		}
		for line := range strings.Lines(got.stdout) {
			if columns := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); columns > 80 {
				t.Errorf("dupip %v: a line of %d columns:\n%s", args, columns, got.stdout)
				break
			}
		}
	}
}
