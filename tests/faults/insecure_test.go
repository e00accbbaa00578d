package faults

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/tests/lab"
)

const (
	// insecureTime is how long agents without a key get forged packets, insecureRate how many a second.
	insecureTime = 10 * time.Second
	insecureRate = 3000
	// tokenSize is the size of the datagram that each agent may send to an address once a second.
	tokenSize = 29
	// localPort is that of a kubelet.
	localPort = 10250
)

// Without a key, somebody forges members at the address of a victim, and what is to be answered there. The agents
// send there 3 bytes for each that came from there, and one token a second each; nothing to themselves; and find
// duplicates afterwards.
func TestInsecure(t *testing.T) {
	t.Parallel()
	s := newTestCluster(t, 3, "--gossip-key-file=", "--insecure-gossip")
	rogue, victim := s.Node("rogue"), s.Node("victim")
	var received, datagrams, packets atomic.Int64
	_, err := victim.Listen("eth0", func(p lab.Packet) {
		packets.Add(1)
		if d, ok := lab.ReadDatagram(p); ok && d.To.Addr() == victim.Uplink() {
			datagrams.Add(1)
			received.Add(int64(len(d.Payload)))
		}
	})
	s.Do(err)
	var taps []*lab.Tap
	for _, n := range s.nodes {
		tap, err := n.Tap("lo", func(p lab.Packet) bool {
			return len(p.Frame) > 38 && p.EtherType() == 0x0800 && binary.BigEndian.Uint16(p.Frame[36:]) == localPort
		})
		s.Do(err)
		taps = append(taps, tap)
	}
	f := s.forger(rogue, s.record())
	i := &impostor{forger: f, headers: make(map[netip.Addr][]byte), victim: netip.AddrPortFrom(victim.Uplink(), lab.GossipPort), free: s.addrs()}
	for _, d := range f.real {
		if len(d.Payload) > headerSize && d.Payload[0] == 0xd2 { // a token names no receiver
			i.headers[d.To.Addr()] = d.Payload[:headerSize]
		}
	}
	if len(i.headers) != len(s.nodes) {
		s.Fatalf("datagrams to %d agents were recorded", len(i.headers))
	}

	before := s.memory()
	ctx, stop := context.WithTimeout(s.Context(), insecureTime)
	defer stop()
	began := time.Now()
	sent, err := rogue.Flood(ctx, insecureRate, i.next)
	s.Do(err)
	seconds := int(time.Since(began)/time.Second) + 2
	out, most := int(received.Load()), 3*i.asVictim+len(s.nodes)*seconds*tokenSize
	s.Logf("%d packets with %d bytes were sent, %d of these with the victim's address; it received %d bytes in %d datagrams, at most %d are allowed, and %d packets in all; MiB %v → %v",
		sent, i.all, i.asVictim, out, datagrams.Load(), most, packets.Load(), slices.Collect(maps.Values(before)), slices.Collect(maps.Values(s.memory())))
	if out > most || out == 0 {
		s.Errorf("%d bytes were sent to the victim, %d are allowed", out, most)
	}
	for n, tap := range taps {
		if tap.Count() > 0 {
			s.Errorf("%s sent %d packets to itself", s.nodes[n].ShortName(), tap.Count())
		}
	}
	if log := s.nodes[0].agent.Log(); !strings.Contains(log, "impostor") || strings.Contains(log, "impostor-local") {
		s.Error("the members at the victim's address, and only these, must have joined")
	}
	if status, err := s.status(s.nodes[0].agent); err != nil || status.Dropped["unproven"] == 0 {
		s.Errorf("nothing was to be sent to the victim: %v, %v", nonzero(status.Dropped), err)
	}
	s.waitAllMembers()
	d := s.duplicate(s.nodes[0], s.nodes[1])
	s.Logf("afterwards: found after %.1f s", s.waitFound(d, d.began, healTime).Seconds())
	s.audit()
}

// impostor makes plain datagrams in the names of members that do not exist. They are said to be at the victim's
// address, or at one of the agents' own machines.
type impostor struct {
	*forger
	headers map[netip.Addr][]byte // of datagrams to each agent
	victim  netip.AddrPort
	free    []netip.Addr // addresses that no pod has

	all, asVictim int // bytes in all datagrams, and in those that have the victim's source address
}

// Messages of memberlist.
const (
	msgPing, msgIndirectPing, msgAlive, msgCompound = 0, 1, 4, 7
)

// next is the n-th frame.
func (i *impostor) next(n int) []byte {
	to := i.addrs[n%len(i.addrs)]
	at, kind, turn := i.victim, byte(1), n/len(i.addrs)
	from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 77, 200}), lab.GossipPort)
	name := fmt.Sprint("impostor", turn%3)
	if turn%8 > 5 {
		name = "impostor-local"
		at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), localPort)
	}
	id := wire.MemberIDOf(name, "boot", 1)
	member := fmt.Sprintf("%s/%016x", name, uint64(id))
	source := map[string]any{"SeqNo": uint32(n), "SourceAddr": at.Addr().AsSlice(), "SourcePort": uint32(at.Port()), "SourceNode": []byte(member)}
	ping := memberlistMessage(msgPing, source)
	var payload []byte
	switch turn % 8 {
	case 0, 6:
		payload = memberlistMessage(msgAlive, map[string]any{
			"Incarnation": uint32(n), "Node": []byte(member), "Addr": at.Addr().AsSlice(), "Port": uint32(at.Port()),
			"Meta": wire.Marshal(map[int]any{1: name, 2: "boot", 3: 1}), "Vsn": []byte{1, 5, 2, 0, 0, 0},
		})
	case 1:
		payload = ping
	case 2: // to be answered to its source
		from = i.victim
		payload = memberlistMessage(msgPing, map[string]any{"SeqNo": uint32(n), "SourceNode": []byte(member)})
	case 3, 7:
		maps.Copy(source, map[string]any{"Target": at.Addr().AsSlice(), "Port": uint32(at.Port()), "Node": []byte(member), "Nack": true})
		payload = memberlistMessage(msgIndirectPing, source)
	case 4:
		kind = 2
		r := rogueMember{rng: i.rng}
		payload = pack([]any{r.lease(uint64(n), i.free)})[0]
	case 5:
		payload = []byte{msgCompound, 10}
		for range 10 {
			payload = binary.BigEndian.AppendUint16(payload, uint16(len(ping)))
		}
		for range 10 {
			payload = append(payload, ping...)
		}
	}
	b := binary.BigEndian.AppendUint64(slices.Clone(i.headers[to]), uint64(id))
	b = append(append(binary.BigEndian.AppendUint64(b, uint64(n)), kind), payload...)
	i.all += len(b)
	if from == i.victim {
		i.asVictim += len(b)
	}
	return i.frame(from, to, b)
}

// memberlistMessage encodes a message of memberlist, in MessagePack.
func memberlistMessage(kind byte, fields map[string]any) []byte {
	b := []byte{kind, 0x80 | byte(len(fields))}
	for name, value := range fields {
		b = append(append(b, 0xa0|byte(len(name))), name...)
		switch v := value.(type) {
		case uint32:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), v)
		case []byte:
			b = append(binary.BigEndian.AppendUint16(append(b, 0xda), uint16(len(v))), v...)
		case bool:
			b = append(b, 0xc3) // true
		}
	}
	return b
}
