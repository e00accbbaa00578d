package e2e

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/tests/lab"
)

// attackRate is how many frames a hostile pod sends a second.
const attackRate = 10_000

// neighbourhood is where a hostile pod meets its neighbours: all on one bridge.
type neighbourhood struct {
	node     *lab.Node
	attacker *lab.Pod
	mac      net.HardwareAddr // the attacker's
	bridge   net.HardwareAddr
	agent    net.HardwareAddr // the source of its questions
	// contested is the address that two pods will have.
	contested netip.Addr
}

// random is a source of numbers that is the same in every run.
var random = rand.New(rand.NewPCG(1, 2))

// Whatever a pod sends, the agent stays small, answers its operator, finds the duplicate of two other
// pods in time, and takes no other pod for a holder.
func TestHostilePod(t *testing.T) {
	for _, attack := range []struct {
		name string
		// frame makes the number-th frame.
		frame func(s *neighbourhood, number int) []byte
		// refused: the counters of the attacker's interface must show the attack.
		refused bool
	}{
		{"spoofed sources", spoof, true},
		{"forged ARP and advertisements", forgeClaim, true},
		{"100,000 MACs", changeMACs, true},
		{"made-up VLANs", announceInVLAN, true},
		{"neighbours are solicited", solicit, false},
		{"neighbours are solicited in the agent's name", solicitAsAgent, false},
	} {
		t.Run(attack.name, func(t *testing.T) {
			l := lab.NewT(t)
			n := l.Node("")
			a := l.Agent(n, "--log-level", "info")
			w := l.Watch(a)
			s := &neighbourhood{node: n, contested: n.IPv4(5)}
			s.attacker = l.Pod(n, "attacker", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(66), n.IPv6(66)}})
			var err error
			s.mac, err = s.attacker.MAC("eth0")
			l.Do(err)
			s.bridge, err = n.MAC(lab.Bridge)
			l.Do(err)
			source := probe.Source(n.ShortName(), n.BootID())
			s.agent = append(source[:], 1, 2, 3)
			older := l.Pod(n, "older", lab.PodOptions{Addrs: []netip.Addr{s.contested, n.IPv4(15), n.IPv6(15)}})
			_, err = a.Client.WaitBinding(within(l, patience), s.contested, func(b lab.Binding) bool { return b.Evidence == "announced" })
			l.Do(err)

			before := l.Usage(a.Process)
			flood := floodFrames(l, s.attacker, attackRate, func(number int) []byte {
				return attack.frame(s, number)
			})
			l.Eventually("the attack begins", func() error {
				if sent := flood.count.Load(); sent < attackRate/2 {
					return fmt.Errorf("%d frames sent", sent)
				}
				return nil
			})
			newcomer := l.Pod(n, "newcomer", lab.PodOptions{Addrs: []netip.Addr{s.contested, n.IPv4(25), n.IPv6(25)}})
			event, err := w.WaitConfirmed(s.contested, patience)
			l.Do(err)
			wantHolders(l, event, older, newcomer)
			answers := runOperatorCommands(l, a, s.contested)
			l.Eventually("the attack continues", func() error {
				if sent := flood.count.Load(); sent < 3*attackRate {
					return fmt.Errorf("%d frames sent", sent)
				}
				return nil
			})
			after, sent := l.Usage(a.Process), flood.count.Load()
			flood.end(l)

			refused := refusals(l, a, s.attacker)
			t.Logf("%.0f frames a second, %d%% refused: confirmed after %v, commands took at most %v, %.3f of a core, rss %s, at most %s",
				float64(sent)/after.At.Sub(before.At).Seconds(), 100*refused/uint64(sent), event.At.Sub(newcomer.Started).Round(time.Millisecond),
				answers.Round(time.Millisecond), after.Cores(before), mebibytes(after.RSS), mebibytes(after.Peak))
			if attack.refused && refused == 0 {
				t.Error("the status does not name the attacker's interface")
			}
			if limit := 60 << 20; after.Peak > limit {
				t.Errorf("the agent held %s, want at most %s", mebibytes(after.Peak), mebibytes(limit))
			}
			bindings, err := a.Client.Bindings(t.Context(), netip.Addr{})
			l.Do(err)
			// 256 on each interface, of which there are three.
			if limit := 3*256 + 8; len(bindings) > limit {
				t.Errorf("%d bindings, want at most %d", len(bindings), limit)
			}
			for _, e := range w.Events() {
				if e.Type == "confirmed" && e.Conflict.IP != s.contested {
					t.Errorf("a false conflict was confirmed: %s", lab.FormatEvents([]lab.Event{e}))
				}
			}
		})
	}
}

