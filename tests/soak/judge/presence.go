package judge

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// address has the present and past holders of an address.
type address struct {
	ip netip.Addr
	// now are the holders in the last snapshots, past are those before.
	now  map[Holder]*presence
	past []*presence
	// pairs are pairs of present and past holders.
	pairs []*pair
}

// presence is one stretch of time in which a holder has an address.
type presence struct {
	holder Holder
	// It began at from at the earliest, and ended at until at the latest.
	from, until time.Duration
	// The holder had it for certain all the time between sure and seen; both never, and
	// zero, if it never had it for certain.
	sure, seen time.Duration
	firm       bool // it certainly had the address in the last snapshot
	deaf       bool // at some time
}

// present records a snapshot with the address; firm if the holder certainly has it.
func (j *Judge) present(a *address, l Snapshot, firm bool) {
	p := a.now[l.Holder]
	if p == nil {
		p = &presence{holder: l.Holder, from: j.lastSeen[l.Holder], until: never, sure: never}
		a.now[l.Holder] = p
		for _, o := range a.now {
			a.join(o, p)
		}
		for _, o := range a.past {
			if o.until > p.from {
				a.join(o, p)
			}
		}
	}
	if firm {
		if !p.firm {
			p.sure = l.To
		}
		p.seen = l.From
	}
	p.firm, p.deaf = firm, p.deaf || l.Deaf
}

// absent records a snapshot without the address.
func (a *address) absent(l Snapshot) {
	if p := a.now[l.Holder]; p != nil {
		p.until = l.To
		delete(a.now, l.Holder)
		a.past = append(a.past, p)
	}
}

// join makes a pair of two presences that may be a conflict.
func (a *address) join(x, y *presence) {
	if x.holder == y.holder || x.holder.host() && y.holder.host() {
		return
	}
	a.pairs = append(a.pairs, &pair{ip: a.ip, x: x, y: y, at: make(map[string]*obligation)})
}

// mayHave returns whether a holder may have had the address at some time between two times.
func (a *address) mayHave(h Holder, from, until time.Duration) bool {
	ok := func(p *presence) bool { return p.holder == h && p.from <= until && p.until >= from }
	if p := a.now[h]; p != nil && ok(p) {
		return true
	}
	return slices.ContainsFunc(a.past, ok)
}

// holders are those that may have had the address at some time between two times.
func (a *address) holders(from, until time.Duration) (all []Holder) {
	for _, p := range slices.AppendSeq(slices.Clone(a.past), maps.Values(a.now)) {
		if p.from <= until && p.until >= from {
			all = append(all, p.holder)
		}
	}
	return all
}

// forget drops what ended before a time.
func (a *address) forget(before time.Duration) {
	a.past = slices.DeleteFunc(a.past, func(p *presence) bool { return p.until < before })
	a.pairs = slices.DeleteFunc(a.pairs, func(p *pair) bool {
		_, until := p.possible()
		return until < before
	})
}

// pair are two holders that had one address, perhaps at the same time.
type pair struct {
	ip      netip.Addr
	x, y    *presence
	at      map[string]*obligation // by node, made when needed
	counted bool
	found   bool
}

// obligation is that of an agent to report a pair.
type obligation struct {
	// since is when it began, where that is later than the pair.
	since time.Duration
	// found is since when the agent names both in a confirmed conflict, zero if it does not.
	found time.Duration
	// overdue: the finding Overdue was made. done: the verdict is final.
	overdue, done bool
}

func (p *pair) obligation(node string) *obligation {
	if p.at[node] == nil {
		p.at[node] = &obligation{}
	}
	return p.at[node]
}

// namedIn returns whether a conflict names both.
func (p *pair) namedIn(c Conflict) bool {
	return c.Confirmed && slices.Contains(c.Holders, p.x.holder) && slices.Contains(c.Holders, p.y.holder)
}

// of returns whether one of the two is on a node.
func (p *pair) of(node string) bool { return p.x.holder.Node == node || p.y.holder.Node == node }

// nodes are those of the two.
func (p *pair) nodes() []string {
	if p.x.holder.Node == p.y.holder.Node {
		return []string{p.x.holder.Node}
	}
	return []string{p.x.holder.Node, p.y.holder.Node}
}

// deaf returns whether an agent learns of one of the two only by what it answers to others.
func (p *pair) deaf() bool { return p.x.deaf || p.y.deaf }

// possible is the longest time for which both can have had the address.
func (p *pair) possible() (from, until time.Duration) {
	return max(p.x.from, p.y.from), min(p.x.until, p.y.until)
}

// certain is the time for which both certainly had it; none if until is before from.
func (p *pair) certain() (from, until time.Duration) {
	return max(p.x.sure, p.y.sure), min(p.x.seen, p.y.seen)
}
