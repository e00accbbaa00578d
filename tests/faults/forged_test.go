package faults

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

const (
	// stormTime is how long the agents are pelted, with stormRate packets a second in all.
	stormTime = 12 * time.Second
	stormRate = 4000
	// recordTime is how long it is listened before.
	recordTime = 4 * time.Second
)

// forged floods the agents with recorded messages, unchanged and corrupted in every way, and with
// random bytes, from the addresses of members. Gossip is not encrypted here: anybody on the network
// can do this without knowledge of the protocol.
func (s *testCluster) forged() { s.withstandForgery(s.Node("rogue"), nil) }

// withstandForgery pelts the agents from a node that has the key, or none.
func (s *testCluster) withstandForgery(rogue *lab.Node, key []byte) {
	s.Helper()
	r, err := s.Record(lab.GossipPort, 20000)
	s.Do(err)
	before := s.duplicate(s.nodes[0], s.nodes[1], s.nodes[2])
	s.waitFound(before, before.began, patience)
	s.holdsFor(recordTime, func() { s.assertUnchanged(before) })
	s.Do(r.Close())
	recorded := r.Datagrams()
	memory := s.memory()

	ctx, stop := context.WithTimeout(s.Context(), stormTime)
	defer stop()
	var storm sync.WaitGroup
	var sent int
	var floodErr error
	f := s.forger(rogue, recorded)
	f.key = key
	storm.Go(func() { sent, floodErr = rogue.Flood(ctx, stormRate, func(int) []byte { return f.next() }) })
	storm.Go(func() { s.garbageStreams(ctx, rogue) })
	for i := range 3 {
		d := s.duplicate(s.nodes[i], s.nodes[i+2])
		s.Logf("during the storm: found after %.1f s", s.waitFound(d, d.began, patience).Seconds())
	}
	storm.Wait()
	s.Do(floodErr)
	s.Logf("%d packets were sent, made of %d", sent, len(recorded))
	if key != nil && f.opened < sent/10 {
		s.Errorf("the key opened %d of %d packets", f.opened, sent)
	}
	s.survived(memory)
	for _, n := range s.nodes {
		status, err := s.status(n.agent)
		s.Do(err)
		var dropped uint64
		for _, count := range status.Dropped {
			dropped += count
		}
		if n == s.nodes[0] {
			s.Logf("%s dropped %v; its problems are %q", n.ShortName(), nonzero(status.Dropped), status.Problems)
		}
		// All but the old ones, if they were whole, and of what was spoiled without a
		// new checksum most.
		if share := sent / len(s.nodes); dropped < uint64(share)/4 {
			s.Errorf("%s dropped %d of about %d", n.ShortName(), dropped, share)
		}
	}
	s.waitAllMembers()
	s.assertUnchanged(before)
	after := s.duplicate(s.nodes[3], s.nodes[0])
	s.waitFound(after, after.began, patience)
}

// forger makes frames from gossip that was recorded.
type forger struct {
	rng    *rand.Rand
	real   []lab.Datagram
	macs   map[netip.Addr]net.HardwareAddr
	own    net.HardwareAddr
	addrs  []netip.Addr
	turn   int
	key    []byte // nil for none
	opened int    // packets that the key opened
}

func (s *testCluster) forger(rogue *lab.Node, recorded []lab.Datagram) *forger {
	s.Helper()
	if len(recorded) == 0 {
		s.Fatal("no gossip was recorded")
	}
	f := &forger{rng: rand.New(rand.NewPCG(rand.Uint64(), 0)), real: recorded, macs: make(map[netip.Addr]net.HardwareAddr)}
	var err error
	f.own, err = rogue.MAC("eth0")
	s.Do(err)
	for _, n := range s.nodes {
		f.macs[n.Uplink()], err = n.MAC("eth0")
		s.Do(err)
		f.addrs = append(f.addrs, n.Uplink())
	}
	return f
}

