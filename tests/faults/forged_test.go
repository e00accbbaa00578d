package faults

import (
	"context"
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

// withstandForgery floods the agents, from a node that does not have the key, with recorded datagrams of members,
// unchanged and corrupted in every way, and with random bytes, from the addresses of members.
func (s *testCluster) withstandForgery(rogue *lab.Node) {
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
	storm.Go(func() { sent, floodErr = rogue.Flood(ctx, stormRate, func(int) []byte { return f.next() }) })
	storm.Go(func() { s.garbageStreams(ctx, rogue) })
	for i := range 3 {
		d := s.duplicate(s.nodes[i], s.nodes[i+2])
		s.Logf("during the storm: found after %.1f s", s.waitFound(d, d.began, patience).Seconds())
	}
	storm.Wait()
	s.Do(floodErr)
	s.Logf("%d packets were sent, made of %d", sent, len(recorded))
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
		// All, except those that the kernel dropped.
		if share := sent / len(s.nodes); dropped < uint64(share)/2 {
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
	rng   *rand.Rand
	real  []lab.Datagram
	macs  map[netip.Addr]net.HardwareAddr
	own   net.HardwareAddr
	addrs []netip.Addr
	turn  int
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
	switch f.turn % 4 {
	case 0:
		payload = f.random(1400)
	case 1:
		payload = payload[:f.rng.IntN(len(payload)+1)]
	case 2:
		payload = f.corrupt(payload)
	case 3: // an old one, as it was, to whom it was sent or to another
		if f.rng.IntN(2) == 0 {
			to = d.To.Addr()
		}
	}
	return f.frame(from, to, payload)
}

// frame carries a payload to a member, the first one if it is no member.
func (f *forger) frame(from netip.AddrPort, to netip.Addr, payload []byte) []byte {
	mac, known := f.macs[to]
	if !known {
		to, mac = f.addrs[0], f.macs[f.addrs[0]]
	}
	packet := lab.UDP(from, netip.AddrPortFrom(to, lab.GossipPort), payload)
	return lab.Ethernet(mac, f.own, 0, 0x0800, packet)
}

// random are up to so many bytes.
func (f *forger) random(most int) []byte {
	b := make([]byte, f.rng.IntN(most))
	for i := range b {
		b[i] = byte(f.rng.Uint32())
	}
	return b
}

// corrupt changes some bytes or bits.
func (f *forger) corrupt(b []byte) []byte {
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

// garbageStreams opens connections to all members and writes garbage, until ctx ends.
func (s *testCluster) garbageStreams(ctx context.Context, rogue *lab.Node) {
	s.streams(ctx, rogue, 10*time.Millisecond, func(turn int, c net.Conn) (keep bool) {
		garbage := make([]byte, rand.IntN(4000))
		for i := range garbage {
			garbage[i] = byte(rand.Uint32())
		}
		if turn%3 == 0 {
			// The beginning of a stream of another cluster, plain or sealed.
			garbage = append([]byte{0xd2 + byte(turn%2), 0xff, 0xff, 0xff, 0xff}, garbage...)
		}
		_, _ = c.Write(garbage)
		return turn%2 == 0 // and sends no more
	})
}

// streams opens a connection to one member after the other until ctx ends, and returns how many. It keeps the last 500 of those
// that use wants to keep.
func (s *testCluster) streams(ctx context.Context, rogue *lab.Node, pause time.Duration, use func(turn int, c net.Conn) (keep bool)) (opened int) {
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
			opened++
			if use(turn, c) {
				open = append(open, c)
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
		case <-time.After(pause):
		}
	}
	return opened
}

func nonzero(counts map[string]uint64) map[string]uint64 {
	counts = maps.Clone(counts)
	maps.DeleteFunc(counts, func(_ string, n uint64) bool { return n == 0 })
	return counts
}
