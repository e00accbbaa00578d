package gossip

import (
	"testing"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

// long leaves no room in a packet, not even for ack.
var (
	long = wire.Report{Seq: 1 << 40, Conflict: make([]byte, wire.MaxReport)}
	ack  = wire.Ack{Seq: 1 << 40}
)

// flushed flushes after a time, and checks how many packets were sent up to then and when the next one is due; a negative time is never.
func (p *parts) flushed(after, next time.Duration, sent int) {
	p.t.Helper()
	got := p.post.flush(noon.Add(after))
	if want := noon.Add(next); len(p.sent) != sent || next >= 0 && !got.Equal(want) || next < 0 && !got.IsZero() {
		p.t.Errorf("after %v: %d packets are sent, next at %v; want %d, and %v", after, len(p.sent), got, sent, next)
	}
}

// Messages for one node leave together a moment after the first of them, and packets in the order in which they were begun.
func TestPostGathers(t *testing.T) {
	p := newParts(t)
	b, c := p.join("b", 1, cluster.Agent), p.join("c", 1, cluster.Agent)
	for i, to := range []*roster.Node{b, c, b} {
		p.post.add(to, wire.Ack{Seq: uint64(i)}, noon.Add(time.Duration(i)*time.Millisecond))
	}
	p.flushed(gatherFor-1, gatherFor, 0)
	p.flushed(gatherFor, gatherFor+time.Millisecond, 1)
	p.flushed(gatherFor+time.Millisecond, -1, 2)
	if first, second := p.sent[0].Acks, p.sent[1].Acks; len(first) != 2 || first[1].Seq != 2 || len(second) != 1 || second[0].Seq != 1 {
		t.Errorf("sent %+v", p.sent)
	}
	if p.post.add(b, ack, noon.Add(time.Second)); len(p.post.packets) != 1 {
		t.Error("a packet that was sent takes a message")
	}
}

// When too many packets wait no other one is begun, but what has room in one of them is sent. So many leave at once, and none before the next
// batch is due. What could not be sent is counted by message.
func TestPostStorm(t *testing.T) {
	p := newParts(t)
	b, c := p.join("b", 1, cluster.Agent), p.join("c", 1, cluster.Agent)
	p.post.add(b, ack, noon)
	for range maxWaiting - 1 {
		p.post.add(c, long, noon)
	}
	p.drops("as many as may wait", dropOutbox, 0)
	p.post.add(c, long, noon)
	p.post.add(b, ack, noon)
	p.drops("one more", dropOutbox, 1)
	p.broken = true
	p.flushed(gatherFor, gatherFor+batchEvery, perBatch)
	p.drops("the first batch", dropSend, perBatch+1) // two are in the first packet
	p.broken = false
	p.flushed(gatherFor+batchEvery-1, gatherFor+batchEvery, perBatch)
	p.flushed(gatherFor+batchEvery, gatherFor+2*batchEvery, 2*perBatch)
	if _, sent, _ := p.count.read(); sent["report"] != perBatch || sent["ack"] != 0 || len(p.post.packets) != maxWaiting-2*perBatch {
		t.Errorf("sent %v, %d packets wait", sent, len(p.post.packets))
	}
}

// A node is suspect if it has not acknowledged three messages, or one three times, for more than three seconds.
func TestPostSuspects(t *testing.T) {
	for _, test := range []struct {
		name            string
		messages, times int
		self            bool
		after           time.Duration
		suspect         bool
	}{
		{"one message three times", 1, 3, false, suspectAfter + 1, true},
		{"not for long enough", 1, 3, false, suspectAfter, false},
		{"one message twice", 1, 2, false, time.Minute, false},
		{"two messages once", 2, 1, false, time.Minute, false},
		{"three messages once", 3, 1, false, suspectAfter + 1, true},
		{"this node itself", 3, 3, true, time.Minute, false},
	} {
		p := newParts(t)
		to := p.join("b", 1, cluster.Agent)
		if test.self {
			to = p.roster.Self()
		}
		for i := range test.messages {
			p.post.put(to, notice{testKey(i)}, noon)
		}
		for second := range test.times {
			p.due(noon.Add(time.Duration(second) * time.Second))
		}
		if _, _, suspect := p.post.unacked(p.roster.Self(), noon.Add(test.after)); suspect[to] != test.suspect {
			t.Errorf("%s: suspect is %t", test.name, suspect[to])
		}
	}
}

// A lease that is not acknowledged for more than five seconds counts for each of its keepers, and once in all; the end of one does not.
func TestPostUnacked(t *testing.T) {
	p := newParts(t)
	b, c := p.join("b", 1, cluster.Agent), p.join("c", 1, cluster.Agent)
	for i, to := range [][]*roster.Node{{b, c}, {b}, {b, c}} {
		for _, n := range to {
			p.post.put(n, &lease.Lease{ID: lease.ID{Key: testKey(i)}, Gone: i == 2}, noon)
		}
	}
	p.due(noon)
	for after, want := range map[time.Duration][3]int{lateAfter: {}, lateAfter + 1: {2, 2, 1}} {
		if n, by, _ := p.post.unacked(p.roster.Self(), noon.Add(after)); n != want[0] || by[b] != want[1] || by[c] != want[2] {
			t.Errorf("after %v: %d, of which %d and %d with the keepers; want %v", after, n, by[b], by[c], want)
		}
	}
}
