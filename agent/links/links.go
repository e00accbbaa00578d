// Package links keeps the list of interfaces that lead into pods: it discovers
// them over netlink, attaches the observer to each, finds out which netns lies
// behind it and which addresses that netns has, and sends the agent an event for each change.
//
// It knows nothing of packets seen, of bindings or of conflicts.
package links

import (
	"net"
	"net/netip"
	"regexp"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
)

// State says whether an interface is observed.
type State string

// The states of an interface.
const (
	// Attached: it is observed, by a program of its own or for a moment by a socket on all devices.
	Attached State = "attached"
	// Pending: its turn has not come yet. The watcher attaches to one interface after another, with pauses.
	Pending State = "pending"
	// Shadowed: attached, but another program runs first and may drop packets.
	Shadowed State = "shadowed"
	// Waiting: for the set-up of the pod to end, before a clsact qdisc is created.
	Waiting State = "waiting"
	// Failed: could not be attached. The watcher tries again soon, and again.
	Failed State = "failed"
	// Unsupported: a pod device of a kind that cannot be observed.
	Unsupported State = "unsupported"
	// Ignored: the configuration excludes it.
	Ignored State = "ignored"
	// Uplink: it leads out of the node, which is a container itself.
	Uplink State = "uplink"
)

// Interface describes one incarnation of one host-side device. A value does not change once it was sent.
type Interface struct {
	Name string
	// FirstName is its name when it was Added.
	FirstName  string
	Index      int
	Generation uint32
	MAC        net.HardwareAddr
	// Netkit says that it is the primary end of a netkit pair, and not one end of a veth pair.
	Netkit bool
	// L3 says that the pair is one of netkit in L3 mode, see Mute.
	L3 bool
	// Master is the bridge, bond or VRF it is enslaved to, empty if none.
	Master string
	// PortVLAN is the VLAN of untagged packets, 0 if there is none or the bridge does not distinguish VLANs.
	PortVLAN uint16
	// Listed says that it was listed before any event came: it may be old.
	Listed bool
	// Up says that both ends of the pair are up: a probe can arrive.
	Up bool
	// Kind is macvlan, ipvlan or vlan for a device inside of a pod that has no end on the node: Name is then its name there, "@", and
	// the name of the node's device that it sends by, which is Master; InnerIndex its index there; and Index no device of the node.
	// For vlan, "." and ParentVLAN are a part of Master. Kind is empty for any other.
	Kind       string
	InnerIndex int
	ParentVLAN uint16
	State      State
	// Reason explains every State but Attached, in one clause.
	Reason string
	// Seen is false while its netns cannot be found. Netns and View are then empty.
	Seen  bool
	Netns netns.Ref
	View  netns.View
}

// Mute says why no pod behind the interface answers ARP probes and neighbour solicitations, empty if pods do. What the pod's
// kernel has configured then takes the place of an answer.
func (i *Interface) Mute() string {
	switch {
	case i.L3:
		return "nothing answers on netkit devices in L3 mode"
	case i.Kind != "":
		return "nothing is asked on the wire of " + i.Kind + " devices"
	}
	return ""
}

// EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of events.
const (
	// Added is sent once for a new Interface, Changed for every later difference.
	Added EventKind = iota + 1
	Changed
	Removed
	// HostAddresses carries all addresses of the node itself, its main ones first.
	HostAddresses
	// Unobserved carries all pod devices that are not observed.
	Unobserved
)

// Event is one change. Kind determines which other fields are set.
type Event struct {
	Kind      EventKind
	Interface *Interface
	// Reason says why an interface was Removed, in one clause. Refused are its last counters.
	Reason     string
	Refused    bpf.Counters
	Host       []HostAddress
	Unobserved []Interface
}

// HostAddress is an address of the node itself.
type HostAddress struct {
	IP netip.Addr
	// Subnet is that of the address on its device; that of an address alone has only that one.
	Subnet netip.Prefix
	Device string
	Index  int
	MAC    net.HardwareAddr
	// Master is the bridge, bond or VRF that the device is a port of, empty if none. Parent is the one that a macvlan device sends by.
	Master, Parent string
}

// localBridge matches bridges of local container engines. Their subnets are equal on every node.
var localBridge = regexp.MustCompile(
	`^(docker\d+|docker_gwbridge|br-[0-9a-f]{12}|podman\d+|cni-podman\d+|nerdctl\d+|buildkit\d+|` +
		`virbr\d+|lxcbr\d+|lxdbr\d+|incusbr\d+)$`)

// LocalBridge reports whether the device name is that of a local container engine's
// bridge (docker, podman, nerdctl, buildkit, libvirt, lxc, lxd, incus).
func LocalBridge(name string) bool { return localBridge.MatchString(name) }

// OpenVSwitch is the Master of every port of every Open vSwitch bridge.
const OpenVSwitch = "ovs-system"
