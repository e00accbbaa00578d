package wire

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A stranger that answers counts; one that was there for a while, such as the last master of a virtual address, does not for long.
func TestLook(t *testing.T) {
	mac := detector.MAC{2, 1}
	for name, test := range map[string]struct {
		heard, want []int // seconds, of looks each 10 s
		pod         bool  // it is not asked for
		others      int   // addresses that the MAC is heard for, too
		held        []int // when the address came here, in seconds; from the beginning if there are none
	}{
		"once":                                  {heard: []int{1}},
		"a short overlap":                       {heard: []int{1, 4}},
		"two overlaps":                          {heard: []int{1, 4, 61, 64}},
		"two fail-overs":                        {heard: []int{1, 12}, held: []int{0, 8}, pod: true},
		"it answers":                            {heard: []int{1, 10, 20, 30, 40, 50, 60}, want: []int{30, 40, 50, 60, 70, 80}},
		"one answer is lost":                    {heard: []int{1, 10, 30, 40}, want: []int{40, 50, 60}},
		"that of a pod, which is not asked for": {heard: []int{1, 15}, pod: true, want: []int{20, 30, 40, 50, 60, 70, 80, 90}},
		"one with two more addresses":           {heard: []int{1, 15}, pod: true, others: 2, want: []int{20, 30, 40, 50, 60, 70, 80, 90}},
		"one that passes packets on":            {heard: []int{1, 15}, pod: true, others: 3},
	} {
		t.Run(name, func(t *testing.T) {
			var s Strangers
			var listed []int
			held := noon
			for second := 1; second <= 90; second++ {
				now := noon.Add(time.Duration(second) * time.Second)
				if slices.Contains(test.heard, second-1) {
					s.Count(vip, mac, now)
					s.Hear(vip, mac, now.Add(-time.Second))
				}
				for n := range test.others {
					s.Count(netip.AddrFrom4([4]byte{10, 0, 1, byte(n)}), mac, now)
				}
				if slices.Contains(test.held, second) {
					held = now
				}
				if second%10 != 0 {
					continue
				}
				list := s.Look(now, func(netip.Addr) (time.Time, bool) { return held, true }, func(netip.Addr) bool { return !test.pod })
				if len(list) > 0 {
					listed = append(listed, second)
				}
			}
			if !slices.Equal(listed, test.want) {
				t.Errorf("listed at %v, want %v", listed, test.want)
			}
		})
	}
}

// A stranger that nobody may ask counts for a while after it was heard last.
func TestStrangerIsForgotten(t *testing.T) {
	var s Strangers
	for _, second := range []time.Duration{0, 15} {
		s.Count(vip, detector.MAC{2, 1}, noon.Add(second*time.Second))
		s.Hear(vip, detector.MAC{2, 1}, noon.Add(second*time.Second))
	}
	for _, look := range []struct {
		after time.Duration
		want  int
	}{{strangerFor + 14*time.Second, 1}, {strangerFor + 15*time.Second, 0}} {
		list := s.Look(noon.Add(look.after), func(netip.Addr) (time.Time, bool) { return noon, true }, func(netip.Addr) bool { return false })
		if len(list) != look.want {
			t.Errorf("%v after it was heard first: %d, want %d", look.after, len(list), look.want)
		}
	}
}

// What is remembered has bounds, also for one address; who was heard twice stays, and one address is asked for once a look.
func TestManyStrangers(t *testing.T) {
	var s Strangers
	mac := func(n int) detector.MAC { return detector.MAC{2, 0, 0, byte(n >> 16), byte(n >> 8), byte(n)} }
	hear := func(ip netip.Addr, n int, at time.Time) {
		s.Count(ip, mac(n), at)
		s.Hear(ip, mac(n), at)
	}
	hear(vip, 1, noon)
	hear(vip, 1, noon.Add(strangerAfter))
	now := noon.Add(strangerAfter)
	for n := range 3 * maxMACs {
		hear(vip, n+2, now)
	}
	if len(s.heard) != maxOfOne || len(s.addresses) > maxMACs {
		t.Errorf("%d strangers, %d MACs", len(s.heard), len(s.addresses))
	}
	for n := range 3 * maxStrangers {
		hear(netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), 1<<20+n, now)
	}
	if len(s.heard) != maxStrangers {
		t.Errorf("%d strangers", len(s.heard))
	}
	asked := make(map[netip.Addr]int)
	list := s.Look(now, func(netip.Addr) (time.Time, bool) { return noon, true }, func(ip netip.Addr) bool { asked[ip]++; return true })
	if len(list) != 1 || list[0].MAC != mac(1) || len(asked) != asksPerLook {
		t.Errorf("%v, %d asked", list, len(asked))
	}
	for ip, n := range asked {
		if n != 1 {
			t.Errorf("%s is asked for %d times", ip, n)
		}
	}
	if list = s.Look(now, func(netip.Addr) (time.Time, bool) { return noon, false }, nil); len(list) != 0 || len(s.heard) != 0 {
		t.Errorf("nobody has the addresses: %v, %d", list, len(s.heard))
	}
	now = now.Add(strangerFor)
	if hear(vip, 1, now); s.passes(mac(1), now) || len(s.heard) != 1 {
		t.Errorf("%d strangers", len(s.heard))
	}
}
