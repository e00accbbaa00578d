package exchange

import (
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

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
