// Package exchange is this node's side of the protocol between nodes: it leases bindings to their
// keepers, replies to probe requests of other nodes, and sends probe requests about their holders.
//
// It is pure: an event and the time go in, messages go to a [Cluster] and [Action] values come out of [Exchange.Next].
// It drives the node's [detector.Detector]; only packets and sockets are outside. An [Exchange] is not safe for
// concurrent use.
package exchange

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/internal/schedule"
)

// Options configures an [Exchange].
type Options struct {
	// Node is the NodeID of this node.
	Node     string
	Detector *detector.Detector
	// Cluster sends to other nodes; nil if there are none.
	Cluster Cluster
	// Address is where this node receives what others send; zero if there are none.
	Address netip.Addr
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
	// holders along. A ProbeReply with the same Probe follows within three seconds in any case.
	RequestProbe(p detector.Probe, own []cluster.Binding)
	// ReplyProbe replies to the ProbeRequest with an ID from a node.
	ReplyProbe(to string, id uint64, reply cluster.ProbeReply)
}

// Next returns the next action, nil if there is none now. Carry out each action before the next call.
func (x *Exchange) Next(now time.Time) Action {
	for len(x.queue) == 0 {
		r := x.requests.first(now)
		if r == nil {
			return nil
		}
		x.advance(r, now)
	}
	a := x.queue[0]
	x.queue[0] = nil
	if x.queue = x.queue[1:]; len(x.queue) == 0 {
		x.queue = nil
	}
	return a
}

func (x *Exchange) add(a Action) { x.queue = append(x.queue, a) }

// NextTick returns when [Exchange.Tick] has something to do, zero for never.
func (x *Exchange) NextTick() time.Time {
	return schedule.Earlier(x.Detector.Next(), x.requests.next())
}

// Tick does what is due at now.
func (x *Exchange) Tick(now time.Time) {
	x.Apply(x.Detector.Tick(now), now)
}

// Apply turns the effects of a call of the detector into actions.
func (x *Exchange) Apply(effects detector.Effects, now time.Time) {
	for _, e := range effects.Events {
		x.add(e)
	}
	for _, s := range effects.Probes {
		switch {
		case s.Holder.Node == x.Node:
			x.add(Probe{Probe: s})
		case x.clusterWide(s.Key.Network) && s.Hear != (detector.MAC{}):
			x.hear(s, now)
		case x.clusterWide(s.Key.Network):
			x.requestProbe(s)
		default:
			reason := "network " + s.Key.Network + " does not span the cluster"
			x.Apply(x.Detector.Withdraw(s.Key, s.Holder, reason, now), now)
		}
	}
}

// requestProbe asks the node of a holder whether it has the address.
func (x *Exchange) requestProbe(s detector.Probe) {
	x.Requested++
	x.Cluster.RequestProbe(s, x.localBindings(s.Key))
}

// Observe takes a sighting on this node. It returns why the detector dropped it, if it did.
func (x *Exchange) Observe(s detector.Sighting, now time.Time) (refused string) {
	effects := x.Detector.Observe(s, now)
	x.Apply(effects, now)
	if s.Answer {
		x.answered(&s, now)
	}
	return effects.Refused
}

// Ready tells the exchange that the agent observes all interfaces; soon it knows all holders.
func (x *Exchange) Ready(now time.Time) { x.ready = now }

// Receive takes a message of another node, except a [cluster.Query].
func (x *Exchange) Receive(message cluster.Message, now time.Time) {
	switch m := message.(type) {
	case cluster.ConflictNotice:
		x.observe(m.Key, m.Bindings, now)
	case cluster.ProbeRequest:
		x.observe(m.Key, m.Bindings, now)
		x.receiveRequest(m, now)
	case cluster.ProbeReply:
		x.receiveReply(m, now)
	case cluster.Returned:
		x.Apply(x.Detector.Returned(m.Node, now), now)
	case cluster.Stopped:
		x.Detector.Stopped(m.Node, now)
	}
}

// observe passes bindings of other nodes to the detector.
func (x *Exchange) observe(key detector.Key, bindings []cluster.Binding, now time.Time) {
	if !x.clusterWide(key.Network) {
		return
	}
	for _, c := range bindings {
		if c.Holder.ID.Node != x.Node {
			x.Apply(x.Detector.Observe(sightingOf(key, c, false, c.LastSeen), now), now)
		}
	}
}

