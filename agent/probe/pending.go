package probe

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// maxPending bounds the silent addresses that are probed on one interface.
const maxPending = 64

// pauses are the waits between attempts to hear from a configured address, which may not be up
// yet. After the last there is one attempt every laterPause.
var pauses = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 700 * time.Millisecond, 2 * time.Second, 5 * time.Second,
}

const (
	laterPause  = 30 * time.Second
	budgetPause = 50 * time.Millisecond
)

// pending is a probe for a configured address that nothing was heard of.
type pending struct {
	key   detector.Key
	tries int
	next  time.Time
	// left: the address is not configured any more, and is probed a few times only. A process
	// may have taken it over from the kernel, as gVisor does.
	removed bool
}

// add makes the probe of an address pending from a time on, unless it was heard of or is
// pending already.
func (p *Prober) add(i *state, key detector.Key, vlan bpf.VLAN, at time.Time) *pending {
	a := address{key.IP, vlan}
	p2 := i.pending[a]
	switch {
	case !p.Solicits(key.Network) || p.Bindings.Holds(key, i.Holder):
		delete(i.pending, a)
	case p2 != nil && p2.key == key:
		p2.removed = false
	case p2 == nil && len(i.pending) >= maxPending:
		p.dropped[DroppedAddresses]++
	default:
		i.pending[a] = &pending{key: key, next: at}
		return i.pending[a]
	}
	return nil
}

// Next returns when [Prober.Run] has something to do, zero for never.
func (p *Prober) Next() (next time.Time) {
	for _, i := range p.interfaces {
		for _, w := range i.pending {
			if next.IsZero() || w.next.Before(next) {
				next = w.next
			}
		}
	}
	return next
}

// Run sends the pending probes that are due.
func (p *Prober) Run(now time.Time) {
	for _, i := range p.interfaces {
		for a, w := range i.pending {
			if w.next.After(now) {
				continue
			}
			if !p.Solicits(w.key.Network) || p.Bindings.Holds(w.key, i.Holder) {
				delete(i.pending, a)
				continue
			}
			p.attempt(i, a, w, now)
			if w.removed && w.tries > len(pauses) {
				delete(i.pending, a)
			}
		}
	}
}

// attempt sends one pending probe, unless it is refused, and says when the next is due.
func (p *Prober) attempt(i *state, a address, w *pending, now time.Time) {
	if r := p.guard(i, a, now); r != (Refusal{}) {
		w.next = r.Until
		return
	}
	if until := p.lostUntil(i, now); !until.IsZero() {
		w.next = until
		return
	}
	if !p.Budget.Allow(detector.Refresh, false, now) {
		w.next = now.Add(budgetPause)
		return
	}
	_ = p.send(i, a, detector.Refresh, now) // a device that is down or gone has events of its own
	w.next = now.Add(laterPause)
	if w.tries < len(pauses) {
		w.next = now.Add(pauses[w.tries])
	}
	w.tries++
}

// Unanswered counts the probes for a configured address that were sent without an answer.
func (p *Prober) Unanswered(ref detector.Interface, ip netip.Addr, vlan bpf.VLAN) int {
	if i := p.interfaces[ref]; i != nil {
		if w := i.pending[address{ip, vlan}]; w != nil {
			return min(w.tries, len(pauses))
		}
	}
	return 0
}
