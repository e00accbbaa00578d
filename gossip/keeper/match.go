package keeper

import (
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/gossip/wire"
)

// match says who is to be told after a lease was told: its own node always, because that
// is what makes up for a message lost, the others if there is something new or they were
// not told for a while.
func (t *Table) match(r *record, changed bool, now time.Time) ([]Tell, Refusal) {
	rivals := t.rivals(r)
	if len(rivals) == 0 {
		return nil, Taken
	}
	tells, ok := t.tell(nil, r, rivals, now)
	for i, o := range rivals {
		if told(rivals[:i], o.sender) || !changed && now.Sub(o.told) < tellAgain {
			continue
		}
		// r goes first: of the others there may be too many.
		claims := []*record{r}
		for _, also := range t.rivals(o) {
			if also != r {
				claims = append(claims, also)
			}
		}
		var done bool
		tells, done = t.tell(tells, o, claims, now)
		ok = ok && done
	}
	for i := range tells {
		tells[i].News = changed
	}
	if !ok {
		return tells, RefusedTelling
	}
	return tells, Taken
}

func told(records []*record, s *sender) bool {
	for _, r := range records {
		if r.sender == s {
			return true
		}
	}
	return false
}

// tell tells a holder's node of rivals, unless it was told too much already. One that is not
// there is told when it returns.
func (t *Table) tell(tells []Tell, r *record, rivals []*record, now time.Time) (_ []Tell, ok bool) {
	s := r.sender
	if len(rivals) == 0 || !s.node.Alive {
		return tells, true
	}
	if !s.tell.AllowN(now, 1) {
		return tells, false
	}
	rival := wire.Rival{Key: r.entry.key, Total: r.entry.live}
	for _, o := range rivals[:min(len(rivals), maxClaims)] {
		rival.Claims = append(rival.Claims, o.present(now))
	}
	for _, o := range r.entry.records {
		if o.sender == s {
			o.told = now
		}
	}
	return append(tells, Tell{To: s.node, Rival: rival}), true
}

// present is the claim as it is told to others, by the incarnation of the node's agent that
// is there now.
func (r *record) present(now time.Time) wire.Claim {
	c := r.claim
	c.Holder.Member = r.sender.node.Member
	c.FirstSeen, c.LastSeen = now.Sub(r.firstSeen), now.Sub(r.heard)
	return c
}

// rivals returns whom the node of a holder is to be told of. Where few nodes have the
// address, that is all of them, one holder of each node first: a node that has it many
// times, or says so, does not hide the others. Where many have it, it is the neighbours in
// the order in which they came.
func (t *Table) rivals(r *record) []*record {
	e := r.entry
	if e.live < 2 {
		return nil
	}
	var first, more []*record
	few := e.few()
	behind := false
	for _, o := range e.records {
		switch {
		case o == r:
			behind = true
		case o.gone || !t.rival(r.sender, r.claim, o):
		case few && told(first, o.sender):
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

// few says whether the nodes that have the address are so few that each may be told of all.
func (e *entry) few() bool {
	if e.live <= maxClaims {
		return true
	}
	var nodes []*sender
	for _, r := range e.records {
		if !r.gone && !slices.Contains(nodes, r.sender) {
			if nodes = append(nodes, r.sender); len(nodes) > maxClaims {
				return false
			}
		}
	}
	return true
}

// matchOnly matches a holder that is not kept with one of those that are, another every
// time, so that not all come to ask the same.
func (t *Table) matchOnly(e *entry, s *sender, l wire.Lease, now time.Time) ([]Tell, Refusal) {
	if e.live == 0 {
		return nil, Taken
	}
	e.turn++
	for i := range e.records {
		o := e.records[(e.turn+i)%len(e.records)]
		if o.gone || !t.rival(s, l.Claim, o) {
			continue
		}
		if !s.tell.AllowN(now, 1) {
			return nil, RefusedTelling
		}
		rival := wire.Rival{Key: e.key, Total: e.live + 1, Claims: []wire.Claim{o.present(now)}}
		return []Tell{{To: s.node, Rival: rival}}, Taken
	}
	return nil, Taken
}

// rival says whether two holders may be a conflict between nodes. Holders of one node are
// that node's own affair; that two nodes have one address for themselves is none of ours.
//
// A node that was booted anew has the addresses that it had, and leases of its former boot
// are still here: they are nobody's rivals. Two nodes that have one name by mistake are
// there both, at two addresses.
func (t *Table) rival(s *sender, c wire.Claim, o *record) bool {
	a, b := s.node, o.sender.node
	switch {
	case a == b:
		return false
	case c.Evidence == detector.Host && o.claim.Evidence == detector.Host:
		return false
	case a.Name == b.Name:
		return a.Alive && b.Alive && a.Address != b.Address
	}
	return (a.Alive || t.roster.Namesake(a) == nil) && (b.Alive || t.roster.Namesake(b) == nil)
}
