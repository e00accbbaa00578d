package faults

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

const (
	// floodRate is how many datagrams a second each agent gets.
	floodRate = 25_000
	// headerSize is what a datagram begins with in the clear, labelSize its part that all of a cluster have.
	headerSize, labelSize = 13, 5
)

// Somebody on the network who does not have the key repeats what the agents have sent to each other, and keeps them
// busy. Meanwhile they find duplicates, stay small, and send the flooder no datagram. The other tests wait: the flood
// needs the machine.
func TestFloods(t *testing.T) {
	s := newTestCluster(t, 3)
	rogue := s.Node("rogue")
	replies, err := rogue.Tap("eth0", func(p lab.Packet) bool {
		d, ok := lab.ReadDatagram(p)
		return ok && d.To.Addr() == rogue.Uplink()
	})
	s.Do(err)
	former := s.record()
	for _, n := range s.nodes {
		s.Do(n.agent.Stop())
		s.startSuccessor(n)
	}
	s.waitAllMembers()
	s.assertRestored(s.duplicates...)
	present := s.record()
	s.Logf("%d datagrams of these agents were recorded, and %d of their predecessors", len(present), len(former))

	f := s.forger(rogue, present)
	datagrams := func(recorded []lab.Datagram, change func(b []byte) []byte) func(context.Context) (int, error) {
		var frames [][]byte
		for i := range max(1000, len(recorded)) {
			d := recorded[i%len(recorded)]
			from := netip.AddrPortFrom(rogue.Uplink(), d.From.Port())
			frames = append(frames, f.frame(from, d.To.Addr(), change(d.Payload)))
		}
		return func(ctx context.Context) (int, error) {
			return rogue.Flood(ctx, floodRate*len(s.nodes), func(n int) []byte { return frames[n%len(frames)] })
		}
	}
	streams := func(use func(c net.Conn)) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			return s.streams(ctx, rogue, 0, func(_ int, c net.Conn) (keep bool) {
				go use(c)
				return true
			}), nil
		}
	}
	greeting := append(present[0].Payload[:labelSize:labelSize], make([]byte, headerSize-labelSize+1)...)
	greeting[headerSize] = 2 // a request
	same := func(b []byte) []byte { return b }
	for _, flood := range []struct {
		name, reason string
		run          func(context.Context) (sent int, err error)
	}{
		{"datagrams of these agents, again", "replay", datagrams(present, same)},
		{"datagrams of their predecessors, again", "receiver", datagrams(former, same)},
		{"garbage", "malformed", datagrams(present, func([]byte) []byte { return f.random(1200) })},
		{"garbage with the right header", "key", datagrams(present, func(b []byte) []byte {
			return append(b[:headerSize:headerSize], f.random(1200-headerSize)...)
		})},
		{"connections that say nothing", "stream", streams(func(net.Conn) {})},
		{"TLS without the key", "stream", streams(func(c net.Conn) {
			config := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{string(greeting)}}
			if _, err := c.Write(greeting); err == nil {
				_, _ = io.ReadFull(c, make([]byte, 1))
				_ = tls.Client(c, config).Handshake() // and waits for more
			}
		})},
	} {
		s.Logf("%s:", flood.name)
		s.withstand(flood.reason, flood.run)
	}
	s.waitAllMembers()
	s.audit()
	s.end(s.duplicates...)
	if count := replies.Count(); count > 0 {
		s.Errorf("the agents sent %d datagrams to somebody without the key", count)
	}
}

// record listens to what the agents send to each other, about a duplicate, too.
func (s *testCluster) record() []lab.Datagram {
	s.Helper()
	r, err := s.Record(lab.GossipPort, 20000)
	s.Do(err)
	d := s.duplicate(s.nodes...)
	s.waitFound(d, d.began, patience)
	s.holdsFor(recordTime, func() { s.assertUnchanged(d) })
	s.Do(r.Close())
	return r.Datagrams()
}

// withstand floods the agents while there are duplicates. All agents must refuse the flood for a reason.
func (s *testCluster) withstand(reason string, flood func(context.Context) (sent int, err error)) {
	s.Helper()
	before := s.refused(reason)
	memory := s.memory()
	ctx, stop := context.WithCancel(s.Context())
	defer stop()
	var running sync.WaitGroup
	var sent int
	var err error
	began := time.Now()
	running.Go(func() { sent, err = flood(ctx) })
	for i, n := range s.nodes {
		d := s.duplicate(n, s.nodes[(i+1)%len(s.nodes)])
		s.Logf("found after %.1f s", s.waitFound(d, d.began, patience).Seconds())
	}
	s.assertUnchanged(s.duplicates...)
	stop()
	running.Wait()
	s.Do(err)
	took := time.Since(began)
	s.survived(memory)
	after := s.refused(reason)
	for _, n := range s.nodes {
		if name := n.ShortName(); after[name] == before[name] {
			s.Errorf("%s refused nothing for the reason %q", name, reason)
		}
	}
	first := s.nodes[0].ShortName()
	s.Logf("%.0f a second were sent to all; %s refused %.0f a second as %q", float64(sent)/took.Seconds(),
		first, float64(after[first]-before[first])/took.Seconds(), reason)
}

// refused counts at each node what was refused for a reason.
func (s *testCluster) refused(reason string) map[string]uint64 {
	s.Helper()
	counts := make(map[string]uint64)
	for _, n := range s.nodes {
		status, err := s.status(n.agent)
		s.Do(err)
		counts[n.ShortName()] = status.Dropped[reason]
	}
	return counts
}
