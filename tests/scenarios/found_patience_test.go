package scenarios

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// foundWithPatience are holders that were not believed, did not answer for a while, or whose
// packets were lost, and duplicates in any number of an address and of addresses.
var foundWithPatience = slices.Concat(
	onOneAndMore(2, Scenario{ID: "D23", Want: Found, Text: "a virtual machine forwards an address, and later takes it", Play: forwarderTakes}),
	onOneAndMore(2, Scenario{ID: "D24", Want: Found, Text: "a virtual machine pauses for 4 s, before a conflict and in it; from when it goes on", Play: machinePauses}),
	onOneAndMore(2, Scenario{ID: "D30", Want: Found, Text: "a virtual machine's address leaves and returns", Play: machineReturns}),
	onOneAndMore(2, Scenario{ID: "D31", Want: Found, Text: "each of a hundred addresses of two silent pods", Play: manySilent}),
	[]Scenario{
		{ID: "D25", Want: Found, Nodes: 3, Text: "a third holder joins while 5% of all packets between the nodes are lost", Play: joinsUnderLoss},
		{ID: "D26", Want: Found, Nodes: 3, Text: "all nodes gave out one range: ten addresses, three holders each", Play: oneRange},
	},
)

func forwarderTakes(s *Stage) {
	at := s.last()
	for i, style := range bothStyles {
		ips := s.Addrs(style, byte(230+i))
		older := s.Pod("older-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips})
		s.Sees(older, ips...)
		vm := s.PodOn(at, "vm-"+styleName(style), lab.PodOptions{Style: lab.Raw})
		own := at.Addrs(lab.Bridged, byte(232+i))
		s.startGuests(vm, lab.GuestOptions{}, own)
		s.Sees(vm, own...)
		s.Do(vm.Spoof(ips...))
		s.SeesForwarded(vm, ips...)
		t0 := time.Now()
		for _, ip := range ips {
			guest, err := vm.StartGuest(lab.GuestOptions{Addr: ip})
			s.Do(err)
			s.Do(guest.Announce())
		}
		s.Finds(t0, []*lab.Pod{older, vm}, ips...)
	}
}

// machine makes a virtual machine that announces these addresses and sends from them all the time.
func (s *Stage) machine(name string, ips []netip.Addr) (vm *lab.Pod, guests []*lab.Guest) {
	s.Helper()
	vm = s.PodOn(s.last(), name, lab.PodOptions{Style: lab.Raw})
	guests = s.guests(vm, ips)
	for i, g := range guests { // so that the kernel knows it by both kinds of packets
		s.Do(g.Announce(), g.Send(lab.ExternalAddr(ips[i])))
	}
	s.Sees(vm, ips...)
	return vm, guests
}

func (s *Stage) guests(vm *lab.Pod, ips []netip.Addr) (guests []*lab.Guest) {
	s.Helper()
	for _, ip := range ips {
		g, err := vm.StartGuest(lab.GuestOptions{Addr: ip, Interval: 100 * time.Millisecond})
		s.Do(err)
		guests = append(guests, g)
	}
	return guests
}

func machinePauses(s *Stage) {
	const pause = 4 * time.Second
	ips := s.Addrs(lab.Bridged, 240)
	vm, guests := s.machine("vm", ips)
	pausing := func(yes bool) {
		for _, g := range guests {
			g.Pause(yes)
		}
	}
	// It pauses when the other one comes. The agent drops it, because it does not answer.
	pausing(true)
	goesOn := time.Now().Add(pause)
	pod := s.Pod("pod", lab.PodOptions{Addrs: ips})
	s.Sees(pod, ips...)
	time.Sleep(time.Until(goesOn)) // this is what is played
	since := time.Now()
	pausing(false)
	holders := []*lab.Pod{pod, vm}
	s.Finds(since, holders, ips...)
	// It pauses during the conflict, again and again: the conflict stays open.
	for range 3 {
		pausing(true)
		time.Sleep(pause)
		pausing(false)
		time.Sleep(pause / 2)
	}
	s.hasHolders(holders, ips, patience)
	for _, a := range s.Actors {
		for _, e := range a.Watch.Events() {
			if e.Type == "resolved" {
				s.Errorf("ended by a pause: %s", lab.FormatEvents([]lab.Event{e}))
			}
		}
	}
}

// machineReturns plays a machine that gives its addresses up without a word. A pod takes them, and the
// machine comes back, sooner than the kernel would report a known address again.
func machineReturns(s *Stage) {
	ips := s.Addrs(lab.Bridged, 243)
	vm, guests := s.machine("vm", ips)
	for _, g := range guests {
		s.Do(g.Stop())
	}
	pod := s.Pod("pod", lab.PodOptions{Addrs: ips})
	for _, ip := range ips {
		for _, p := range []*lab.Pod{pod, vm} {
			_, err := s.agentOf(p.Node).Watch.WaitType("faded", ip, patience)
			s.Do(err)
		}
	}
	time.Sleep(2 * time.Second) // this is what is played: it is suppressed for one, because it did not answer
	since := time.Now()
	s.guests(vm, ips)
	s.Finds(since, []*lab.Pod{pod, vm}, ips...)
}

func manySilent(s *Stage) {
	var ips []netip.Addr
	for n := range 50 {
		ips = append(ips, s.Addrs(lab.Bridged, byte(100+n))...)
	}
	older := s.Pod("older", lab.PodOptions{Addrs: ips, Silent: true})
	s.Sees(older, ips...)
	newcomer := s.PodOn(s.last(), "newcomer", lab.PodOptions{Addrs: ips, Silent: true})
	s.Finds(newcomer.Started, []*lab.Pod{older, newcomer}, ips...)
}

func joinsUnderLoss(s *Stage) {
	s.InjectFaults(lab.Fault{Percent: 5})
	for i, style := range bothStyles {
		ips := s.Addrs(style, byte(245+i))
		var holders []*lab.Pod
		for j, a := range s.Actors {
			p := s.PodOn(a, fmt.Sprintf("holder-%s-%d", styleName(style), j), lab.PodOptions{Style: style, Addrs: ips})
			holders = append(holders, p)
			if j == 0 {
				s.Sees(p, ips...)
			} else {
				// The third one joins a conflict that is confirmed.
				s.hasHolders(holders, ips, patience)
			}
		}
	}
	s.row.found = true
}

// hasHolders waits until each address has a confirmed conflict of just these holders, with
// one id, at the nodes of all of them.
func (s *Stage) hasHolders(holders []*lab.Pod, ips []netip.Addr, patience time.Duration) {
	s.Helper()
	s.Expect(ips...)
	for _, ip := range ips {
		e, err := s.agentOf(holders[0].Node).Watch.WaitConfirmed(ip, patience)
		s.Do(err)
		s.StaysOpen(e.Conflict.ID, holders)
	}
}

func oneRange(s *Stage) {
	holders := map[int][]*lab.Pod{}
	const addresses = 5 // of each family
	for j, a := range s.Actors {
		for i := range addresses {
			p := s.PodOn(a, fmt.Sprintf("pod%d-%d", i, j), lab.PodOptions{Style: lab.Routed, Addrs: s.Addrs(lab.Routed, byte(60+i))})
			holders[i] = append(holders[i], p)
		}
	}
	for i := range addresses {
		s.hasHolders(holders[i], s.Addrs(lab.Routed, byte(60+i)), patience)
	}
	s.row.found = true
}
