package observe

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/bounds"
)

// maxScanRequests limits the addresses that are scanned for behind one interface, to as many as are listed.
const maxScanRequests = 1024

var tooManyRequests = bounds.New("addresses to scan for")

// scanKey is what is scanned for in the kernel of a pod.
type scanKey struct {
	ip   netip.Addr
	vlan bpf.VLAN
}

// awaiting is what waits for a scan of the netns of an interface.
type awaiting struct {
	// requests has what is scanned for in the kernel of the pod.
	requests map[scanKey]requested
	records  []bpf.Record
}

// requested is when a scan was requested first and last. A scan may be the answer to the first and too old for the last.
type requested struct{ first, last time.Time }

// request has a scan look for an address.
func (w *awaiting) request(key scanKey, now time.Time) {
	if r, known := w.requests[key]; known {
		w.requests[key] = requested{r.first, now}
	} else if len(w.requests) < maxScanRequests {
		w.requests[key] = requested{now, now}
	} else {
		tooManyRequests.Exceeded(1)
	}
}

// found returns the addresses that were scanned for and are there.
func (i *Interface) found() (all []Observation) {
	for l, r := range i.awaiting.requests {
		taken := i.View.Taken
		if !i.Seen || !taken.After(r.first) {
			continue
		}
		if i.awaiting.requests[l] = (requested{r.last, r.last}); taken.After(r.last) {
			delete(i.awaiting.requests, l)
		}
		key := i.Key(l.ip, l.vlan)
		if !i.View.Uses(l.ip, l.vlan.Outer, l.vlan.Inner) || !i.addVLAN(key.Network, l.vlan) {
			continue
		}
		var mac [6]byte // of the pod's device, zero if it is another than the one that is known
		if i.Kind != "" {
			copy(mac[:], i.MAC)
		}
		holder := i.Describe(mac)
		holder.Given = i.Given(l.ip)
		all = append(all, Observation{Kind: Seen, Interface: i.Ref, VLAN: l.vlan, Sighting: detector.Sighting{
			Key: key, Holder: holder, Evidence: detector.Configured, Answer: true, At: i.View.Taken, FoundAtStart: i.foundAtStart(l.ip, l.vlan),
		}})
	}
	return all
}
