package wire

import (
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
)

func TestStrangers(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key := detector.Key{Network: "default", IP: vip}
	mac := detector.MAC{2, 1}
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	var s Strangers
	hear := func(seconds int) {
		s.Count(key.IP, mac)
		s.Hear(key, mac, at(seconds))
	}
	if len(s.List(start)) != 0 || len(s.Keys(start)) != 0 {
		t.Error("somebody was heard before anybody was")
	}
	hear(0)
	hear(9)
	if len(s.List(at(9))) != 0 || len(s.Keys(at(9))) != 1 {
		t.Errorf("heard for 9 s: %v, %v", s.List(at(9)), s.Keys(at(9)))
	}
	hear(10)
	if l := s.List(at(10)); len(l) != 1 || l[0].MAC != mac || !l[0].First.Equal(start) {
		t.Errorf("heard for 10 s: %v", l)
	}
	if l := s.List(at(10 + 300)); len(l) != 0 || len(s.Keys(at(310))) != 0 {
		t.Errorf("five minutes later: %v", l)
	}
	hear(400) // once again
	if l := s.List(at(401)); len(l) != 0 {
		t.Errorf("once, long after: %v", l)
	}
	hear(420)
	for n := range byte(manyAddresses) {
		if l := s.List(at(421)); len(l) != 1 {
			t.Errorf("with %d addresses: %v", n+1, l)
		}
		if s.Count(netip.AddrFrom4([4]byte{10, 0, 1, n}), mac); n == manyAddresses-2 {
			break
		}
	}
	if l := s.List(at(421)); len(l) != 0 {
		t.Errorf("one that answers for many: %v", l)
	}
}

// What is remembered has bounds, and makes room for what comes later.
func TestManyStrangers(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var s Strangers
	mac := func(n int) detector.MAC { return detector.MAC{2, 0, 0, byte(n >> 16), byte(n >> 8), byte(n)} }
	for n := range 3 * maxMACs {
		s.Count(vip, mac(n))
		s.Hear(detector.Key{Network: "default", IP: vip}, mac(n), now)
	}
	if len(s.heard) != maxStrangers || len(s.addresses) > maxMACs {
		t.Errorf("%d strangers, %d MACs", len(s.heard), len(s.addresses))
	}
	now = now.Add(strangerFor)
	if s.Hear(detector.Key{Network: "default", IP: vip}, mac(1<<20), now); len(s.heard) != 1 {
		t.Errorf("%d strangers", len(s.heard))
	}
}
