package observe

import (
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/internal/bounds"
)

const (
	// claimFor is how long a claim lives that is not repeated: as long as evidence does.
	claimFor = 5 * time.Minute
	// maxClaims limits the claims of one interface, to as many as addresses are listed. The oldest make room: by the
	// observer's limit that takes longer than two rounds of probes.
	maxClaims = 1024
)

var tooManyClaims = bounds.New("addresses that a pod only announces")

// claims reports whether a record is a claim, and notes it. The pod has the address on a device that is not observed, such
// as a bridge of its own, and announces it unasked on this interface: neighbours that believe it send their packets here.
// After a claim its answers to our probes count, too. Alone they mean nothing, because Linux answers on each interface for
// all addresses of the netns (arp_ignore 0). ARP requests with a foreign sender change caches, too; they are not covered.
func (i *Interface) claims(r bpf.Record, at time.Time, all interfaces) bool {
	switch {
	case r.Kind != bpf.Gratuitous && r.Kind != bpf.Answer, !i.Seen || !i.View.Covers(r.VLAN.Outer, r.VLAN.Inner),
		!i.View.Elsewhere(r.IP, r.VLAN.Outer, r.VLAN.Inner) || all.observed(i, r.IP):
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
		tooManyClaims.Exceeded(1)
	}
	i.claimed[r.IP] = at
	return true
}
