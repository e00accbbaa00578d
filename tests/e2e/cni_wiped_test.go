package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/tests/lab"
)

// The store of host-local is wiped while pods run, as after a restore of a node: the
// next pods get the same addresses, ptp sees nothing wrong with it, and the routes show
// one holder each. Every one of the duplicates is found.
func TestWipedHostLocal(t *testing.T) {
	t.Parallel()
	const pods = 10
	l := lab.NewT(t)
	c := newCNI(l, l.Node(""))
	nw := network{plugin: map[string]any{"type": "ptp"}, subnets: []string{"10.99.0.0/24", "fd00:99::/64"}}
	a := l.Agent(c.node)
	w := l.Watch(a)
	holders := make(map[netip.Addr][]string)
	for _, generation := range []string{"elder", "newcomer"} {
		l.Do(os.RemoveAll(c.dataDir))
		for _, s := range addAll(l, c, generation, pods, nw) {
			for _, ip := range s.ips {
				holders[ip] = append(holders[ip], s.Name)
			}
		}
		if len(holders) != pods*len(nw.subnets) {
			t.Fatalf("the %ss have addresses that are not those of the elders: %v", generation, holders)
		}
	}
	var slowest time.Duration
	for ip, want := range holders {
		event, err := w.WaitConfirmed(ip, patience)
		if err != nil {
			t.Error(err)
			continue
		}
		slowest = max(slowest, event.Conflict.ConfirmedAt.Sub(event.Conflict.SecondSeen))
		if event.Conflict.Scope != "same-node" {
			t.Errorf("%v: scope %s, want same-node", ip, event.Conflict.Scope)
		}
		var got []string
		for _, h := range event.Conflict.Holders {
			got = append(got, h.Netns)
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("holders of %v (-want +got):\n%s", ip, diff)
		}
	}
	t.Logf("the slowest of %d was confirmed %v after its newcomer was seen", len(holders), slowest.Round(time.Millisecond))
	open, err := a.Client.Conflicts(t.Context(), false)
	l.Do(err)
	if len(open) != len(holders) {
		t.Errorf("%d conflicts are open, want %d", len(open), len(holders))
	}
}

// addAll adds pods side by side, as a kubelet does.
func addAll(l *lab.T, c *cni, prefix string, count int, nw network) []*sandbox {
	l.Helper()
	var wg sync.WaitGroup
	all, errs := make([]*sandbox, count), make([]error, count)
	for i := range count {
		wg.Go(func() { all[i], errs[i] = c.add(fmt.Sprintf("%s%d", prefix, i), nw) })
	}
	wg.Wait()
	l.Do(errs...)
	return all
}
