package search

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// network carries packets between machines, or does not.
type network struct {
	w *world
	// loss is the share of packets that are lost, copies of those that come twice, late of those that take up to a second.
	loss, copies, late float64
	cuts               []cut
}

// cut is between some machines and others, in one direction or both.
type cut struct {
	from, to []string
	both     bool
	until    time.Duration
}

// weather sets a share for a while. Packets that come twice are no excuse for anything.
func (n *network) weather(share *float64, e Event) {
	value, _ := strconv.ParseFloat(e.arg(0), 64)
	*share += value
	if share != &n.copies {
		n.w.truth.fault(nil, e.duration(1))
	}
	n.w.after(e.duration(1), func() { *share -= value })
}

// cut cuts machines off each other for a while; "*" are all others.
func (n *network) cut(from, to []string, lasts time.Duration, both bool) {
	n.cuts = append(n.cuts, cut{from, to, both, n.w.now + lasts})
	n.w.truth.fault(nil, lasts)
}

// passes reports whether packets of a machine reach another one.
func (n *network) passes(from, to *machine) bool {
	is := func(m *machine, list []string) bool {
		return slices.Contains(list, m.label) || slices.Contains(list, "*")
	}
	return !slices.ContainsFunc(n.cuts, func(c cut) bool {
		return n.w.now < c.until && from != to &&
			(is(from, c.from) && is(to, c.to) || c.both && is(to, c.from) && is(from, c.to))
	})
}

// send has a packet arrive, perhaps.
func (n *network) send(from *agent, to *agent, payload []byte) {
	w := n.w
	w.truth.note("%d %s %s %x", w.now, from.m.label, to.m.label, payload)
	if w.chance(n.loss) || !n.passes(from.m, to.m) {
		return
	}
	times := 1
	if w.chance(n.copies) {
		times = 2
	}
	if slices.Contains(w.plan.Next, from.m.label) {
		payload = nextVersion(payload)
	}
	for range times {
		delay := w.between(100*time.Microsecond, 3*time.Millisecond)
		if w.chance(n.late) {
			delay = w.between(0, time.Second)
		}
		to.m.after(delay, func() {
			if to.m.agent == to {
				if to.m.liar != nil {
					payload = to.m.liar.hears(from, payload)
				}
				to.handler.Receive(from.member.ID, netip.AddrPort{}, payload)
				to.wakeAt(w.now + w.between(10*time.Microsecond, 300*time.Microsecond))
			}
		})
	}
}

// endpoint is an agent's [gossip.Network].
type endpoint agent

var errUnknown = errors.New("no such member")

// Send implements [gossip.Network].
func (e *endpoint) Send(id wire.MemberID, payload []byte) error {
	for _, to := range e.w.agents() {
		if to.member.ID == id {
			payload := slices.Clone(payload)
			if e.m.liar != nil {
				payload = e.m.liar.says(payload)
			}
			e.w.network.send((*agent)(e), to, payload)
			return nil
		}
	}
	return errUnknown
}

// Rejoin implements [gossip.Network].
func (e *endpoint) Rejoin() { e.w.members.rejoin((*agent)(e)) }

// Status implements [gossip.Network].
func (e *endpoint) Status() cluster.Status { return cluster.Status{Address: e.m.at} }

// Cut implements [gossip.Network]. Nothing in a world depends on it.
func (e *endpoint) Cut() (from, until time.Time) { return from, until }

// Run implements [gossip.Network]; the world calls Turn instead.
func (e *endpoint) Run(context.Context) error { panic("a world has its own time") }

// LeaveSoon implements [gossip.Network]; agents of a world leave at once.
func (e *endpoint) LeaveSoon() {}

// Request implements [gossip.Network]: a world reads the documents of agents itself.
func (e *endpoint) Request(context.Context, wire.MemberID, []byte, chan struct{}, func([]byte) error) error {
	return errUnknown
}
