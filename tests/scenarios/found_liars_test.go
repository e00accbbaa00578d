package scenarios

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// foundLiars are pods that behave towards an agent's probes in another way than towards their neighbours.
var foundLiars = slices.Concat(
	onOneAndMore(2, Scenario{ID: "D39", Want: Found, Text: "a pod answers for a neighbour's address, and sends the agent's probes back", Play: func(s *Stage) {
		for i, o := range []lab.GuestOptions{
			{Reflects: lab.After}, {Reflects: lab.Before}, {Reflects: lab.Before, MAC: net.HardwareAddr{0x52, 0x54, 0, 1, 2, 3}},
		} {
			ips := s.Addrs(lab.Bridged, byte(180+i))
			older := s.Pod(fmt.Sprintf("older%d", i), lab.PodOptions{Addrs: ips})
			s.Sees(older, ips...)
			t0 := time.Now()
			liar := s.PodOn(s.last(), fmt.Sprintf("liar%d", i), lab.PodOptions{Style: lab.Raw})
			s.startGuests(liar, o, ips)
			s.Finds(t0, []*lab.Pod{older, liar}, ips...)
			s.Do(liar.Delete()) // two of them would send every broadcast to and fro
		}
	}}),
	onOneAndMore(2, Scenario{ID: "D40", Want: Found, Text: "a pod in a netns that only a socket holds takes a neighbour's address, and sends all frames back", Play: func(s *Stage) {
		ips, a := s.Addrs(lab.Bridged, 185), s.last()
		s.Expect(ips...)
		older, liar := s.Pod("older", lab.PodOptions{Addrs: ips}), s.PodOn(a, "liar", lab.PodOptions{Addrs: a.Addrs(lab.Bridged, 186)})
		s.Sees(older, ips...)
		s.Sees(liar, liar.Addrs()...)
		s.reflect(liar)
		s.Do(a.Agent.Stop(), liar.Conceal()) // of one whose netns has just ended the agent waits for the end
		s.Restart(a)
		s.Do(a.Agent.WaitReady(s.Context()))
		if a.Watch = s.T.Watch(a.Agent); len(s.Actors) > 1 {
			s.WaitAllMembers()
		}
		defer s.asks(s.neighbour(a), time.Second, ips)()
		t0 := time.Now()
		for _, ip := range ips {
			s.Do(liar.AddAddrOn("eth0", netip.PrefixFrom(ip, ip.BitLen())))
			for _, a := range s.Actors {
				confirmed, err := a.Watch.WaitConfirmed(ip, patience)
				s.Do(err)
				s.row.took(0, confirmed.Received.Sub(t0))
			}
		}
		s.row.found = true
	}}),
	onOneAndMore(2, Scenario{ID: "D41", Want: Found, Text: "a pod drops the agent's probes only, and a neighbour asks now and then", Play: func(s *Stage) {
		ips, a := s.Addrs(lab.Bridged, 188), s.last()
		older := s.Pod("older", lab.PodOptions{Addrs: ips})
		s.Sees(older, ips...)
		liar := s.PodOn(a, "liar", lab.PodOptions{Addrs: a.Addrs(lab.Bridged, 189)})
		s.Sees(liar, liar.Addrs()...)
		s.Do(liar.DropProbes())
		for _, ip := range ips {
			s.Do(liar.AddAddrOn("eth0", netip.PrefixFrom(ip, ip.BitLen())), liar.Announce(ip))
			s.Talk(liar, ip)
		}
		s.SeesSilent(liar, ips...)
		s.assertQuietFor(2 * minOverlap)
		s.findsDeaf(s.neighbour(a), []*lab.Pod{older, liar}, ips)
	}}),
	onOneAndMore(2, Scenario{ID: "D42", Want: Found, Text: "settings that decide whom a pod answers: arp_ignore 2, arp_filter, rp_filter", Play: func(s *Stage) {
		for i, settings := range [][]string{{"arp_ignore", "2"}, {"arp_filter", "1"}, {"rp_filter", "1"}} {
			ips := s.Addrs(lab.Bridged, byte(200+i))[:1]
			older, p := s.Pod(fmt.Sprintf("older%d", i), lab.PodOptions{Addrs: ips}), s.PodOn(s.last(), settings[0], lab.PodOptions{Addrs: s.last().Addrs(lab.Bridged, byte(204+i))})
			s.Sees(older, ips...)
			s.Sees(p, p.Addrs()...)
			s.Do(p.Sysctl("ipv4/conf/all/"+settings[0], settings[1]))
			t0 := time.Now()
			s.Do(p.AddAddr(ips[0]))
			s.Finds(t0, []*lab.Pod{older, p}, ips...)
		}
	}}),
	onOneAndMore(2, Scenario{ID: "D41", Want: Found, Text: "the same of a virtual machine", Play: func(s *Stage) {
		ips, a := s.Addrs(lab.Bridged, 191), s.last()
		older := s.Pod("older", lab.PodOptions{Addrs: ips})
		s.Sees(older, ips...)
		liar := s.PodOn(a, "liar", lab.PodOptions{Style: lab.Raw})
		for _, ip := range ips {
			_, err := liar.StartGuest(lab.GuestOptions{Addr: ip, Deaf: true})
			s.Do(err)
		}
		s.findsDeaf(s.neighbour(a), []*lab.Pod{older, liar}, ips)
	}}),
)

