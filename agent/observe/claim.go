package observe

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

const (
	// claimFor is how long a claim lives that is not repeated: as long as evidence does.
	claimFor = 5 * time.Minute
	// maxClaims limits the claims of one interface, to as many as addresses are listed. The oldest make room: by the
	// observer's limit that takes longer than two rounds of probes.
	maxClaims = 1024
)

// claims reports whether a record is a claim, and notes it. The pod has the address on a device that is not observed, such
// as a bridge of its own, and announces it unasked on this interface: neighbours that believe it send their packets here.
// After a claim its answers to our probes count, too. Alone they mean nothing, because Linux answers on each interface for
// all addresses of the netns (arp_ignore 0). ARP requests with a foreign sender change caches, too; they are not covered.
func (t *Table) claims(i *Interface, r bpf.Record, at time.Time) bool {
	switch {
	case r.Kind != bpf.Gratuitous && r.Kind != bpf.Answer, !i.Seen || !i.View.Covers(r.VLAN.Outer, r.VLAN.Inner),
		!i.View.Elsewhere(r.IP, r.VLAN.Outer, r.VLAN.Inner) || t.observed(i, r.IP):
		return false
	case r.Kind == bpf.Answer:
		claimed, ok := i.claimed[r.IP]
		return ok && at.Sub(claimed) < claimFor
	}
	if _, known := i.claimed[r.IP]; !known && len(i.claimed) >= maxClaims {
		oldest := r.IP
		for ip, claimed := range i.claimed {
			if oldest == r.IP || claimed.Before(i.claimed[oldest]) {
				oldest = ip
			}
		}
		delete(i.claimed, oldest)
	}
	i.claimed[r.IP] = at
	return true
}

// withdrawClaims withdraws the claims whose addresses have left the netns, and forgets old ones.
func (t *Table) withdrawClaims(i *Interface, next *links.Interface, now time.Time) (all []Observation) {
	left := make(map[netip.Addr]bool)
	for ip, claimed := range i.claimed {
		if now.Sub(claimed) >= claimFor {
			delete(i.claimed, ip)
		} else if !next.View.More && !next.View.Has(ip) {
			delete(i.claimed, ip)
			left[ip] = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	for _, b := range t.Bindings(func(b *detector.Binding) bool {
		return left[b.Key.IP] && b.Holder.Interface == i.Ref && b.Holder.ID == i.Holder && b.Evidence <= detector.Claimed
	}) {
		all = append(all, withdrawn(b.Key, i.Holder, "the address left netns "+next.Netns.Label()))
	}
	return all
}

// observed reports whether another interface to which the observer is attached leads to the device with an address.
func (t *Table) observed(i *Interface, ip netip.Addr) bool {
	for _, other := range t.interfaces {
		if other != i && other.Holder == i.Holder && other.State == links.Attached && other.View.OnPeer(ip) {
			return true
		}
	}
	return false
}

// mirrorFor is how long a holder counts as a mirror after it last sent one of our probes back.
const mirrorFor = 5 * time.Minute

// isMirror reports whether the packets of an interface may be packets of others: its holder has lately sent our own
// probes back, there or on another interface, as a port mirror or a bridge in a loop does. It also sends back the packets of
// others, such as answers to our probes.
func (t *Table) isMirror(i *Interface, at time.Time) bool {
	for _, other := range t.interfaces {
		if other.Holder == i.Holder && at.Before(other.mirrored.Add(mirrorFor)) {
			return true
		}
	}
	return false
}
