package probe

import (
	"maps"
	"net/netip"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

const (
	// tentativeFor is how long an address that a pod probes itself is not probed. RFC 5227 takes up
	// to 9 s, and to the pod our probe would look like another holder's.
	tentativeFor = 10 * time.Second
	// maxTentative limits the tentative addresses of one interface.
	maxTentative = 64
	// lostFor is how long a netns without references counts as a dead pod's. The kernel removes such
	// netns one after the other. On a busy node that takes seconds, in which the dead pod still
	// answers beside the pod that has its address now.
	lostFor = 30 * time.Second
)

// Tentative notes that the pod probes an address itself before it uses it.
func (p *Prober) Tentative(ref detector.Interface, ip netip.Addr, vlan bpf.VLAN, at time.Time) {
	i := p.interfaces[ref]
	if i == nil || i.Link.View.Valid(ip) && i.Link.View.Taken.Before(at) {
		return // the pod has the address already, so our probes do no harm
	}
	if len(i.tentative) >= maxTentative {
		limit := at.Add(-tentativeFor)
		maps.DeleteFunc(i.tentative, func(_ address, probed time.Time) bool { return probed.Before(limit) })
	}
	if len(i.tentative) < maxTentative {
		i.tentative[address{ip, vlan}] = at
	} else {
		p.dropped[droppedTentative]++
	}
}

// guard refuses to probe an address if the probe could hurt the pod now.
func (p *Prober) guard(i *state, a address, now time.Time) detector.ProbeRefusal {
	for listed := range i.Link.View.Find(a.ip) {
		switch {
		case listed.Lost:
			return detector.ProbeRefusal{Reason: "duplicate address detection failed in the pod", Until: now.Add(time.Second)}
		case !listed.Valid:
			return detector.ProbeRefusal{Reason: "duplicate address detection runs in the pod", Until: now.Add(time.Second)}
		case i.Link.View.Taken.After(i.tentative[a]):
			delete(i.tentative, a) // duplicate address detection has finished
		}
	}
	if probed, ok := i.tentative[a]; ok {
		if until := probed.Add(tentativeFor); until.After(now) {
			return detector.ProbeRefusal{Reason: "the pod is probing the address itself", Until: until}
		}
		delete(i.tentative, a)
	}
	return detector.ProbeRefusal{}
}

// lostUntil returns until when the holder behind an interface must not be verified, because its
// netns is being removed; zero for no such time.
func (p *Prober) lostUntil(i *state, now time.Time) time.Time {
	switch {
	case i.Link.Seen && !i.Link.Netns.Exists():
		// The scan finds out whether it has another name or process now.
		p.Rescan(i.Link.Generation)
		return now.Add(200 * time.Millisecond)
	case !i.Lost.IsZero() && now.Sub(i.Lost) < lostFor:
		return i.Lost.Add(lostFor)
	}
	return time.Time{}
}
