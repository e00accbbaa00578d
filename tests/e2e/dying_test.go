package e2e

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// The kernel removes a deleted pod's netns only later, and until then the pod's interface answers.
// The next pod with that address is no duplicate.
func TestDyingNetnsIsNoHolder(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	w := l.Watch(a)
	ip := n.IPv4(44)
	asker := l.Pod(n, "asker", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(45)}})
	previous := l.Pod(n, "previous", lab.PodOptions{Addrs: []netip.Addr{ip}})
	_, err := a.Client.WaitBinding(within(l, patience), ip, func(b lab.Binding) bool { return b.Netns == previous.Name })
	l.Do(err)
	// An open socket keeps the netns, as the kernel's queue of other work would, and its kernel still
	// answers.
	conn, err := previous.DialUDP(ip, netip.AddrPortFrom(n.IPv4(1), 9))
	l.Do(err)
	defer conn.Close()
	ctx, stop := context.WithCancel(t.Context())
	var talk sync.WaitGroup
	talk.Go(func() {
		for ctx.Err() == nil {
			if err := asker.Solicit(ip); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	defer talk.Wait()
	defer stop()
	l.Do(previous.DeleteNetns())
	next := l.Pod(n, "next", lab.PodOptions{Addrs: []netip.Addr{ip}})
	if err := w.NeverConfirmed(6 * time.Second); err != nil {
		t.Error(err)
	}
	if _, err := interfaceOf(l, a, previous.HostInterface); err != nil {
		t.Errorf("the previous pod's interface is gone already: %v", err)
	}
	stop()
	talk.Wait()
	l.Do(conn.Close())
	l.Eventually("the next pod is the only holder", func() error {
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
