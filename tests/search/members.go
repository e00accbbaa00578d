package search

import (
	"slices"
	"time"
)

// membership notifies agents of each other, as memberlist would in a network like this one: late, and wrong for a while. A member that
// answers nobody is given up after some seconds; one that any other member reaches is not.
type membership struct {
	w     *world
	pairs map[[2]*agent]*pair // what the first knows of the second
	ended []*agent            // agents that do not run any more, and that others may not have given up yet
}

// pair is what one agent knows of another.
type pair struct {
	known bool
	// due is when it changes its mind, if nothing else happens before; 0 if what it knows is right.
	due time.Duration
}

const (
	// step is how often the pairs are looked at.
	step = 200 * time.Millisecond
	// A member is found within found, mostly, or else with the next exchange of states within anew.
	found, anew = 2 * time.Second, 30 * time.Second
	// One that is silent is given up after so long.
	suspicion, dead = 5 * time.Second, 15 * time.Second
)

// stops has the others notice that an agent has ended.
func (ms *membership) stops(a *agent, orderly bool) {
	ms.w.truth.disturb(a.m, 0)
	if !orderly {
		ms.ended = append(ms.ended, a)
		return
	}
	for _, other := range ms.w.agents() {
		if p := ms.pairs[[2]*agent{other, a}]; p != nil && p.known {
			if !ms.w.network.passes(a.m, other.m) {
				ms.ended = append(ms.ended, a)
				continue
			}
			ms.notify(other, a, ms.w.between(20*time.Millisecond, 700*time.Millisecond), func() {
				if p.known {
					p.known = false
					other.handler.Left(a.member, true)
				}
			})
		}
	}
}

// rejoin has an agent that was suspended, and the others, find each other soon.
func (ms *membership) rejoin(a *agent) {
	for _, other := range ms.w.agents() {
		for _, p := range []*pair{ms.pairs[[2]*agent{a, other}], ms.pairs[[2]*agent{other, a}]} {
			if p != nil && !p.known {
				p.due = ms.w.now + ms.w.between(0, found)
			}
		}
	}
}

func (ms *membership) notify(a, about *agent, wait time.Duration, do func()) {
	a.m.after(wait, func() {
		if a.m.agent == a {
			do()
			if a.m.liar == nil && about.m.liar == nil {
				ms.w.truth.disturb(nil, 0)
			}
			a.wakeAt(ms.w.now)
		}
	})
}

// look compares what all agents know of each other with what is so.
func (ms *membership) look() {
	w := ms.w
	agents := w.agents()
	for _, a := range agents {
		for _, other := range slices.Concat(ms.ended, agents) {
			if a != other && !a.m.frozen {
				ms.pair(a, other)
			}
		}
	}
	ms.ended = slices.DeleteFunc(ms.ended, func(gone *agent) bool {
		return !slices.ContainsFunc(agents, func(a *agent) bool { p := ms.pairs[[2]*agent{a, gone}]; return p != nil && p.known })
	})
	w.after(step, ms.look)
}

// pair has one agent change its mind about another one when it is time.
func (ms *membership) pair(a, other *agent) {
	w := ms.w
	p := ms.pairs[[2]*agent{a, other}]
	if p == nil {
		p = new(pair)
		ms.pairs[[2]*agent{a, other}] = p
	}
	there := other.m.agent == other && ms.reaches(a, other)
	switch {
	case there == p.known:
		p.due = 0
	case p.due == 0 && there:
		p.due = w.now + w.between(50*time.Millisecond, found)
		if w.chance(0.05) {
			p.due = w.now + w.between(0, anew)
		}
	case p.due == 0:
		p.due = w.now + w.between(suspicion, dead)
	case w.now >= p.due:
		p.known, p.due = there, 0
		ms.notify(a, other, 0, func() {
			if there {
				a.handler.Joined(other.member)
			} else {
				a.handler.Left(other.member, false)
			}
		})
	}
	if (!there || !p.known) && a.m.liar == nil && other.m.liar == nil {
		w.truth.unsettled(other, p.known)
	}
}

// knows reports whether one agent has another one for a member, and will not change its mind soon.
func (ms *membership) knows(a, other *agent) bool {
	p := ms.pairs[[2]*agent{a, other}]
	return a == other || p != nil && p.known && p.due == 0
}

// reaches reports whether two agents reach each other, also by a third one, as memberlist's indirect probes do.
func (ms *membership) reaches(a, b *agent) bool {
	both := func(x, y *agent) bool {
		return !x.m.frozen && !y.m.frozen && ms.w.network.passes(x.m, y.m) && ms.w.network.passes(y.m, x.m)
	}
	if both(a, b) {
		return true
	}
	for _, c := range ms.w.agents() {
		if c != a && c != b && both(a, c) && both(c, b) {
			return true
		}
	}
	return false
}
