package probe

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// maxPending limits the silent addresses that are probed on one interface.
const maxPending = 64

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
	key   detector.Key
	tries int
	next  time.Time
	// removed: the address is not configured any more and is probed a few times only. A process
	// may have taken it over from the kernel, as gVisor does.
	removed bool
}

// add makes the probe of an address pending from a time on, unless the address has a binding or a
// pending probe. It returns the new probe, nil if there is none.
func (p *Prober) add(i *state, key detector.Key, vlan bpf.VLAN, at time.Time) *pending {
	a := address{key.IP, vlan}
	probe := i.pending[a]
	switch {
	case !p.Solicits(key.Network) || p.Bindings.Holds(key, i.Holder):
		delete(i.pending, a)
	case probe != nil && probe.key == key:
		probe.removed = false
	case probe == nil && len(i.pending) >= maxPending:
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
		for _, probe := range i.pending {
			if next.IsZero() || probe.next.Before(next) {
				next = probe.next
			}
		}
	}
	return next
}

// Run sends the pending probes that are due.
func (p *Prober) Run(now time.Time) {
	for _, i := range p.interfaces {
		for a, probe := range i.pending {
			if probe.next.After(now) {
				continue
			}
			if !p.Solicits(probe.key.Network) || p.Bindings.Holds(probe.key, i.Holder) {
				delete(i.pending, a)
				continue
			}
			p.attempt(i, a, probe, now)
			if probe.removed && probe.tries > len(pauses) {
				delete(i.pending, a)
			}
		}
	}
}

// attempt sends one pending probe, unless it is refused, and sets the time of the next attempt.
func (p *Prober) attempt(i *state, a address, probe *pending, now time.Time) {
	if r := p.guard(i, a, now); r != (Refusal{}) {
		probe.next = r.Until
		return
	}
	if until := p.lostUntil(i, now); !until.IsZero() {
		probe.next = until
		return
	}
	if !p.Budget.Allow(detector.Refresh, false, now) {
		probe.next = now.Add(budgetPause)
		return
	}
	_ = p.send(i, a, detector.Refresh, now) // if the device is down or gone, an event follows
	probe.next = now.Add(laterPause)
	if probe.tries < len(pauses) {
		probe.next = now.Add(pauses[probe.tries])
	}
	probe.tries++
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
