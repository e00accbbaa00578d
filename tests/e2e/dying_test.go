package e2e

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// The kernel takes its time to take a dead pod's netns down, and until then the pod's
// interface answers. The next pod with that address is no duplicate.
func TestDyingNetnsIsNoHolder(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	w := l.Watch(a)
	ip := n.IPv4(44)
	former := l.Pod(n, "former", lab.PodOptions{Addrs: []netip.Addr{ip}})
	_, err := a.Client.WaitBinding(within(l, patience), ip, func(b lab.Binding) bool { return b.Netns == former.Name })
	l.Do(err)
	// An open file keeps the netns as a queue of others before it would.
	held, err := os.Open("/run/netns/" + former.Name)
	l.Do(err)
	defer held.Close()
	l.Do(former.DeleteNetns())
	next := l.Pod(n, "next", lab.PodOptions{Addrs: []netip.Addr{ip}})
	if err := w.NeverConfirmed(6 * time.Second); err != nil {
		t.Error(err)
	}
	if _, err := interfaceOf(l, a, former.HostInterface); err != nil {
		t.Errorf("the former pod's interface is gone already: %v", err)
	}
	l.Do(held.Close())
	eventually(l, "the next pod is the only holder", func() error {
		bindings, err := a.Client.Bindings(l.Context(), ip)
		if err == nil && (len(bindings) != 1 || bindings[0].Netns != next.Name) {
			err = errors.New("it is not")
		}
		return err
	})
	open, err := a.Client.Conflicts(l.Context(), false)
	l.Do(err)
	if len(open) != 0 {
		t.Errorf("conflicts: %+v", open)
	}
}
