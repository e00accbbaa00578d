package scenarios

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// foundInCluster are duplicates whose holders are on several nodes.
var foundInCluster = []Scenario{
	{ID: "D3", Want: Found, Nodes: 2, NoARP: true, Text: "two nodes, routed /32, no ARP after the start", Play: func(s *Stage) {
		ip := s.Node.RoutedIPv4(3)
		o := lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}}
		older := s.PodOn(s.Actors[0], "older", o)
		s.Sees(older, ip)
		taps := []*lab.Tap{s.tapARPRequests(older)}
		// Datagrams that no ARP goes before.
		s.Do(older.Spoof(ip), older.Spoof(ip))
		newcomer := s.PodOn(s.Actors[1], "newcomer", o)
		taps = append(taps, s.tapARPRequests(newcomer))
		s.Do(newcomer.Spoof(ip))
		found := s.Finds(newcomer.Started, []*lab.Pod{older, newcomer}, ip)
		for _, tap := range taps {
			if n := tap.Count(); n > 0 {
				s.Errorf("a pod sent %d ARP requests after its start, want only answers", n)
			}
		}
		s.Do(newcomer.Delete())
		s.Resolves(found[0].Conflict.ID, patience)
	}},
	{ID: "D4", Want: Found, Nodes: 2, Text: "two nodes, one IPv6 address that passed DAD on both", Play: func(s *Stage) {
		for i, style := range bothStyles {
			ips := lab.IPs(fmt.Sprintf("fd00:4::4:%d", i), fmt.Sprintf("2001:db8:4::4:%d", i))
			o := lab.PodOptions{Style: style, Addrs: ips, DAD: true}
			older := s.PodOn(s.Actors[0], "older-"+styleName(style), o)
			for _, ip := range ips {
				s.Do(older.WaitDAD(patience, ip, false))
			}
			s.Sees(older, ips...)
			newcomer := s.PodOn(s.Actors[1], "newcomer-"+styleName(style), o)
			for _, ip := range ips {
				s.Do(newcomer.WaitDAD(patience, ip, false))
			}
			// Before, no pod on that node had the address.
			since := time.Now()
			s.Talk(newcomer, ips...)
			s.FindsEarly(newcomer.Started, since, []*lab.Pod{older, newcomer}, ips...)
		}
	}},
	{ID: "D7", Want: Found, Nodes: 3, Text: "three holders on three nodes", Play: func(s *Stage) {
		for i, style := range bothStyles {
			ips := s.Addrs(style, 7)
			var holders []*lab.Pod
			from := time.Now()
			for j, a := range s.Actors {
				p := s.PodOn(a, fmt.Sprintf("%s-%d", styleName(style), j), lab.PodOptions{Style: style, Addrs: ips})
				if i == 0 {
					// One after the other; the next style, all at once.
					s.Sees(p, ips...)
				}
				holders = append(holders, p)
			}
			found := s.FindsEarly(from, holders[1].Started, holders, ips...)
			// With one gone it is still a conflict, with two it is none.
			s.Do(holders[0].Delete())
			for _, e := range found {
				s.StaysOpen(e.Conflict.ID, holders[1:])
			}
			s.Do(holders[1].Delete())
			for _, e := range found {
				s.Resolves(e.Conflict.ID, patience)
			}
		}
	}},
	{ID: "D9", Want: Found, Nodes: 3, Text: "a pod has an address of another node, or of its tunnel", Play: addressOfOtherNode},
	{ID: "D10", Want: Found, Nodes: 2, Text: "a terminating pod still runs, its address is given out again", Play: func(s *Stage) {
		for i, style := range bothStyles {
			for j, a := range s.Actors {
				ips := s.Addrs(style, byte(100+10*i+j))
				name := fmt.Sprintf("%s-%d", styleName(style), j)
				older := s.Pod("terminating-"+name, lab.PodOptions{Style: style, Addrs: ips})
				s.Talk(older, ips...)
				s.Sees(older, ips...)
				// From here on it only answers; it still has its address.
				newcomer := s.PodOn(a, "newcomer-"+name, lab.PodOptions{Style: style, Addrs: ips})
				s.Talk(newcomer, ips...)
				found := s.Finds(newcomer.Started, []*lab.Pod{older, newcomer}, ips...)
				s.Do(older.Delete())
				for _, e := range found {
					s.Resolves(e.Conflict.ID, patience)
				}
			}
		}
	}},
	{ID: "D11", Want: Found, Nodes: 2, Text: "ten conflicts at once between two nodes", Play: func(s *Stage) {
		var olderPods []*lab.Pod
		for i := range 10 {
			ips := s.Addrs(lab.Routed, byte(110+i))
			p := s.Pod(fmt.Sprintf("older%d", i), lab.PodOptions{Style: lab.Routed, Addrs: ips})
			s.Sees(p, ips...)
			olderPods = append(olderPods, p)
		}
		var newcomers []*lab.Pod
		for i, older := range olderPods {
			newcomers = append(newcomers, s.PodOn(s.Actors[1], fmt.Sprintf("newcomer%d", i),
				lab.PodOptions{Style: lab.Routed, Addrs: older.Addrs()}))
		}
		for i, older := range olderPods {
			s.Finds(newcomers[i].Started, []*lab.Pod{older, newcomers[i]}, older.Addrs()...)
		}
	}},
}

