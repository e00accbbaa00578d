package probe

import (
	"maps"
	"net/netip"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

const (
	// tentativeFor is how long an address that a pod is probing itself is left alone: RFC 5227
	// takes up to 9 s, and a probe of ours within that time would look like another holder's.
	tentativeFor = 10 * time.Second
	// maxTentative bounds the tentative addresses that are remembered for one interface.
	maxTentative = 64
	// dyingFor is how long a netns that nothing leads to any more counts as a dead pod's. The
	// kernel takes such netns down one after the other; on a busy node that takes seconds, in
	// which the former holder of an address still answers beside the next one.
	lostFor = 30 * time.Second
)

// Tentative takes that the pod probes an address itself before it takes it.
func (p *Prober) Tentative(ref detector.Interface, ip netip.Addr, vlan bpf.VLAN, at time.Time) {
	i := p.interfaces[ref]
	if i == nil || i.Link.View.Valid(ip) && i.Link.View.Taken.Before(at) {
		return // the pod has the address already; probing it puts nothing off
	}
	if len(i.tentative) >= maxTentative {
		limit := at.Add(-tentativeFor)
		maps.DeleteFunc(i.tentative, func(_ address, probed time.Time) bool { return probed.Before(limit) })
	}
	if len(i.tentative) < maxTentative {
		i.tentative[address{ip, vlan}] = at
	}
}

// guard says why an address must not be probed now, if so.
func (p *Prober) guard(i *state, a address, now time.Time) Refusal {
	for _, listed := range i.Link.View.Addresses {
		switch {
		case listed.IP != a.ip:
		case !listed.Valid:
			return Refusal{Reason: "duplicate address detection runs in the pod", Until: now.Add(time.Second)}
		case i.Link.View.Taken.After(i.tentative[a]):
			delete(i.tentative, a) // the pod's own kernel has finished
		}
	}
	if probed, ok := i.tentative[a]; ok {
		if until := probed.Add(tentativeFor); until.After(now) {
			return Refusal{Reason: "the pod is probing the address itself", Until: until}
		}
		delete(i.tentative, a)
	}
	return Refusal{}
}

// vanishing says until when the holder behind an interface is not to be verified, because its
// netns is about to go; zero for at once.
func (p *Prober) lostUntil(i *state, now time.Time) time.Time {
	switch {
	case i.Link.Seen && !i.Link.Netns.Exists():
		// It may have another name or process now; the scan will tell.
		p.Rescan(i.Link.Generation)
		return now.Add(200 * time.Millisecond)
	case !i.Lost.IsZero() && now.Sub(i.Lost) < lostFor:
		return i.Lost.Add(lostFor)
	}
	return time.Time{}
}