// wantHolders checks that a conflict has these holders and no others.
func wantHolders(t *lab.T, e lab.Event, pods ...*lab.Pod) {
	t.Helper()
	want := make(map[string]bool)
	for _, pod := range pods {
		want[pod.HostInterface] = true
	}
	for _, holder := range e.Conflict.Holders {
		if !want[holder.Interface] {
			t.Errorf("%s is taken for a holder of %v", holder.Interface, e.Conflict.IP)
		}
		delete(want, holder.Interface)
	}
	for missing := range want {
		t.Errorf("%s is not among the holders of %v", missing, e.Conflict.IP)
	}
}

// runOperatorCommands runs the commands that an operator would, and returns how long the slowest took.
func runOperatorCommands(t *lab.T, a *lab.Agent, ip netip.Addr) time.Duration {
	t.Helper()
	var slowest time.Duration
	for _, args := range [][]string{{"bindings"}, {"status"}, {"explain", ip.String()}, {"conflicts"}} {
		began := time.Now()
		out, err := a.CLI(within(t, patience), args...)
		t.Do(err)
		slowest = max(slowest, time.Since(began))
		if len(out) > 1<<20 {
			t.Errorf("dupip %s printed %d bytes", strings.Join(args, " "), len(out))
		}
	}
	return slowest
}

// refusals is how many packets of a pod's interface made no record because of its limits.
func refusals(t *lab.T, a *lab.Agent, p *lab.Pod) uint64 {
	t.Helper()
	body, err := a.Client.Get(t.Context(), "/v1/status", "")
	t.Do(err)
	defer body.Close()
	var doc struct {
		Interfaces []struct {
			Name    string
			Refused struct{ Data, Announced, Answers, RingFull uint64 }
		}
	}
	t.Do(json.NewDecoder(body).Decode(&doc))
	for _, i := range doc.Interfaces {
		if i.Name == p.HostInterface {
			return i.Refused.Data + i.Refused.Announced + i.Refused.Answers + i.Refused.RingFull
		}
	}
	t.Fatal(fmt.Errorf("the agent does not know %s", p.HostInterface))
	return 0
}

// spoof sends datagrams from any source, IPv4 and IPv6.
func spoof(s *neighbourhood, number int) []byte {
	port := func(ip netip.Addr) netip.AddrPort { return netip.AddrPortFrom(ip, 9) }
	if number%2 == 0 {
		source := netip.AddrFrom4([4]byte{10, byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32())})
		packet := lab.UDP(port(source), port(netip.MustParseAddr("192.0.2.9")), []byte("x"))
		return lab.Ethernet(s.bridge, s.mac, 0, unix.ETH_P_IP, packet)
	}
	source := [16]byte{0: 0xfd}
	binary.BigEndian.PutUint64(source[8:], random.Uint64())
	packet := lab.UDP(port(netip.AddrFrom16(source)), port(netip.MustParseAddr("2001:db8::9")), []byte("x"))
	return lab.Ethernet(s.bridge, s.mac, 0, unix.ETH_P_IPV6, packet)
}

