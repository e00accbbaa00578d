package gossip

import (
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/recent"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

func newProbes(t *testing.T) (*parts, *probes, *roster.Node) {
	p := newParts(t)
	asked := recent.Map[askedID, askedProbe]{Half: 2}
	return p, &probes{roster: p.roster, peers: p.peers, post: p.post, count: p.count, asked: asked}, p.join("b", 1, cluster.Agent)
}

func probeOf(n *roster.Node, netns uint64) detector.Probe {
	return detector.Probe{Key: testKey(1), Holder: detector.HolderID{Node: n.ID, Netns: netns}}
}

// A request for which there is no room in the queue has its reply at once: the holder's node is silent.
func TestProbesBudget(t *testing.T) {
	p, probes, b := newProbes(t)
	for range requestPolicy.Max {
		probes.request(&request{probe: probeOf(b, 1), sent: noon}, noon)
	}
	if m := p.news(); m != nil || p.peers.of(b).silent {
		t.Errorf("there is room, but the agent got %+v", m)
	}
	probes.request(&request{probe: probeOf(b, 2), sent: noon}, noon.Add(1))
	if m, _ := p.news().(cluster.ProbeReply); m.Outcome != detector.Unreachable || m.Probe != probeOf(b, 2) || !m.At.Equal(noon.Add(1)) || !p.peers.of(b).silent {
		t.Errorf("there is no room, but the agent got %+v", m)
	}
}

// What a reply says is taken as far as it can be so: no answer is older than its request, and only what is complete is a binding.
func TestProbesReceiveReply(t *testing.T) {
	for name, test := range map[string]struct {
		outcome  detector.Outcome
		answered time.Duration
		evidence detector.Evidence
		at       time.Duration
		bound    bool
	}{
		"answered":                 {detector.Answered, 300 * time.Millisecond, detector.Host, 300 * time.Millisecond, true},
		"before it was asked":      {detector.Answered, -time.Millisecond, detector.Forwarded, 0, true},
		"not answered":             {detector.Unanswered, 300 * time.Millisecond, detector.Data, time.Second, true},
		"refused":                  {detector.Refused, 0, detector.Data, time.Second, true},
		"gone":                     {detector.Gone, 0, detector.Data, time.Second, false},
		"no evidence":              {detector.Unanswered, 0, 0, time.Second, false},
		"evidence of another kind": {detector.Unanswered, 0, detector.Host + 1, time.Second, false},
	} {
		p, probes, b := newProbes(t)
		r := &request{probe: probeOf(b, 1), sent: noon}
		probes.request(r, noon)
		reply := wire.ProbeReply{ID: 1, Key: r.probe.Key, Outcome: test.outcome, Binding: pod(b, 1), Answered: noon.Add(test.answered), RetryAt: noon}
		reply.Binding.Evidence = test.evidence
		if probes.receiveReply(b, reply, noon.Add(time.Second)); p.news() != nil {
			t.Errorf("%s: the request was not sent yet", name)
		}
		p.due(noon)
		p.busy()
		if probes.receiveReply(b, reply, noon.Add(time.Second)); p.post.Waiting(b, 1) != r {
			t.Errorf("%s: nothing waits, but the agent was busy", name)
		}
		p.news()
		probes.receiveReply(b, reply, noon.Add(time.Second))
		m, _ := p.news().(cluster.ProbeReply)
		if m.Outcome != test.outcome || !m.At.Equal(noon.Add(test.at)) || (m.Binding.Evidence != 0) != test.bound || m.RetryAt.IsZero() == (test.outcome == detector.Refused) {
			t.Errorf("%s: %+v", name, m)
		}
		probes.receiveReply(b, reply, noon.Add(time.Second))
		p.drops(name+", early and again", dropUnasked, 2)
	}
}

// A request of another node reaches the agent once while it is remembered: until others took its place, or not at all if the agent was busy.
func TestProbesReceiveRequest(t *testing.T) {
	p, probes, b := newProbes(t)
	receive := func(id uint64, of *roster.Node, reaches bool) {
		t.Helper()
		back := probes.receiveRequest(b, wire.ProbeRequest{ID: id, Key: testKey(1), Holder: probeOf(of, 1).Holder}, noon)
		if m, ok := p.news().(cluster.ProbeRequest); ok != reaches || ok && (m.ID != id || m.From != b.ID) || back != nil {
			t.Errorf("request %d: the agent got %+v, %v goes back", id, m, back)
		}
	}
	self := p.roster.Self()
	receive(9, b, false)
	p.drops("a holder of another node", dropForeign, 1)
	p.busy()
	receive(1, self, false)
	for id := range uint64(5) {
		receive(id+1, self, true)
		receive(1, self, false) // which is used all the time
	}
	receive(2, self, true)
}