// sightingOf converts a binding of another node for the detector.
func sightingOf(key detector.Key, c cluster.Binding, answer bool, at time.Time) detector.Sighting {
	if c.Evidence == detector.Host {
		c.Holder.NetnsName = cmp.Or(c.Holder.NetnsName, "host") // else its name comes with its node's first reply
	}
	return detector.Sighting{
		Key: key, Holder: c.Holder, Evidence: c.Evidence, Answer: answer, At: at, Listed: c.Evidence == detector.Host || c.Holder.Place != 0,
		FirstSeen: c.FirstSeen, FoundAtStart: c.FoundAtStart, Occurrences: c.Occurrences, Life: c.Life,
	}
}

// receiveReply passes the reply of another node to the detector.
func (x *Exchange) receiveReply(t cluster.ProbeReply, now time.Time) {
	s := t.Probe
	if s.Holder.Node == x.Node {
		return // other nodes cannot reply for this node's holders
	}
	if t.Binding.Holder.ID == s.Holder {
		x.Apply(x.Detector.Describe(s.Holder, func(key detector.Key, h *detector.Holder) {
			given := h.Given
			switch {
			case key == s.Key:
				*h = t.Binding.Holder
			case t.Binding.Evidence != detector.Host: // a node has each address on a device of its own
				*h = t.Binding.Holder
				h.Given = given
			}
		}, now, s.Key), now)
	}
	if t.Outcome == detector.Answered {
		if s.Purpose == "" {
			return // see askWhetherGone
		}
		x.Apply(x.Detector.Observe(sightingOf(s.Key, t.Binding, true, t.At), now), now)
		return
	}
	why := t.Reason
	if t.Outcome == detector.Gone {
		why = cmp.Or(why, "the holder is gone")
	}
	result := detector.Result{Outcome: t.Outcome, Reason: "node " + cluster.NodeName(s.Holder.Node) + ": " + why, Until: t.RetryAt}
	x.Apply(x.Detector.Probed(s, result, now), now)
}

func (x *Exchange) clusterWide(network string) bool {
	return x.Cluster != nil && x.spansCluster(network)
}

// Configure sets which networks span the cluster, at the start and after each reload. The results of
// spansCluster must not change until the next call.
func (x *Exchange) Configure(spansCluster func(network string) bool, now time.Time) {
	before := x.spansCluster
	x.spansCluster = spansCluster
	if before == nil || x.Cluster == nil {
		return
	}
	for _, b := range x.Detector.Bindings(nil) {
		was, is, own := before(b.Key.Network), spansCluster(b.Key.Network), b.Holder.ID.Node == x.Node
		switch {
		case was == is:
		case !own && !is:
			x.Apply(x.Detector.Withdraw(b.Key, b.Holder.ID, "network "+b.Key.Network+" does not span the cluster any more", now), now)
		case own && is:
			if c := x.find(b.Key, b.Holder.ID); c != nil {
				x.Cluster.Lease(cluster.Lease{Key: b.Key, Binding: *c})
			}
		case own:
			x.Cluster.Withdraw(b.Key, b.Holder.ID, nil)
		}
	}
}

// Publish leases the bindings of this node that have changed since the last call, and withdraws those
// that have ended. Call it after each event.
func (x *Exchange) Publish() {
	if ended := x.Detector.TakeEnded(); len(ended) > 0 {
		x.add(Ended(ended))
	}
	for _, change := range x.Detector.TakeChanges() {
		b := change.Binding
		switch {
		case x.Cluster == nil:
		case change.Ended:
			// The network may have spanned the cluster when the binding was leased.
			x.Cluster.Withdraw(b.Key, b.Holder.ID, change.OtherNodes)
			x.gone(b.Key, b.Holder.ID)
		case x.clusterWide(b.Key.Network):
			x.Cluster.Lease(cluster.Lease{Key: b.Key, Binding: bindingOf(b, change.Occurrences)})
		}
	}
}

// localBindings returns this node's own holders of an address that count.
func (x *Exchange) localBindings(key detector.Key) []cluster.Binding {
	var own []cluster.Binding
	holders, occurrences := x.Detector.LocalHolders(key)
	for _, b := range holders {
		own = append(own, bindingOf(b, occurrences))
	}
	return own
}

// find returns one of this node's own holders of an address, nil if it does not count.
func (x *Exchange) find(key detector.Key, id detector.HolderID) *cluster.Binding {
	for _, c := range x.localBindings(key) {
		if c.Holder.ID == id {
			return &c
		}
	}
	return nil
}

// bindingOf converts a binding for other nodes.
func bindingOf(b detector.Binding, occurrences int) cluster.Binding {
	return cluster.Binding{
		Holder: b.Holder, Evidence: b.Evidence, FirstSeen: b.FirstSeen, LastSeen: b.LastSeen, Occurrences: occurrences,
		FoundAtStart: b.FoundAtStart, Life: b.Life,
	}
}
