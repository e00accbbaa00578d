package observe

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// interfaces are all that lead into pods.
type interfaces map[detector.Interface]*Interface

// observed reports whether another interface to which the observer is attached leads to the device with an address.
func (all interfaces) observed(i *Interface, ip netip.Addr) bool {
	for _, other := range all {
		if other != i && other.Holder == i.Holder && other.State == links.Attached && other.View.OnPeer(ip) {
			return true
		}
	}
	return false
}

// holdElsewhere reports whether the netns has the address on another interface of the same network.
func (all interfaces) holdElsewhere(i *Interface, key detector.Key, vlan bpf.VLAN) bool {
	for _, other := range all {
		if other != i && other.Holder == i.Holder && other.Key(key.IP, vlan) == key &&
			other.View.Holds(key.IP, vlan.Outer, vlan.Inner) {
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
func (all interfaces) isMirror(i *Interface, at time.Time) bool {
	for _, other := range all {
		if other.Holder == i.Holder && at.Before(other.mirrored.Add(mirrorFor)) {
			return true
		}
	}
	return false
}
