package gossip

import (
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/recent"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

// requestPolicy gives up when a node that got the request must have replied: guards may delay the probe for a second, and then the holder
// has its time to answer.
var requestPolicy = &retry.Policy{
	Pauses: []time.Duration{150 * time.Millisecond, 300 * time.Millisecond, 550 * time.Millisecond, time.Second},
	GiveUp: detector.AnswerTime + 1500*time.Millisecond, Max: 4096, Urgent: true,
}

// request is a probe request of this node. Its reply acknowledges it.
type request struct {
	probe detector.Probe
	own   []cluster.Binding
	sent  time.Time
}

func (r *request) Identity() any         { return r }
func (r *request) Policy() *retry.Policy { return requestPolicy }

// probes has the probe requests of this node and of others. It must not know how a holder is probed.
type probes struct {
	roster *roster.Roster
	peers  *peers
	post   *post
	count  *counters
	asked  recent.Map[askedID, askedProbe] // by other nodes
}

// request sends a probe request.
func (p *probes) request(r *request, now time.Time) {
	to := p.roster.ByID(r.probe.Holder.Node)
	if to == nil || !to.Alive() || to == p.roster.Self() || !wire.ValidKey(r.probe.Key) || !wire.ValidHolder(r.probe.Holder) || !p.post.put(to, r, now) {
		p.unanswered(r, now)
	}
}

// unanswered notifies the agent that nobody replies for a holder. Nothing is left that could, of a former boot. Any other node is
// asked again when it is there again.
func (p *probes) unanswered(r *request, now time.Time) {
	reply := cluster.ProbeReply{Probe: r.probe, Outcome: detector.Unreachable, At: now}
	if p.roster.BootedAnew(r.probe.Holder.Node) {
		reply.Outcome, reply.Reason = detector.Gone, "it was booted anew"
	} else if n := p.roster.ByID(r.probe.Holder.Node); n != nil {
		p.peers.of(n).silent = true
	}
	p.peers.deliver(reply)
}

// receiveReply handles a probe reply. Only a holder's own node speaks for it, so nothing but the sender's holders can
// be meant.
func (p *probes) receiveReply(from *roster.Node, m wire.ProbeReply, now time.Time) wire.Message {
	r, ok := p.post.Waiting(from, m.ID).(*request)
	if !ok || r.probe.Key != m.Key || r.probe.Holder != m.Binding.Holder.ID {
		p.count.drop(dropUnasked) // or it came already
		return nil
	}
	reply := cluster.ProbeReply{Probe: r.probe, Outcome: m.Outcome, At: now, Reason: m.Reason}
	switch m.Outcome {
	case detector.Answered:
		// Clocks of two nodes do not run alike: no answer is older than its request.
		if reply.At = m.Answered; reply.At.Before(r.sent) {
			reply.At = r.sent
		}
	case detector.Refused:
		reply.RetryAt = m.RetryAt
	}
	if m.Outcome != detector.Gone && m.Binding.Evidence >= detector.Forwarded && m.Binding.Evidence <= detector.Host {
		reply.Binding = m.Binding
	}
	if p.peers.deliver(reply) {
		p.post.Remove(from, r)
	}
	return nil
}

// maxAsked bounds the probe requests of other nodes that are remembered with their replies, should they come again
// because the reply was lost. Twice as many are for some time.
const maxAsked = 4096

// askedID identifies a probe request as its sender does.
type askedID struct {
	incarnation wire.MemberID // the next one begins anew
	id          uint64
}

// askedProbe is a probe request of another node, and its reply once there is one.
type askedProbe struct {
	key    detector.Key
	holder detector.HolderID
	reply  *wire.ProbeReply
}

// receiveRequest handles a probe request. One that comes again is answered from memory, or when its reply is there.
func (p *probes) receiveRequest(from *roster.Node, m wire.ProbeRequest, now time.Time) wire.Message {
	id := askedID{from.Incarnation, m.ID}
	a := p.asked.Get(id, nil)
	switch {
	case a != nil && a.reply != nil:
		return *a.reply
	case a != nil:
	case m.Holder.Node != p.roster.Self().ID:
		p.count.drop(dropForeign)
	// Without room for it now there may be when it comes again.
	case p.peers.deliverOf(from, cluster.ProbeRequest{ID: m.ID, From: from.ID, Key: m.Key, Holder: m.Holder, Bindings: m.Others}, now):
		p.asked.Get(id, func() *askedProbe { return &askedProbe{key: m.Key, holder: m.Holder} })
	}
	return nil
}

// reply answers the probe request with that ID of a node.
func (p *probes) reply(to string, id uint64, r cluster.ProbeReply, now time.Time) {
	var a *askedProbe
	n := p.roster.ByID(to)
	if n != nil {
		a = p.asked.Get(askedID{n.Incarnation, id}, nil)
	}
	if a == nil || a.reply != nil || r.Outcome < detector.Answered || r.Outcome > detector.Refused {
		p.count.drop(dropReply)
		return
	}
	a.reply = &wire.ProbeReply{ID: id, Key: a.key, Outcome: r.Outcome, Reason: r.Reason, Answered: r.At, RetryAt: r.RetryAt}
	switch {
	case r.Binding.Evidence == 0 && r.Outcome == detector.Answered:
		a.reply.Outcome = detector.Gone // it went meanwhile
	case r.Outcome != detector.Gone:
		a.reply.Binding = r.Binding
	}
	if a.reply.Binding.Holder.ID = a.holder; n.Alive() {
		p.post.add(n, *a.reply, now)
	}
}