func addressOfOtherNode(s *Stage) {
	other := s.Actors[1].Node
	tunnel := lab.IPs("10.244.102.0", "fd00:244:102::")
	s.Do(other.AddTunnel("flannel.1", netip.PrefixFrom(tunnel[0], 32), netip.PrefixFrom(tunnel[1], 128)))
	host := append(tunnel, other.Uplink(), other.Uplink6(), other.IPv4(1), other.IPv6(1))
	s.SeesHost(other, host...)
	born := s.Pod("born", lab.PodOptions{Addrs: append(s.Addrs(lab.Bridged, 9), host[:2]...)})
	s.FindsHost(born.Started, born, other, host[:2]...)
	// Without a route on its node, which would end the gossip between the two.
	taker := s.Pod("taker", lab.PodOptions{Style: lab.Routed, Addrs: s.Addrs(lab.Routed, 9)})
	s.Sees(taker, taker.Addrs()...)
	for _, ip := range host[2:] {
		t0 := time.Now()
		s.Do(taker.AddAddrOn("eth0", netip.PrefixFrom(ip, ip.BitLen())))
		s.FindsHost(t0, taker, other, ip)
	}
}

// tapARPRequests counts the ARP requests that a pod sends from now on, except gratuitous ones: a pod
// announces itself with one when it starts.
func (s *Stage) tapARPRequests(p *lab.Pod) *lab.Tap {
	s.Helper()
	tap, err := p.Node.Tap(p.HostInterface, func(packet lab.Packet) bool {
		frame := packet.Frame
		return len(frame) >= 42 && packet.EtherType() == unix.ETH_P_ARP &&
			binary.BigEndian.Uint16(frame[20:]) == lab.ARPRequest && !bytes.Equal(frame[28:32], frame[38:42])
	})
	s.Do(err)
	return tap
}

// StaysOpen waits until a conflict has exactly these holders left, at the nodes of all of them, and
// fails the scenario if it has ended.
func (s *Stage) StaysOpen(id string, holders []*lab.Pod) {
	s.Helper()
	for _, p := range holders {
		s.holdersBecome(s.agentOf(p.Node), id, holders)
	}
}

func (s *Stage) holdersBecome(a *Actor, id string, holders []*lab.Pod) {
	s.Helper()
	var want finding
	for _, p := range holders {
		want.add(p.Node, p.Name)
	}
	s.Eventually(fmt.Sprintf("conflict %s at %s", id, a.Node.ShortName()), func() error {
		open, err := a.Agent.Client.Conflicts(s.Context(), false)
		got := "no such conflict"
		for _, c := range open {
			if c.ID != id {
				continue
			}
			if text := fmt.Sprint(holdersOf(c)); text == fmt.Sprint(want.holders) && c.State == "confirmed" {
				return nil
			}
			got = fmt.Sprint(c.State, " ", holdersOf(c))
		}
		return errors.Join(fmt.Errorf("got %s, want it confirmed with %v", got, want.holders), err)
	})
}
