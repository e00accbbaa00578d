package core

import (
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/core/coretest"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// TestHostProbesShareLists: a pod that has hundreds of the node's own addresses makes the agent list these once for all that wait, and pause nine times as long,
// and each of the conflicts is confirmed as soon as any.
func TestHostProbesShareLists(t *testing.T) {
	const addresses, took, lasts = 250, 7 * time.Millisecond, 1500 * time.Millisecond
	l := newHarness(t, "")
	var own []links.HostAddress
	for n := range addresses {
		own = append(own, links.HostAddress{IP: netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), Device: "eth1", Index: 9})
	}
	lists := 0
	l.HostAddresses = func() ([]links.HostAddress, error) {
		lists++
		l.now = l.now.Add(took)
		return own, nil
	}
	l.Update(links.Event{Kind: links.HostAddresses, Host: own})
	pod := l.add(t, 2, 42)
	for _, a := range own {
		pod.View.Addresses = append(pod.View.Addresses, netns.Address{IP: a.IP, Where: netns.OnPeer, Valid: true})
	}
	for end := l.now.Add(lasts); l.now.Before(end); l.now = l.now.Add(10 * time.Millisecond) {
		for _, a := range own { // the pod answers each probe
			l.Record(coretest.Seen(pod, bpf.Answer, a.IP.String(), l.now))
		}
		l.Tick()
		l.Turn()
	}
	if n := l.Detector.Counts().Confirmed[detector.PodHost]; n != addresses {
		t.Errorf("%d of %d conflicts are confirmed after %s", n, addresses, lasts)
	}
	if most := int(lasts/(10*took)) + 1; lists < 2 || lists > most {
		t.Errorf("the addresses were listed %d times in %s, want 2 to %d times", lists, lasts, most)
	}
	if len(l.host.waiting) > 0 && l.Next().After(l.host.next) {
		t.Error("nothing is due while probes wait for a list")
	}
}
