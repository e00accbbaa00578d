package gossip

import (
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// maxRequests bounds the probe requests of this node that are under way.
	maxRequests = 4096
	// rememberFor is how long a probe request of another node and its reply are remembered, should it come again
	// because the reply was lost.
	rememberFor = 5 * time.Second
	// maxAsked bounds those.
	maxAsked = 8192
)

// requestPolicy gives up before the agent does, which waits for two seconds.
var requestPolicy = retry.Policy{
	Pauses: []time.Duration{150 * time.Millisecond, 300 * time.Millisecond, 550 * time.Millisecond, time.Second}, GiveUp: 1800 * time.Millisecond,
}

// request is a probe request of this node. Its reply acknowledges it.
type request struct {
	probe    detector.Probe
	bindings []cluster.Binding
	sent     time.Time
}

func (r *request) ID() any              { return r }
func (r *request) Policy() retry.Policy { return requestPolicy }

// RequestProbe sends a probe request for a remote holder to its node, with this node's own holders. The reply is a
// [cluster.ProbeReply]; without one in time its outcome is Unreachable.
func (g *Gossip) RequestProbe(p detector.Probe, own []cluster.Binding) {
	r := &request{probe: p, sent: time.Now()}
	for _, b := range own {
		r.bindings = append(r.bindings, brief(b))
	}
	if !g.in.call(func() { g.request(r, time.Now()) }) {
		g.deliver(cluster.ProbeReply{Probe: p, Outcome: cluster.Unreachable, At: r.sent})
	}
}

func (g *Gossip) request(r *request, now time.Time) {
	to := g.roster.ByID(r.probe.Holder.Node)
	switch {
	case to == nil, !to.Alive(), to == g.roster.Self(), !wire.ValidKey(r.probe.Key), !wire.ValidHolder(r.probe.Holder):
		g.unanswered(r, now)
	case g.requests >= maxRequests:
		g.count.drop(dropRequests)
		g.unanswered(r, now)
	default:
		g.requests++
		g.queue.Put(to, r, now, now)
	}
}

// unanswered tells the agent that nobody replies for a holder.
func (g *Gossip) unanswered(r *request, now time.Time) {
	if g.roster.BootedAnew(r.probe.Holder.Node) {
		// Of its former boot nothing is left that could answer.
		g.deliver(cluster.ProbeReply{Probe: r.probe, Outcome: cluster.Gone, At: now, Reason: "it was booted anew"})
		return
	}
	if n := g.roster.ByID(r.probe.Holder.Node); n != nil {
		g.peer(n).silent = true
	}
	g.deliver(cluster.ProbeReply{Probe: r.probe, Outcome: cluster.Unreachable, At: now})
}

// endRequests ends the probe requests to a node that went.
func (g *Gossip) endRequests(messages []retry.Message, now time.Time) {
	for _, m := range messages {
		if r, ok := m.(*request); ok {
			g.requests--
			g.unanswered(r, now)
		}
	}
}

// receiveReply handles a probe reply. Only a holder's own node speaks for it, so nothing but the sender's holders can
// be meant.
func (g *Gossip) receiveReply(from *roster.Node, m wire.ProbeReply, now time.Time) {
	waiting, _ := g.queue.Waiting(from, m.ID)
	r, ok := waiting.(*request)
	if !ok || r.probe.Key != m.Key || r.probe.Holder != m.Binding.Holder.ID {
		g.count.drop(dropUnasked) // or it came already
		return
	}
	g.queue.Acked(from, m.ID)
	g.requests--
	reply := cluster.ProbeReply{Probe: r.probe, Outcome: m.Outcome, At: now, Reason: m.Reason}
	switch m.Outcome {
	case cluster.Answered:
		// Clocks of two nodes do not run alike: no answer is older than its request.
		if reply.At = m.Answered; reply.At.Before(r.sent) {
			reply.At = r.sent
		}
	case cluster.Refused:
		reply.RetryAt = m.RetryAt
	}
	if m.Outcome != cluster.Gone && m.Binding.Evidence >= detector.Forwarded && m.Binding.Evidence <= detector.Host {
		reply.Binding = m.Binding
	}
	g.deliver(reply)
}

// asked are the probe requests of other nodes, with their replies.
type asked struct {
	known map[askedID]*askedProbe
	order []*askedProbe // in order of time
}

// askedID identifies a probe request as its sender does.
type askedID struct {
	incarnation wire.MemberID // the next one begins anew
	id          uint64
}

// askedProbe is a probe request of another node, and its reply once there is one.
type askedProbe struct {
	askedID
	from   *roster.Node
	key    detector.Key
	holder detector.HolderID
	at     time.Time
	reply  *wire.ProbeReply
}

// expire forgets requests that will not come again, and returns when there are more to forget, zero for never.
func (a *asked) expire(now time.Time) time.Time {
	for len(a.order) > 0 && now.Sub(a.order[0].at) >= rememberFor {
		delete(a.known, a.order[0].askedID)
		a.order[0] = nil
		a.order = a.order[1:]
	}
	if len(a.order) == 0 {
		return time.Time{}
	}
	return a.order[0].at.Add(rememberFor)
}

// receiveRequest handles a probe request. One that comes again is answered from memory, or when its reply is there.
func (g *Gossip) receiveRequest(from *roster.Node, m wire.ProbeRequest, now time.Time) {
	id := askedID{from.Incarnation, m.ID}
	if a := g.asked.known[id]; a != nil {
		g.sendReply(a, now)
		return
	}
	switch {
	case m.Holder.Node != g.nodeID:
		g.count.drop(dropForeign)
		return
	case !g.peer(from).requests.AllowN(now, 1):
		g.count.drop(dropAskedRate)
		return
	case len(g.asked.order) >= maxAsked:
		g.count.drop(dropAsked)
		return
	}
	a := &askedProbe{askedID: id, from: from, key: m.Key, holder: m.Holder, at: now}
	if !g.deliver(cluster.ProbeRequest{ID: m.ID, From: from.ID, Key: m.Key, Holder: m.Holder, Bindings: m.Others}) {
		return // when it comes again, there may be room
	}
	g.asked.known[id] = a
	g.asked.order = append(g.asked.order, a)
}

// ReplyProbe answers the [cluster.ProbeRequest] with that ID of a node.
func (g *Gossip) ReplyProbe(to string, id uint64, r cluster.ProbeReply) {
	g.in.call(func() { g.replyProbe(to, id, r, time.Now()) })
}

func (g *Gossip) replyProbe(to string, id uint64, r cluster.ProbeReply, now time.Time) {
	var a *askedProbe
	if n := g.roster.ByID(to); n != nil {
		a = g.asked.known[askedID{n.Incarnation, id}]
	}
	if a == nil || a.reply != nil || r.Outcome < cluster.Answered || r.Outcome > cluster.Refused {
		g.count.drop(dropReply)
		return
	}
	a.reply = &wire.ProbeReply{ID: id, Key: a.key, Outcome: r.Outcome, Reason: r.Reason, Answered: r.At, RetryAt: r.RetryAt}
	switch {
	case r.Binding.Evidence == 0 && r.Outcome == cluster.Answered:
		a.reply.Outcome = cluster.Gone // it went meanwhile
	case r.Outcome != cluster.Gone:
		a.reply.Binding = r.Binding
	}
	a.reply.Binding.Holder.ID = a.holder
	g.sendReply(a, now)
}

func (g *Gossip) sendReply(a *askedProbe, now time.Time) {
	if a.reply != nil && a.from.Alive() && a.from.Incarnation == a.incarnation {
		g.out.add(a.from, *a.reply, now)
	}
}
