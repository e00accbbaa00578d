package peer

import (
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// clusterWide says whether a network's addresses are leased.
func (p *Peer) clusterWide(network string) bool { return !p.Alone && p.clusterNetwork(network) }

// Configure says which networks reach over all nodes, at the start and after each reload; wide
// must go on answering the same until the next call.
func (p *Peer) Configure(wide func(network string) bool, now time.Time) {
	before := p.clusterNetwork
	p.clusterNetwork = wide
	if before == nil || p.Alone {
		return
	}
	for _, b := range p.Detector.Bindings(nil) {
		was, is, own := before(b.Key.Network), wide(b.Key.Network), b.Holder.ID.Node == p.Node
		switch {
		case was == is:
		case !own && !is:
			p.Apply(p.Detector.Withdraw(b.Key, b.Holder.ID, "network "+b.Key.Network+" is each node's own now", now), now)
		case own && is:
			if c := p.find(b.Key, b.Holder.ID); c != nil {
				p.add(Lease{cluster.Lease{Key: b.Key, Binding: *c}})
			}
		case own:
			p.add(Withdraw{Key: b.Key, Holder: b.Holder.ID})
		}
	}
}

// Publish leases what has changed among this node's bindings since the last call, and withdraws
// what has ended. It is to be called once after each event.
func (p *Peer) Publish() {
	for _, change := range p.Detector.TakeChanges() {
		b := change.Binding
		if change.Ended {
			p.add(Ended{b.Key, b.Holder.ID})
		}
		switch {
		case p.Alone:
		case change.Ended:
			// Whatever the network is now: when it was leased it may have been another.
			p.add(Withdraw{b.Key, b.Holder.ID, change.OtherNodes})
		case p.clusterWide(b.Key.Network):
			p.add(Lease{cluster.Lease{Key: b.Key, Binding: bindingOf(b, change.Occurrences)}})
		}
	}
}

// localBindings returns this node's own holders of an address that count.
func (p *Peer) localBindings(key detector.Key) []cluster.Binding {
	occurrences := p.Detector.Occurrences(key)
	var own []cluster.Binding
	for _, b := range p.Detector.LocalHolders(key) {
		own = append(own, bindingOf(b, occurrences))
	}
	return own
}

// find returns one of this node's own holders of an address, nil if it does not count.
func (p *Peer) find(key detector.Key, id detector.HolderID) *cluster.Binding {
	for _, c := range p.localBindings(key) {
		if c.Holder.ID == id {
			return &c
		}
	}
	return nil
}

// bindingOf is a binding as other nodes know it.
func bindingOf(b detector.Binding, occurrences int) cluster.Binding {
	return cluster.Binding{
		Holder: b.Holder, Evidence: b.Evidence, FirstSeen: b.FirstSeen, LastSeen: b.LastSeen, Occurrences: occurrences,
		FoundAtStart: b.FoundAtStart,
	}
}
