package keeper

import (
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

// match returns the others of a lease that was accepted, and which of their nodes are to be notified: all if there
// is something new, or those that were not notified for a while. The acknowledgement notifies the sender.
func (t *Table) match(r *record, changed bool, now time.Time) (others wire.Notice, notify []*roster.Node) {
	found := t.others(r)
	notified := func(s *sender) {
		for _, o := range r.entry.records {
			if o.sender == s {
				o.notified = now
			}
		}
	}
	for i, o := range found {
		if ofNode(found[:i], o.sender) || !changed && now.Sub(o.notified) < notifyAgain {
			continue
		}
		notified(o.sender)
		if o.sender.node.Alive() { // one that is not there sends its leases again when it returns
			notify = append(notify, o.sender.node)
		}
	}
	if len(found) > 0 {
		notified(r.sender)
	}
	return named(r.entry, found, r.entry.live), notify
}

// Others returns what a node with a holder of a key is to be notified of now.
func (t *Table) Others(n *roster.Node, key detector.Key) wire.Notice {
	if e := t.entries[key]; e != nil {
		for _, r := range e.records {
			if r.sender.node == n && !r.gone {
				return named(e, t.others(r), e.live)
			}
		}
	}
	return wire.Notice{}
}

func named(e *entry, records []*record, total int) wire.Notice {
	if len(records) == 0 {
		return wire.Notice{}
	}
	others := wire.Notice{Key: e.key, Total: total}
	for _, r := range records[:min(len(records), maxOthers)] {
		b := r.binding
		b.LastSeen = r.received
		others.Others = append(others.Others, b)
	}
	return others
}

func ofNode(records []*record, s *sender) bool {
	return slices.ContainsFunc(records, func(r *record) bool { return r.sender == s })
}

// others returns what the node of a holder is to be notified of. Where few nodes have the address, that is all of
// them, the latest first, but one holder of each node before all others: a node that has it many times, or says so,
// does not hide the others. Where many have it, it is the neighbours in the order in which they came.
func (t *Table) others(r *record) []*record {
	e := r.entry
	if e.live < 2 {
		return nil
	}
	var first, more []*record
	few, behind := e.few(), false
	for _, o := range slices.Backward(e.records) {
		switch {
		case o == r:
			behind = true
		case o.gone || !t.conflicting(r.sender, &r.binding, o):
		case few && ofNode(first, o.sender):
			more = append(more, o)
		case few:
			first = append(first, o)
		case behind:
			return append(first, o)
		default:
			first = append(first[:0], o)
		}
	}
	return append(first, more...)
}

// few reports whether the nodes that have the address are so few that each may be notified of all.
func (e *entry) few() bool {
	if e.live <= maxOthers {
		return true
	}
	var nodes []*sender
	for _, r := range e.records {
		if !r.gone && !slices.Contains(nodes, r.sender) {
			if nodes = append(nodes, r.sender); len(nodes) > maxOthers {
				return false
			}
		}
	}
	return true
}

// matchOnly matches a holder that is not kept with one of those that are, another every time, so that not all
// come to ask the same.
func (t *Table) matchOnly(e *entry, s *sender, b *cluster.Binding) wire.Notice {
	e.turn++
	for i := range e.records {
		o := e.records[(e.turn+i)%len(e.records)]
		if !o.gone && t.conflicting(s, b, o) {
			return named(e, []*record{o}, e.live+1)
		}
	}
	return wire.Notice{}
}

// conflicting reports whether two holders may be a conflict between nodes. Holders of one node are for that node's
// own agent; two nodes may have one address for themselves in most places.
//
// A node that was booted anew has the addresses that it had, and leases of its former boot are still here: they
// conflict with nobody. Two nodes that have one name by mistake are there both, at two addresses.
func (t *Table) conflicting(s *sender, b *cluster.Binding, o *record) bool {
	x, y := s.node, o.sender.node
	switch {
	case x == y:
		return false
	case b.Evidence == detector.Claimed && o.binding.Evidence == detector.Claimed || areNodes(b, &o.binding):
		return false
	case x.Name == y.Name:
		return x.Alive() && y.Alive() && x.Address != y.Address
	}
	return t.there(x) && t.there(y)
}

// areNodes reports whether two holders are nodes that may have one address.
func areNodes(a, b *cluster.Binding) bool {
	return a.Evidence == detector.Host && b.Evidence == detector.Host && !detector.Told(a.Holder.Place, b.Holder.Place)
}

// there reports that a node was not booted anew.
func (t *Table) there(n *roster.Node) bool { return n.Alive() || !t.roster.HasNamesake(n) }