// forgeClaim claims the addresses of the neighbours, in each of the ways there are.
func forgeClaim(s *neighbourhood, number int) []byte {
	victim := s.node.IPv4(byte(2 + number/4%250))
	zero := make(net.HardwareAddr, 6)
	switch number % 4 {
	case 0:
		return lab.Ethernet(lab.Broadcast, s.mac, 0, unix.ETH_P_ARP, lab.ARP(lab.ARPRequest, s.mac, victim, zero, victim))
	case 1:
		return lab.Ethernet(s.bridge, s.mac, 0, unix.ETH_P_ARP, lab.ARP(lab.ARPReply, s.mac, victim, s.bridge, s.node.IPv4(1)))
	case 2:
		return lab.Ethernet(s.bridge, s.mac, 0, unix.ETH_P_ARP, lab.ARP(lab.ARPReply, s.mac, s.contested, s.bridge, s.node.IPv4(1)))
	}
	return lab.Ethernet(s.bridge, s.mac, 0, unix.ETH_P_IPV6, advertise(s.node.IPv6(byte(2+number/4%250)), s.mac))
}

// advertise builds an unsolicited neighbour advertisement; nothing on the path checks its checksum.
func advertise(ip netip.Addr, mac net.HardwareAddr) []byte {
	message := append([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, ip.AsSlice()...)
	message = append(append(message, 2, 1), mac...)
	header := []byte{0x60, 0, 0, 0, 0, byte(len(message)), 58, 255}
	allNodes := netip.MustParseAddr("ff02::1")
	return append(append(append(header, ip.AsSlice()...), allNodes.AsSlice()...), message...)
}

// changeMACs sends legitimate data and announcements from ever new MACs.
func changeMACs(s *neighbourhood, number int) []byte {
	mac := net.HardwareAddr{2, 0xba, 0, byte(number % 100_000 >> 16), byte(number % 100_000 >> 8), byte(number % 100_000)}
	own := s.attacker.Addrs()[0]
	switch number % 3 {
	case 0:
		return lab.Ethernet(s.bridge, mac, 0, unix.ETH_P_ARP, lab.ARP(lab.ARPRequest, mac, own, make(net.HardwareAddr, 6), own))
	case 1:
		return lab.Ethernet(s.bridge, mac, 0, unix.ETH_P_ARP, lab.ARP(lab.ARPReply, mac, own, s.bridge, s.node.IPv4(1)))
	}
	port := func(ip netip.Addr) netip.AddrPort { return netip.AddrPortFrom(ip, 9) }
	return lab.Ethernet(s.bridge, mac, 0, unix.ETH_P_IP, lab.UDP(port(own), port(netip.MustParseAddr("192.0.2.9")), nil))
}

// announceInVLAN sends announcements of any address in any VLAN.
func announceInVLAN(s *neighbourhood, _ int) []byte {
	ip := netip.AddrFrom4([4]byte{10, 66, byte(random.Uint32()), byte(random.Uint32())})
	packet := lab.ARP(lab.ARPRequest, s.mac, ip, make(net.HardwareAddr, 6), ip)
	return lab.Ethernet(lab.Broadcast, s.mac, uint16(1+random.IntN(4094)), unix.ETH_P_ARP, packet)
}

// solicit makes the neighbours answer.
func solicit(s *neighbourhood, number int) []byte { return solicitation(s, s.mac, number) }

// solicitAsAgent makes the neighbours answer to the agent: a probed pod knows the agent's MAC.
func solicitAsAgent(s *neighbourhood, number int) []byte { return solicitation(s, s.agent, number) }

// solicitation solicits other addresses of the neighbours than the contested one, IPv4 only: they
// need no neighbour entry to answer that.
func solicitation(s *neighbourhood, source net.HardwareAddr, number int) []byte {
	ip := s.node.IPv4([]byte{15, 25}[number%2])
	packet := lab.ARP(lab.ARPRequest, source, netip.IPv4Unspecified(), make(net.HardwareAddr, 6), ip)
	return lab.Ethernet(lab.Broadcast, source, 0, unix.ETH_P_ARP, packet)
}
