package agent

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// TestHostProbesShareLists: a pod that has hundreds of the node's own addresses makes the agent list these once for all that wait, and pause nine times as long,
// and each of the conflicts is confirmed as soon as any.
func TestHostProbesShareLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const addresses, took = 250, 7 * time.Millisecond
		l, _ := newLoop(t, "")
		var own []links.HostAddress
		for n := range addresses {
			own = append(own, links.HostAddress{IP: netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), Device: "eth1", Index: 9})
		}
		lists := 0
		l.host.list = func() ([]links.HostAddress, error) {
			lists++
			time.Sleep(took)
			return own, nil
		}
		l.update(links.Event{Kind: links.HostAddresses, Host: own}, time.Now())
		pod, began := l.add(t, 2, 42), time.Now()
		for _, a := range own {
			pod.View.Addresses = append(pod.View.Addresses, netns.Address{IP: a.IP, Where: netns.OnPeer, Valid: true})
		}
		for time.Since(began) < 1500*time.Millisecond {
			time.Sleep(10 * time.Millisecond)
			for _, a := range own { // the pod answers each probe
				l.record(seen(pod, bpf.Answer, a.IP.String()))
			}
			l.tick(time.Now())
			l.turn()
		}
		if n := l.detector.Counts().Confirmed[detector.PodHost]; n != addresses {
			t.Errorf("%d of %d conflicts are confirmed after %s", n, addresses, time.Since(began))
		}
		if most := int(time.Since(began) / (10 * took)); lists < 2 || lists > most {
			t.Errorf("the addresses were listed %d times in %s, want 2 to %d times", lists, time.Since(began), most)
		}
		if len(l.host.waiting) > 0 && l.next().After(l.host.next) {
			t.Error("the loop sleeps while probes wait for a list")
		}
	})
}