// next is a frame to one member in the name of another.
func (f *forger) next() []byte {
	f.turn++
	d := f.real[f.rng.IntN(len(f.real))]
	from, to := d.From, f.addrs[f.rng.IntN(len(f.addrs))]
	payload := d.Payload
	switch f.turn % 5 {
	case 0:
		payload = make([]byte, f.rng.IntN(1400))
		for i := range payload {
			payload[i] = byte(f.rng.Uint32())
		}
	case 1:
		payload = payload[:f.rng.IntN(len(payload)+1)]
	case 2:
		payload = f.spoil(payload)
	case 3:
		payload = f.resealed(payload)
	case 4: // an old one, as it was, to whom it was sent or to another
		if f.rng.IntN(2) == 0 {
			to = d.To.Addr()
		}
	}
	mac, known := f.macs[to]
	if !known {
		to, mac = f.addrs[0], f.macs[f.addrs[0]]
	}
	packet := lab.UDP(from, netip.AddrPortFrom(to, lab.GossipPort), payload)
	return lab.Ethernet(mac, f.own, 0, 0x0800, packet)
}

// spoil changes some bytes or bits.
func (f *forger) spoil(b []byte) []byte {
	b = slices.Clone(b)
	for range 1 + f.rng.IntN(4) {
		if len(b) == 0 {
			break
		}
		i := f.rng.IntN(len(b))
		switch f.rng.IntN(4) {
		case 0:
			b[i] ^= 1 << f.rng.IntN(8)
		case 1:
			b[i] = byte(f.rng.Uint32())
		case 2:
			b = slices.Insert(b, i, byte(f.rng.Uint32()))
		case 3:
			b = slices.Delete(b, i, i+1)
		}
	}
	return b
}

// Of memberlist's packets, see its util.go, label.go and security.go: what marks a label and a
// checksum, and how a sealed one begins.
const (
	labelMark   = 244
	crcMark     = 12
	sealVersion = 1
	nonceSize   = 12
)

// resealed corrupts what is behind label, encryption and checksum, and makes both again.
func (f *forger) resealed(packet []byte) []byte {
	head, rest := splitLabel(packet)
	if f.key == nil {
		return append(slices.Clone(head), f.rechecked(rest)...)
	}
	block, err := aes.NewCipher(f.key)
	if err != nil {
		panic(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	if len(head) < 2 || len(rest) < 1+nonceSize {
		return f.spoil(packet)
	}
	label, nonce := head[2:], rest[1:1+nonceSize]
	plain, err := gcm.Open(nil, nonce, rest[1+nonceSize:], label)
	if err != nil {
		return f.spoil(packet)
	}
	f.opened++
	sealed := append(slices.Clone(head), sealVersion)
	sealed = append(sealed, nonce...) // no receiver checks whether it was used before
	return gcm.Seal(sealed, nonce, f.rechecked(plain), label)
}

// rechecked spoils a message and gives it a good checksum, if it has one.
func (f *forger) rechecked(message []byte) []byte {
	if len(message) < 5 || message[0] != crcMark {
		return f.spoil(message)
	}
	body := f.spoil(message[5:])
	checked := binary.BigEndian.AppendUint32([]byte{crcMark}, crc32.ChecksumIEEE(body))
	return append(checked, body...)
}

// splitLabel splits a packet into its label with the mark, and the rest.
func splitLabel(packet []byte) (label, rest []byte) {
	if len(packet) < 2 || packet[0] != labelMark || len(packet) < 2+int(packet[1]) {
		return nil, packet
	}
	n := 2 + int(packet[1])
	return packet[:n], packet[n:]
}

// garbageStreams opens connections to all members and writes garbage, until ctx ends.
func (s *testCluster) garbageStreams(ctx context.Context, rogue *lab.Node) {
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for turn := 0; ctx.Err() == nil; turn++ {
		to := netip.AddrPortFrom(s.nodes[turn%len(s.nodes)].Uplink(), lab.GossipPort)
		_ = rogue.Exec(func() error {
			c, err := net.DialTimeout("tcp", to.String(), 200*time.Millisecond)
			if err != nil {
				return err
			}
			garbage := make([]byte, rand.IntN(4000))
			for i := range garbage {
				garbage[i] = byte(rand.Uint32())
			}
			if turn%3 == 0 {
				// A label, an encrypted message of 4 GB, a state of a billion nodes.
				garbage = append([]byte{byte(turn % 14), 0xff, 0xff, 0xff, 0xff}, garbage...)
			}
			_, _ = c.Write(garbage)
			if turn%2 == 0 {
				open = append(open, c) // and sends no more
				return nil
			}
			return c.Close()
		})
		if len(open) > 500 {
			_ = open[0].Close()
			open = open[1:]
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func nonzero(counts map[string]uint64) map[string]uint64 {
	counts = maps.Clone(counts)
	maps.DeleteFunc(counts, func(_ string, n uint64) bool { return n == 0 })
	return counts
}
