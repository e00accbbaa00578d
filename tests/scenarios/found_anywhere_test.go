package scenarios

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// foundAnywhere are duplicates that are played on one node and on two: the older pod is on the first
// one, the newcomer on the last one.
var foundAnywhere = slices.Concat(
	onOneAndMore(2, Scenario{ID: "D5", Want: Found, Text: "the older pod is silent, the newcomer sends", Play: silentHolder}),
	onOneAndMore(2, Scenario{ID: "D6", Want: Found, Text: "both silent: never a packet of their own", Play: bothSilent}),
	onOneAndMore(2, Scenario{ID: "D8", Want: Found, Text: "one MAC: made from the address, or of a cloned VM", Play: sameMAC}),
	onOneAndMore(2, Scenario{ID: "D15", Want: Found, Text: "ip addr add inside a running pod", Play: addressAdded}),
	onOneAndMore(2, Scenario{ID: "D16", Want: Found, Text: "it ends when one pod dies, and comes back", Play: endsAndReturns}),
)

func silentHolder(s *Stage) {
	for _, style := range bothStyles {
		ips := s.Addrs(style, 5)
		older := s.Pod("older-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips, Silent: true})
		// The newcomer comes up silently; its first packet is a datagram.
		newcomer := s.PodOn(s.last(), "newcomer-"+styleName(style), lab.PodOptions{Style: style, Silent: true})
		for _, ip := range ips {
			s.Sees(older, ip)
			from := time.Now()
			s.Do(newcomer.AddAddr(ip))
			t0 := time.Now()
			s.Do(newcomer.Spoof(ip))
			s.FindsEarly(from, t0, []*lab.Pod{older, newcomer}, ip)
		}
	}
}

func bothSilent(s *Stage) {
	for _, style := range bothStyles {
		ips := s.Addrs(style, 6)
		older := s.Pod("older-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips, Silent: true})
		from := time.Now()
		newcomer := s.PodOn(s.last(), "newcomer-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips, Silent: true})
		s.FindsEarly(from, newcomer.Started, []*lab.Pod{older, newcomer}, ips...)
	}
}

func sameMAC(s *Stage) {
	check := func(found []lab.Event, mac net.HardwareAddr) {
		s.Helper()
		for _, e := range found {
			for _, h := range e.Conflict.Holders {
				if h.MAC != mac.String() {
					s.Errorf("mac of %s: got %s, want %s", h.Netns, h.MAC, mac)
				}
			}
		}
	}
	for _, style := range bothStyles {
		ips := s.Addrs(style, 8)
		// As some CNI plugins make it.
		mac := net.HardwareAddr(append([]byte{0x0a, 0x58}, ips[0].AsSlice()...))
		o := lab.PodOptions{Style: style, Addrs: ips, MAC: mac}
		older := s.Pod("older-"+styleName(style), o)
		s.Sees(older, ips...)
		newcomer := s.PodOn(s.last(), "newcomer-"+styleName(style), o)
		check(s.Finds(newcomer.Started, []*lab.Pod{older, newcomer}, ips...), mac)
	}
	// The address and the MAC are inside the image of a virtual machine.
	ips, mac := s.Addrs(lab.Bridged, 88), net.HardwareAddr{0x52, 0x54, 0, 0x5a, 0x5a, 0x5a}
	vm := func(a *Actor, name string) *lab.Pod {
		p := s.PodOn(a, name, lab.PodOptions{Style: lab.Raw})
		s.startGuests(p, lab.GuestOptions{MAC: mac}, ips)
		return p
	}
	original := vm(s.Actors[0], "original")
	s.Sees(original, ips...)
	t0 := time.Now()
	clone := vm(s.last(), "clone")
	check(s.Finds(t0, []*lab.Pod{original, clone}, ips...), mac)
}

// startGuests starts a guest for each address on a pod's interface. They keep sending: the agent
// cannot list the addresses of guests, and the first packets are sent before it has attached.
func (s *Stage) startGuests(p *lab.Pod, o lab.GuestOptions, ips []netip.Addr) {
	s.Helper()
	o.Interval = 100 * time.Millisecond
	for _, ip := range ips {
		o.Addr = ip
		_, err := p.StartGuest(o)
		s.Do(err)
	}
}

func addressAdded(s *Stage) {
	for _, style := range bothStyles {
		ips := s.Addrs(style, 15)
		older := s.Pod("older-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips})
		taker := s.PodOn(s.last(), "taker-"+styleName(style), lab.PodOptions{Style: style, Addrs: s.Addrs(style, 16)})
		s.Sees(older, ips...)
		s.Sees(taker, taker.Addrs()...)
		for _, ip := range ips {
			t0 := time.Now()
			s.Do(taker.AddAddr(ip))
			s.Finds(t0, []*lab.Pod{older, taker}, ip)
		}
	}
}

func endsAndReturns(s *Stage) {
	// Both styles at once, because of the waiting.
	olderPods, newcomers := map[lab.Style]*lab.Pod{}, map[lab.Style]*lab.Pod{}
	pod := func(a *Actor, name string, style lab.Style) *lab.Pod {
		return s.PodOn(a, name+"-"+styleName(style), lab.PodOptions{Style: style, Addrs: s.Addrs(style, 16)})
	}
	for _, style := range bothStyles {
		olderPods[style] = pod(s.Actors[0], "older", style)
		s.Sees(olderPods[style], s.Addrs(style, 16)...)
	}
	seen := map[string]bool{}
	ends := []struct {
		who string
		end func(style lab.Style) []error
	}{
		{"newcomer", func(style lab.Style) []error { return []error{newcomers[style].Delete()} }},
		// The kernel takes the devices away later.
		{"again", func(style lab.Style) []error { return []error{newcomers[style].DeleteNetns()} }},
		// Its address goes and the pod stays.
		{"third", func(style lab.Style) (errs []error) {
			for _, ip := range s.Addrs(style, 16) {
				errs = append(errs, newcomers[style].DelAddr(ip))
			}
			return errs
		}},
		// This time the older pod ends.
		{"last", func(style lab.Style) []error { return []error{olderPods[style].Delete()} }},
	}
	for _, round := range ends {
		var found []lab.Event
		for _, style := range bothStyles {
			p := pod(s.last(), round.who, style)
			newcomers[style] = p
			found = append(found, s.Finds(p.Started, []*lab.Pod{olderPods[style], p}, p.Addrs()...)...)
		}
		for _, style := range bothStyles {
			s.Do(round.end(style)...)
		}
		for _, e := range found {
			s.Resolves(e.Conflict.ID, patience)
			if seen[e.Conflict.ID] {
				s.Errorf("conflict %s is another one than before and has its id", e.Conflict.ID)
			}
			seen[e.Conflict.ID] = true
		}
	}
	for _, a := range s.Actors {
		open, err := a.Agent.Client.Conflicts(s.Context(), false)
		s.Do(err)
		all, err := a.Agent.Client.Conflicts(s.Context(), true)
		s.Do(err)
		if want := 4 * len(ends); len(open) > 0 || len(all) != want || len(seen) != want {
			s.Errorf("%s: got %d open conflicts, %d in the history and %d ids, want 0 and %d",
				a.Node.ShortName(), len(open), len(all), len(seen), want)
		}
	}
}
