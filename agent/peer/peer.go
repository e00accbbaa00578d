// Package peer is this node's side of the protocol between nodes: which bindings it leases to
// their keepers, what it answers to probe requests of other nodes, and what it asks them about
// their holders.
//
// It is pure: an event and the present go in, [Action] values come out of [Peer.Next]. It
// drives the node's [detector.Detector], so that whoever carries out the actions has the whole
// agent but for packets and sockets. A [Peer] is not safe for concurrent use.
package peer

import (
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Options configures a [Peer].
type Options struct {
	// Node is the NodeID of this node.
	Node     string
	Detector *detector.Detector
	// Alone says that there are no other nodes: no actions are for a cluster.
	Alone bool
}

// Peer drives a detector in a cluster. Create it with [New] and call [Peer.Configure] first.
type Peer struct {
	Options
	clusterNetwork func(network string) bool
	ready          time.Time // since when all of this node's holders may be known; zero: not yet
	queue          []Action
	requests       requests
	pairs          pairs
	requested      uint64 // probe requests sent
	dropped        uint64 // probe requests refused because there were too many
}

// New returns a Peer without bindings.
func New(opts Options) *Peer {
	return &Peer{Options: opts, pairs: pairs{published: make(map[string]int)}}
}

// Action is something to do: one of the types below. A [detector.Event] is to be reported.
type Action any

// The actions.
type (
	// Probe asks a holder of this node. The result goes to [Peer.Probed].
	Probe struct {
		detector.Probe
		// ForOther says that another node wants to know, and not this one.
		ForOther bool
		request  *request
	}
	// Ended says that a local binding ended, for whoever may want to ask the holder again.
	Ended struct {
		Key    detector.Key
		Holder detector.HolderID
	}
	// Lease is for the keepers of its key, until Withdraw; a later one replaces it.
	Lease struct{ cluster.Lease }
	// Withdraw ends a lease.
	Withdraw struct {
		Key    detector.Key
		Holder detector.HolderID
		// Others are the nodes that know of the holder from a conflict and are told directly.
		Others []string
	}
	// ProbeRemote is a probe request for the node of a holder, with this node's own holders.
	ProbeRemote struct {
		detector.Probe
		Own []cluster.Binding
	}
	// Reply is the reply to a probe request.
	Reply struct {
		ID uint64
		cluster.ProbeReply
	}
	// Share is how many addresses this node shares with another, for all nodes.
	SharedAddresses struct{ cluster.Pair }
)

// Cluster carries messages to other nodes. Its methods never wait.
type Cluster interface {
	// Lease tells the keepers of an address that a holder of this node has it, and goes
	// on until Withdraw. Telling again changes the claim.
	Lease(cluster.Lease)
	// Withdraw ends a lease; rivals are the nodes that were told of the holder in a
	// conflict and are told of its end directly.
	Withdraw(key detector.Key, holder detector.HolderID, rivals []string)
	// RequestProbe asks the node of a holder whether it has the address, and tells it of this
	// node's own holders. A ProbeReply with the same Probe follows within two
	// seconds, whatever happens.
	RequestProbe(s detector.Probe, own []cluster.Binding)
	// ReplyProbe answers a ProbeRequest.
	ReplyProbe(question uint64, t cluster.ProbeReply)
	// Pair tells all nodes how many addresses this node shares with another.
	Pair(cluster.Pair)
}

// Send carries out an action that is for other nodes, and reports whether it is one.
func Send(a Action, c Cluster) bool {
	switch a := a.(type) {
	case Lease:
		c.Lease(a.Lease)
	case Withdraw:
		c.Withdraw(a.Key, a.Holder, a.Others)
	case ProbeRemote:
		c.RequestProbe(a.Probe, a.Own)
	case Reply:
		c.ReplyProbe(a.ID, a.ProbeReply)
	case SharedAddresses:
		c.Pair(a.Pair)
	default:
		return false
	}
	return true
}

// Next returns the next thing to do, nil if there is nothing now. Each action is to be carried
// out before the next one is taken.
func (p *Peer) Next(now time.Time) Action {
	for len(p.queue) == 0 {
		r := p.requests.first(now)
		if r == nil {
			return nil
		}
		p.advance(r, now)
	}
	a := p.queue[0]
	p.queue[0] = nil
	if p.queue = p.queue[1:]; len(p.queue) == 0 {
		p.queue = nil
	}
	return a
}

func (p *Peer) add(a Action) { p.queue = append(p.queue, a) }

// At returns when [Peer.Tick] has something to do, zero for never.
func (p *Peer) At() time.Time {
	return earliest(earliest(p.Detector.Next(), p.requests.next()), p.pairs.countAt)
}

// Tick does what is due.
func (p *Peer) Tick(now time.Time) {
	p.Apply(p.Detector.Tick(now), now)
	if !p.pairs.countAt.IsZero() && !p.pairs.countAt.After(now) {
		p.countPairs()
	}
}

// Apply takes what the detector wants done.
func (p *Peer) Apply(effects detector.Effects, now time.Time) {
	for _, e := range effects.Events {
		if !p.Alone && e.Kind != detector.EventSuspected && e.Kind != detector.EventFaded {
			p.pairs.countAt = earliest(p.pairs.countAt, now.Add(pairsEvery))
		}
		p.add(e)
	}
	for _, s := range effects.Probes {
		switch {
		case s.Holder.Node == p.Node:
			p.add(Probe{Probe: s})
		case p.clusterWide(s.Key.Network):
			p.requested++
			p.add(ProbeRemote{s, p.localBindings(s.Key)})
		default:
			reason := "network " + s.Key.Network + " is each node's own"
			p.Apply(p.Detector.Withdraw(s.Key, s.Holder, reason, now), now)
		}
	}
}

// Observe takes a sighting on this node.
func (p *Peer) Observe(s detector.Sighting, now time.Time) {
	p.Apply(p.Detector.Observe(s, now), now)
	if s.Answer {
		p.answered(&s)
	}
}

// Ready says that from now on all holders of this node are about to be known.
func (p *Peer) Ready(now time.Time) { p.ready = now }

// Requested counts the probe requests that were sent, Dropped those refused because too many
// waited; both only grow.
func (p *Peer) Requested() uint64 { return p.requested }

// Dropped counts the probe requests of other nodes that were refused because too many waited.
func (p *Peer) Dropped() uint64 { return p.dropped }

// Receive takes a message of another node, but for a [cluster.Query].
func (p *Peer) Receive(message cluster.Message, now time.Time) {
	switch m := message.(type) {
	case cluster.ConflictNotice:
		p.observe(m.Key, m.Bindings, now)
	case cluster.ProbeRequest:
		p.observe(m.Key, m.Bindings, now)
		p.receiveRequest(m, now)
	case cluster.ProbeReply:
		p.receiveReply(m, now)
	case cluster.Returned:
		p.Apply(p.Detector.Returned(m.Node, now), now)
	}
}

// observe lets the detector know of holders on other nodes.
func (p *Peer) observe(key detector.Key, bindings []cluster.Binding, now time.Time) {
	if !p.clusterWide(key.Network) {
		return
	}
	for _, c := range bindings {
		if c.Holder.ID.Node != p.Node {
			p.Apply(p.Detector.Observe(sightingOf(key, c, false, c.LastSeen), now), now)
		}
	}
}

// sightingOf is a binding of another node as the detector takes it.
func sightingOf(key detector.Key, c cluster.Binding, answer bool, at time.Time) detector.Sighting {
	return detector.Sighting{
		Key: key, Holder: c.Holder, Evidence: c.Evidence, Answer: answer, At: at,
		FirstSeen: c.FirstSeen, FoundAtStart: c.FoundAtStart, Occurrences: c.Occurrences,
	}
}

// receiveReply hands the answer of another node to the detector.
func (p *Peer) receiveReply(t cluster.ProbeReply, now time.Time) {
	s := t.Probe
	if s.Holder.Node == p.Node {
		return // only the node of a holder speaks for it
	}
	node := "node " + cluster.NodeName(s.Holder.Node)
	if t.Binding.Holder.ID == s.Holder {
		p.Detector.DescribeAt(s.Key, s.Holder, func(h *detector.Holder) { *h = t.Binding.Holder })
	}
	var effects detector.Effects
	switch t.Outcome {
	case cluster.Answered:
		effects = p.Detector.Observe(sightingOf(s.Key, t.Binding, true, t.At), now)
	case cluster.Unanswered, cluster.Forwards:
		effects = p.Detector.Unanswered(s, t.Outcome == cluster.Forwards, now)
	case cluster.Gone:
		if s.Purpose == 0 { // nobody asked, and so it may be old news
			effects = p.Detector.Recheck(s.Key, s.Holder, now)
			break
		}
		reason := t.Reason
		if reason == "" {
			reason = "it is gone"
		}
		effects = p.Detector.Withdraw(s.Key, s.Holder, node+" says "+reason, now)
	case cluster.Refused:
		effects = p.Detector.ProbeRefused(s, node+" says "+t.Reason, t.RetryAt, now)
	case cluster.Unreachable:
		effects = p.Detector.Unreachable(s, node+" does not answer", now)
	}
	p.Apply(effects, now)
}

// earliest returns the earlier of two times, ignoring zero ones.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
