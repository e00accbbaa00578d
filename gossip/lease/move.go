package lease

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dupip/dupip/gossip/rank"
	"github.com/dupip/dupip/gossip/roster"
)

// Came takes in that a node is in the ring. It keeps the keys for which it ranks among the
// first; whoever ranked last there keeps them no more, which need not be told to anybody:
// what a former keeper knows expires.
func (t *Table) Came(n *roster.Node, now time.Time) {
	for _, l := range t.leases {
		if l.gone || slices.ContainsFunc(l.keepers, func(k keeper) bool { return k.Node == n }) {
			continue
		}
		score := rank.Score(n.Seed, l.hash)
		if last := len(l.keepers) - 1; last+1 >= t.replicas && l.keepers[last].Score >= score {
			continue
		}
		at := len(l.keepers)
		for at > 0 && l.keepers[at-1].Score < score {
			at--
		}
		p := rank.Pick[*roster.Node]{Node: n, Seed: n.Seed, Score: score}
		l.keepers = slices.Insert(l.keepers, at, t.later(l, p, now))
		l.keepers = l.keepers[:min(len(l.keepers), t.replicas)]
		t.schedule(l)
	}
}

// Renewed takes in that a keeper's agent is another incarnation: it knows nothing.
func (t *Table) Renewed(n *roster.Node, now time.Time) {
	for _, l := range t.leases {
		for i := range l.keepers {
			if k := &l.keepers[i]; k.Node == n {
				*k = t.later(l, k.Pick, now)
				k.acked = l.gone // nor is there anything to withdraw
			}
		}
		t.schedule(l)
	}
}

// Went takes in that a node is in the ring no more. Others take its place.
func (t *Table) Went(n *roster.Node, now time.Time) {
	for _, l := range t.leases {
		i := slices.IndexFunc(l.keepers, func(k keeper) bool { return k.Node == n })
		if i < 0 {
			continue
		}
		l.keepers = slices.Delete(l.keepers, i, i+1)
		if !l.gone {
			t.pick(l, now)
		}
		t.schedule(l)
	}
}

// pick picks the keepers of a lease. Those that it has already stay as they are.
func (t *Table) pick(l *lease, now time.Time) {
	var room [4]rank.Pick[*roster.Node]
	picks := t.roster.Ring.Pick(room[:0], l.hash, t.replicas)
	keepers := make([]keeper, 0, len(picks))
	for _, p := range picks {
		i := slices.IndexFunc(l.keepers, func(k keeper) bool { return k.Node == p.Node })
		if i >= 0 {
			keepers = append(keepers, l.keepers[i])
		} else {
			keepers = append(keepers, t.later(l, p, now))
		}
	}
	l.keepers = keepers
}

// later makes a keeper that is told soon. If it is this node there is nothing to wait for.
func (t *Table) later(l *lease, p rank.Pick[*roster.Node], now time.Time) keeper {
	next, spread := now, moveSpread
	if !slices.ContainsFunc(l.keepers, func(k keeper) bool { return k.told && k.Node != t.roster.Self() && k.Node != p.Node }) {
		spread = firstSpread
	}
	if p.Node != t.roster.Self() {
		next = t.round(now.Add(rand.N(spread)))
	}
	return keeper{Pick: p, next: next, since: next}
}
