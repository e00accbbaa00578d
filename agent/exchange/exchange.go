// Package exchange is this node's side of the protocol between nodes: it leases bindings to their
// keepers, replies to probe requests of other nodes, and sends probe requests about their holders.
//
// It is pure: an event and the time go in, messages go to a [Cluster] and [Action] values come out of [Exchange.Next].
// It drives the node's [detector.Detector]; only packets and sockets are outside. A [Exchange] is not safe for
// concurrent use.
package exchange

import (
	"cmp"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/internal/schedule"
)

// Options configures a [Exchange].
type Options struct {
	// Node is the NodeID of this node.
	Node     string
	Detector *detector.Detector
	// Cluster sends to other nodes; nil if there are none.
	Cluster Cluster
}

// Exchange drives a detector in a cluster. Create it with [New] and call [Exchange.Configure] first.
type Exchange struct {
	Options
	spansCluster func(network string) bool
	ready        time.Time // since when all holders of this node may be known; zero: not yet
	queue        []Action
	requests     requests
	// Requested counts the probe requests that were sent, Dropped those of other nodes that were refused because too many
	// waited.
	Requested, Dropped uint64
}

// New returns an Exchange without bindings.
func New(opts Options) *Exchange {
	return &Exchange{Options: opts}
}

// Action is something to do on this node: one of the types below, or a [detector.Event] to report.
type Action any

// The actions.
type (
	// Probe is a probe of a holder of this node. The result goes to [Exchange.Probed].
	Probe struct {
		detector.Probe
		// ForOther says that another node requested it.
		ForOther bool
		request  *request
	}
	// Ended are local bindings that ended: the observer must forget them, and their holders may be probed
	// again.
	Ended []detector.Ended
)

// Cluster sends messages to other nodes. Its methods do not block.
type Cluster interface {
	// Lease keeps a binding of this node leased to the keepers of its address, until Withdraw. A
	// later lease of the same holder and key replaces it.
	Lease(cluster.Lease)
	// Withdraw ends a lease. others are the nodes that know the holder from a conflict; they are
	// notified directly.
	Withdraw(key detector.Key, holder detector.HolderID, others []string)
	// RequestProbe asks the node of a holder whether it has the address, and sends this node's own
	// holders along. A ProbeReply with the same Probe follows within two seconds in any case.
	RequestProbe(p detector.Probe, own []cluster.Binding)
	// ReplyProbe replies to the ProbeRequest with an ID from a node.
	ReplyProbe(to string, id uint64, reply cluster.ProbeReply)
}

// Next returns the next action, nil if there is none now. Carry out each action before the next call.
func (p *Exchange) Next(now time.Time) Action {
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

func (p *Exchange) add(a Action) { p.queue = append(p.queue, a) }

// NextTick returns when [Exchange.Tick] has something to do, zero for never.
func (p *Exchange) NextTick() time.Time {
	return schedule.Earlier(p.Detector.Next(), p.requests.next())
}

// Tick does what is due at now.
func (p *Exchange) Tick(now time.Time) {
	p.Apply(p.Detector.Tick(now), now)
}

// Apply turns the effects of a call of the detector into actions.
func (p *Exchange) Apply(effects detector.Effects, now time.Time) {
	for _, e := range effects.Events {
		p.add(e)
	}
	for _, s := range effects.Probes {
		switch {
		case s.Holder.Node == p.Node:
			p.add(Probe{Probe: s})
		case p.clusterWide(s.Key.Network):
			p.Requested++
			p.Cluster.RequestProbe(s, p.localBindings(s.Key))
		default:
			reason := "network " + s.Key.Network + " does not span the cluster"
			p.Apply(p.Detector.Withdraw(s.Key, s.Holder, reason, now), now)
		}
	}
}

// Observe takes a sighting on this node.
func (p *Exchange) Observe(s detector.Sighting, now time.Time) {
	p.Apply(p.Detector.Observe(s, now), now)
	if s.Answer {
		p.answered(&s)
	}
}

// Ready tells the exchange that the agent observes all interfaces; soon it knows all holders.
func (p *Exchange) Ready(now time.Time) { p.ready = now }

// Receive takes a message of another node, except a [cluster.Query].
func (p *Exchange) Receive(message cluster.Message, now time.Time) {
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

// observe passes bindings of other nodes to the detector.
func (p *Exchange) observe(key detector.Key, bindings []cluster.Binding, now time.Time) {
	if !p.clusterWide(key.Network) {
		return
	}
	for _, c := range bindings {
		if c.Holder.ID.Node != p.Node {
			p.Apply(p.Detector.Observe(sightingOf(key, c, false, c.LastSeen), now), now)
		}
	}
}

// sightingOf converts a binding of another node for the detector.
func sightingOf(key detector.Key, c cluster.Binding, answer bool, at time.Time) detector.Sighting {
	return detector.Sighting{
		Key: key, Holder: c.Holder, Evidence: c.Evidence, Answer: answer, At: at,
		FirstSeen: c.FirstSeen, FoundAtStart: c.FoundAtStart, Occurrences: c.Occurrences,
	}
}

// receiveReply passes the reply of another node to the detector.
func (p *Exchange) receiveReply(t cluster.ProbeReply, now time.Time) {
	s := t.Probe
	if s.Holder.Node == p.Node {
		return // other nodes cannot reply for this node's holders
	}
	node := "node " + cluster.NodeName(s.Holder.Node)
	if t.Binding.Holder.ID == s.Holder {
		p.Apply(p.Detector.DescribeAt(s.Key, s.Holder, func(key detector.Key, h *detector.Holder) {
			given := h.Given
			if *h = t.Binding.Holder; key != s.Key {
				h.Given = given
			}
		}, now), now)
	}
	var effects detector.Effects
	switch t.Outcome {
	case cluster.Answered:
		effects = p.Detector.Observe(sightingOf(s.Key, t.Binding, true, t.At), now)
	case cluster.Unanswered, cluster.Forwards:
		effects = p.Detector.Unanswered(s, t.Outcome == cluster.Forwards, now)
	case cluster.Gone:
		if s.Purpose == "" { // it was not requested, so it may be outdated
			effects = p.Detector.Recheck(s.Key, s.Holder, now)
			break
		}
		effects = p.Detector.Withdraw(s.Key, s.Holder, node+": "+cmp.Or(t.Reason, "the holder is gone"), now)
	case cluster.Refused:
		effects = p.Detector.ProbeRefused(s, node+": "+t.Reason, t.RetryAt, now)
	case cluster.Unreachable:
		effects = p.Detector.Unreachable(s, now)
	}
	p.Apply(effects, now)
}
