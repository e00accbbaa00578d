package scenarios

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/dupip/dupip/tests/lab"
)

// quietHostile are hostile pods. The addresses that they make up are no duplicates, and keep no real
// one from being found.
var quietHostile = onOneAndMore(2, Scenario{
	ID: "Q6", Want: Quiet, Text: "10,000 spoofed sources a second; a real duplicate elsewhere",
	Play: func(s *Stage) {
		neighbour := s.Pod("neighbour", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 61)})
		attacker := s.Pod("attacker", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 60)})
		s.Sees(neighbour, neighbour.Addrs()...)
		s.Sees(attacker, attacker.Addrs()...)
		// Pods of other nodes are claimed as well.
		claimed := neighbour.Addrs()
		if far := s.last(); far != s.Actors[0] {
			p := s.PodOn(far, "far", lab.PodOptions{Addrs: far.Addrs(lab.Bridged, 61)})
			s.Sees(p, p.Addrs()...)
			claimed = append(claimed, p.Addrs()...)
		}
		stop := s.attack(attacker, claimed)
		s.namesAttacker(attacker)

		for i, style := range bothStyles {
			ips := s.Addrs(style, byte(62+i))
			s.Expect(ips...)
			older := s.Pod("older-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips, Silent: true})
			newcomer := s.PodOn(s.last(), "newcomer-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips, Silent: i == 0})
			var want finding
			want.add(older.Node, older.Name)
			want.add(newcomer.Node, newcomer.Name)
			for _, a := range s.Actors {
				for _, ip := range ips {
					confirmed, err := a.Watch.WaitConfirmed(ip, patience)
					s.Do(err)
					suspected, err := a.Watch.WaitType("suspected", ip, 0)
					s.Do(err)
					s.row.took(suspected.Received.Sub(newcomer.Started), confirmed.Received.Sub(newcomer.Started))
					if got := holdersOf(confirmed.Conflict); !slices.Equal(got, want.holders) {
						s.Errorf("holders of %v at %s: %q, want %q", ip, a.Node.ShortName(), got, want.holders)
					}
				}
			}
		}
		// The table is bounded, and so is what a person waits for.
		for _, a := range s.Actors {
			bindings, err := a.Agent.Client.Bindings(s.Context(), netip.Addr{})
			s.Do(err)
			if len(bindings) > 500 {
				s.Errorf("%d bindings in the table of %s", len(bindings), a.Node.ShortName())
			}
		}
		sent := stop()
		s.Logf("the attacker sent %d frames", sent)
	},
})

// attack makes a pod send, each second, 10,000 datagrams from sources that it makes up
// and 2,000 announcements of others' addresses from as many MACs.
func (s *Stage) attack(p *lab.Pod, others []netip.Addr) (stop func() (sent int)) {
	s.Helper()
	own, err := p.MAC(p.Interface)
	s.Do(err)
	bridge, err := s.Node.MAC(lab.Bridge)
	s.Do(err)
	sink4, sink6 := netip.MustParseAddrPort("192.0.2.9:9"), netip.MustParseAddrPort("[2001:db8::9]:9")
	random := rand.New(rand.NewPCG(6, 6))
	frame := func(n int) []byte {
		if n%6 == 5 {
			mac := binary.BigEndian.AppendUint64(nil, random.Uint64())[:6]
			mac[0] = mac[0]&^1 | 2
			f, err := lab.Announcement(others[n/6%len(others)], net.HardwareAddr(mac), 0)
			if err != nil {
				panic(err)
			}
			return f
		}
		if n%2 == 0 {
			src := netip.AddrFrom4([4]byte{10, byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32())})
			return lab.Ethernet(bridge, own, 0, 0x0800, lab.UDP(netip.AddrPortFrom(src, 9), sink4, nil))
		}
		var b [16]byte
		b[0] = 0xfd
		binary.BigEndian.PutUint64(b[8:], random.Uint64())
		return lab.Ethernet(bridge, own, 0, 0x86dd, lab.UDP(netip.AddrPortFrom(netip.AddrFrom16(b), 9), sink6, nil))
	}
	ctx, cancel := context.WithCancel(s.Context())
	var done sync.WaitGroup
	var sent int
	var failed error
	done.Go(func() { sent, failed = p.Flood(ctx, 12_000, frame) })
	end := sync.OnceFunc(func() { cancel(); done.Wait() })
	s.Cleanup(end)
	return func() int {
		s.Helper()
		end()
		s.Do(failed)
		return sent
	}
}

// namesAttacker waits until metric and log name the pod behind the flood.
func (s *Stage) namesAttacker(p *lab.Pod) {
	s.Helper()
	label := fmt.Sprintf("interface=%q", p.HostInterface)
	s.Eventually("the attacker is named", func() error {
		m, err := s.Agent().Scrape(s.Context())
		measured := len(m.Find("dupip_interface_refused_packets_total", label, fmt.Sprintf("netns=%q", p.Name))) > 0
		logged := false
		for line := range strings.Lines(s.Agent().Log()) {
			logged = logged || strings.Contains(line, "level=WARN") && strings.Contains(line, "from more addresses") && strings.Contains(line, p.Name)
		}
		if !measured || !logged {
			return errors.Join(fmt.Errorf("metric: %t, log line: %t", measured, logged), err)
		}
		return nil
	})
}
