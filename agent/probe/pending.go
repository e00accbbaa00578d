package probe

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/schedule"
)

// maxRemoved limits the pending probes of removed addresses on one interface. Those of configured addresses
// need no limit, because the list of a netns has one.
const maxRemoved = 1024

// pauses are the waits between the first probes of a configured address, which may not be up yet.
// Then there is one probe every laterPause.
var pauses = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 700 * time.Millisecond, 2 * time.Second, 5 * time.Second,
}

const (
	laterPause  = 30 * time.Second
	budgetPause = 50 * time.Millisecond
)

// pending is the probe of a configured address that has no binding.
type pending struct {
	address
	schedule.Place
	key   detector.Key
	tries int
	next  time.Time
	// removed: the address is not configured any more and is probed a few times only. A process
	// may have taken it over from the kernel, as gVisor does.
	removed bool
}

// Before implements [schedule.Element].
func (p *pending) Before(o *pending) bool { return p.next.Before(o.next) }

// Before implements [schedule.Element]: by the next turn. Interfaces have their turns one after the other, so
// that one with many pending probes does not delay those of others.
func (i *state) Before(o *state) bool {
	if c := i.turn.Compare(o.turn); c != 0 {
		return c < 0
	}
	return i.served < o.served
}

// add makes the probe of an address pending from a time on, unless the address has a binding or a
// pending probe. That of an address that was removed and is back begins anew. It returns the new probe, nil if there is none.
func (p *Prober) add(i *state, key detector.Key, vlan bpf.VLAN, at time.Time) *pending {
	a := address{key.IP, vlan}
	probe := i.pending[a]
	if p.off(i, key.Network) == "" && !p.Bindings.Holds(key, i.Holder) {
		if probe != nil && probe.key == key && !probe.removed {
			return nil
		}
		p.drop(i, probe)
		probe = &pending{address: a, key: key}
		i.pending[a] = probe
		p.postpone(i, probe, at)
		return probe
	}
	p.drop(i, probe)
	return nil
}

// postpone sets the time of a pending probe.
func (p *Prober) postpone(i *state, probe *pending, until time.Time) {
	probe.next = until
	i.due.Set(probe)
	p.plan(i)
}

// drop removes a pending probe, which may be nil.
func (p *Prober) drop(i *state, probe *pending) {
	if probe != nil {
		delete(i.pending, probe.address)
		i.due.Remove(probe)
		p.plan(i)
	}
}

// plan sets the time of an interface's next turn.
func (p *Prober) plan(i *state) {
	first := i.due.First()
	if first == nil {
		p.turns.Remove(i)
		return
	}
	i.turn = schedule.Later(first.next, i.notBefore)
	p.turns.Set(i)
}

// Next returns when [Prober.Run] has something to do, zero for never.
func (p *Prober) Next() time.Time {
	if i := p.turns.First(); i != nil {
		return schedule.Later(i.turn, p.paused)
	}
	return time.Time{}
}

// Run sends the pending probes that are due.
func (p *Prober) Run(now time.Time) {
	for i := p.turns.First(); i != nil && !schedule.Later(i.turn, p.paused).After(now); i = p.turns.First() {
		probe := i.due.First()
		if p.off(i, probe.key.Network) != "" || p.Bindings.Holds(probe.key, i.Holder) {
			p.drop(i, probe)
			continue
		}
		p.attempt(i, probe, now)
		if probe.removed && probe.tries > len(pauses) {
			p.drop(i, probe)
		}
	}
}

// attempt sends one pending probe, unless it is refused, and sets the time of the next attempt. Half of the
// interface's limit is left to verification.
func (p *Prober) attempt(i *state, probe *pending, now time.Time) {
	if r := p.guard(i, probe.address, now); r != (detector.ProbeRefusal{}) {
		p.postpone(i, probe, r.Until)
		return
	}
	until := p.lostUntil(i, now)
	if i.limit.pass(now); until.IsZero() && i.limit.level <= interfaceBurst/2 {
		until = now.Add(budgetPause)
	}
	if !until.IsZero() {
		i.notBefore = until
		p.plan(i)
		return
	}
	if !p.Budget.Allow(detector.Refresh, true, now) {
		p.paused = now.Add(budgetPause) // it is still this interface's turn
		return
	}
	i.limit.level--
	_ = p.send(i, probe.address, detector.Refresh, now) // if the device is down or gone, an event follows
	next := laterPause
	if probe.tries < len(pauses) {
		next = pauses[probe.tries]
	}
	probe.tries++
	p.served++
	i.notBefore, i.served = now, p.served
	p.postpone(i, probe, now.Add(next))
}

// Unanswered counts the unanswered probes of a configured address.
func (p *Prober) Unanswered(ref detector.Interface, ip netip.Addr, vlan bpf.VLAN) int {
	if i := p.interfaces[ref]; i != nil {
		if probe := i.pending[address{ip, vlan}]; probe != nil {
			return min(probe.tries, len(pauses))
		}
	}
	return 0
}
