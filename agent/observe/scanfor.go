package observe

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// maxScanRequests limits the addresses that are scanned for behind one interface, to as many as are listed.
const maxScanRequests = 1024

// scanKey is what is scanned for in the kernel of a pod.
type scanKey struct {
	ip   netip.Addr
	vlan bpf.VLAN
}

// requested is when a scan was requested first and last. A scan may be the answer to the first and too old for the last.
type requested struct{ first, last time.Time }

// ScanFor scans whether the kernel of the pod behind an interface uses an address, in a scan that begins after now. It is the
// probe where nothing answers.
func (t *Table) ScanFor(ref detector.Interface, ip netip.Addr, vlan bpf.VLAN, now time.Time) {
	i, l := t.interfaces[ref], scanKey{ip, vlan}
	if i == nil {
		return
	}
	if r, known := i.scanRequests[l]; known {
		i.scanRequests[l] = requested{r.first, now}
	} else if len(i.scanRequests) < maxScanRequests {
		i.scanRequests[l] = requested{now, now}
	}
	t.Rescan(i.Generation)
}

// found returns the addresses that were scanned for and are there.
func (t *Table) found(i *Interface) (all []Observation) {
	for l, r := range i.scanRequests {
		taken := i.View.Taken
		if !i.Seen || !taken.After(r.first) {
			continue
		}
		if i.scanRequests[l] = (requested{r.last, r.last}); taken.After(r.last) {
			delete(i.scanRequests, l)
		}
		key := t.Key(i, l.ip, l.vlan)
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
