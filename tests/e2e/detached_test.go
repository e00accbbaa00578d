package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// TestDetachedByOthers: somebody with rights on the node removes the programs. The next resync attaches them again.
func TestDetachedByOthers(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	ips := []netip.Addr{n.IPv4(5)}
	older := l.Pod(n, "older", lab.PodOptions{Addrs: ips})
	a := l.Agent(n, "--attach", "tc")
	w := l.Watch(a)
	attached := func() error {
		found, err := programsOf(t, n)
		if err == nil && found[older.HostInterface].TC != 1 {
			err = fmt.Errorf("%s has %+v", older.HostInterface, found[older.HostInterface])
		}
		return err
	}
	l.Eventually("attached", attached)
	index, err := n.Ifindex(older.HostInterface)
	l.Do(err)
	l.Do(n.Netlink().QdiscDel(ingressQdisc(index, "clsact")))
	if err := attached(); err == nil {
		t.Fatal("the programs are still there")
	}
	l.Do(lab.Poll(l.Context(), 30*time.Second+patience, attached)) // of a resync
	l.Pod(n, "newcomer", lab.PodOptions{Addrs: ips})
	_, err = w.WaitConfirmed(ips[0], patience)
	l.Do(err)
}
