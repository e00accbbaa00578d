package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dupip/dupip/tests/lab"
)

// In tc mode the qdisc of a pod's interface is made once CNI has its result: another pod with the address is found although the interface
// changes all the time. Without a result the agent waits until it has not changed for 3 s, 15 s at most.
func TestSettledByResult(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	k := newKube(l, map[string]any{"type": "bridge", "bridge": "cni9", "isGateway": true})
	l.Do(k.Start(t.Context()))
	a := l.Agent(k.Node, "--cri-socket", k.Socket, "--attach", "tc")
	w := l.Watch(a)
	first := k.run("first", 1)[0]
	namedBindings(l, a, first)
	var changes errgroup.Group
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	changes.Go(func() error { return changePorts(ctx, k.Node) })
	began := time.Now()
	second := k.run("second", 1)[0]
	made := time.Now()
	l.Do(k.Node.AddAddr("cni9", netip.PrefixFrom(second.IPs[0], 32)))
	e, err := w.WaitConfirmed(second.IPs[0], 10*time.Second)
	stop()
	l.Do(err, changes.Wait())
	t.Logf("made in %.1f s, confirmed %.1f s later", made.Sub(began).Seconds(), e.Received.Sub(made).Seconds())
}

// changePorts gives all ports of bridges another alias each second, until ctx ends.
func changePorts(ctx context.Context, n *lab.Node) error {
	nl := n.Netlink()
	for alias := 0; ; alias++ {
		all, err := nl.LinkList()
		if err != nil {
			return err
		}
		for _, link := range all {
			if link.Attrs().MasterIndex != 0 {
				_ = nl.LinkSetAlias(link, fmt.Sprint(alias)) // it may be gone
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}