// quietSilent are pods that are lawfully silent, whoever asks.
var quietSilent = onOneAndMore(2, Scenario{ID: "Q51", Want: Quiet, MaySuspect: true, Text: "pods that have an address and answer nobody: NOARP, arp_ignore 8; on lo with arp_ignore 1", Play: func(s *Stage) {
	ips, a := s.Addrs(lab.Bridged, 192)[:1], s.last()
	older := s.Pod("older", lab.PodOptions{Addrs: ips})
	s.Sees(older, ips...)
	defer s.asks(s.neighbour(a), time.Second, ips)()
	var silent []*lab.Pod
	for i, silence := range []func(p *lab.Pod) error{
		func(p *lab.Pod) error {
			return errors.Join(p.NoARP(), p.AddAddrOn("eth0", netip.PrefixFrom(ips[0], 32)))
		},
		func(p *lab.Pod) error {
			return errors.Join(p.Sysctl("ipv4/conf/eth0/arp_ignore", "8"), p.AddAddrOn("eth0", netip.PrefixFrom(ips[0], 32)))
		},
		func(p *lab.Pod) error {
			return errors.Join(p.Sysctl("ipv4/conf/all/arp_ignore", "1"), p.AddAddrOn("lo", netip.PrefixFrom(ips[0], 32)))
		},
	} {
		p := s.PodOn(a, fmt.Sprintf("silent%d", i), lab.PodOptions{Addrs: a.Addrs(lab.Bridged, byte(194+i))})
		s.Sees(p, p.Addrs()...)
		s.Do(silence(p))
		silent = append(silent, p)
	}
	defer s.repeats(minOverlap/2, func() (err error) {
		for _, p := range silent {
			err = errors.Join(err, p.SendUDP(ips[0], lab.ExternalAddr(ips[0]), 1))
		}
		return err
	})()
	s.assertQuietFor(6 * minOverlap)
	s.SeesSilent(silent[0], ips...)
}})

// neighbour is a bridged pod on an actor's node.
func (s *Stage) neighbour(a *Actor) *lab.Pod {
	s.Helper()
	p := s.PodOn(a, "neighbour", lab.PodOptions{Addrs: a.Addrs(lab.Bridged, 190)})
	s.Sees(p, p.Addrs()...)
	return p
}

// asks has a pod ask for addresses every few seconds, until stop is called.
func (s *Stage) asks(neighbour *lab.Pod, every time.Duration, ips []netip.Addr) (stop func()) {
	s.Helper()
	return s.repeats(every, func() (err error) {
		for _, ip := range ips {
			err = errors.Join(err, neighbour.Solicit(ip))
		}
		return err
	})
}

// findsDeaf finds holders of which one answers others only: a neighbour asks every three seconds.
func (s *Stage) findsDeaf(neighbour *lab.Pod, holders []*lab.Pod, ips []netip.Addr) {
	s.Helper()
	t0 := time.Now()
	defer s.asks(neighbour, 3*time.Second, ips)()
	s.StaysOpen(s.Finds(t0, holders, ips...)[0].Conflict.ID, holders)
}
