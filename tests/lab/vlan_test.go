package lab

import (
	"net/netip"
	"testing"
	"time"
)

// What a pod in a VLAN sends has the tag, and what has none does not reach it.
func TestInVLAN(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	n := l.Node("")
	ip := n.IPv4(5)
	p := l.Pod(n, "pod", PodOptions{Addrs: []netip.Addr{ip}})
	if err := n.Ping(ip); err != nil {
		t.Fatal(err)
	}
	l.Do(p.InVLAN(42))
	tap := func(vlan uint16) *Tap {
		tap, err := n.Tap(p.HostInterface, func(packet Packet) bool { return packet.VLAN == vlan })
		l.Do(err)
		return tap
	}
	tagged, untagged := tap(42), tap(0)
	l.Do(p.Announce(ip), p.SendUDP(ip, n.IPv4(1), 1))
	for deadline := time.Now().Add(settleTimeout); tagged.Count() < 2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d tagged frames, want two or more", tagged.Count())
		}
	}
	if err := n.PingInVain(ip); err != nil {
		t.Errorf("without a tag: %v", err)
	}
	if untagged.Count() > 0 {
		t.Errorf("%d frames without a tag", untagged.Count())
	}
}
