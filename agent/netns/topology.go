package netns

import (
	"errors"

	"github.com/vishvananda/netlink"
)

const (
	// maxDevices limits the devices on top of a peer, and separately the loopback devices: a pod may
	// make any number.
	maxDevices = 1024
	// maxLists is how often the devices are listed at most. A device may be listed before its parent,
	// and have at most two VLAN devices and a master below it.
	maxLists = 4
)

// path is the way of packets from the peer to a device.
type path struct {
	where        Where
	outer, inner uint16
}

// ServiceDevice reports whether the device name is that of kube-proxy's IPVS services or of the
// node-local DNS cache. Their addresses are on every node, and so in every pod that is a node.
func ServiceDevice(name string) bool { return name == "kube-ipvs0" || name == "nodelocaldns" }

// topology are the devices that receive packets of the peer: the peer, VLAN, macvlan and ipvlan
// devices on top of it, and the bridge, bond or VRF of any of these.
type topology struct {
	peerName  string
	peerDown  bool
	paths     map[int]path // by ifindex
	down      map[int]bool // the devices that are down, up to maxDevices
	truncated bool
	loopbacks int
}

func (t *topology) path(index int) path {
	if path, ok := t.paths[index]; ok {
		return path
	}
	return path{where: Elsewhere}
}

// readTopology reads the devices that list, which is [eachDevice], passes to each. peer is the index of the
// pod's end of a host veth.
// With [netlink.ErrDumpInterrupted] the result is incomplete.
func readTopology(peer int, list func(begin func(), each func(Device)) error) (topology, error) {
	t := topology{paths: make(map[int]path), down: make(map[int]bool)}
	var interrupted error
	for range maxLists {
		var waiting int // for their parents; most pods have none, and need one list
		known := len(t.paths)
		err := list(func() { waiting = 0 }, func(d Device) {
			if !d.Up && len(t.down) < maxDevices {
				t.down[d.Index] = true
			} else if !d.Up && !t.down[d.Index] {
				tooManyDevices.Exceeded(1)
			}
			if !t.add(d, peer) {
				waiting++
			}
		})
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			interrupted = err
		} else if err != nil {
			return t, err
		}
		if waiting == 0 || len(t.paths) == known {
			return t, interrupted
		}
	}
	tooManyDevices.Exceeded(1) // each list had devices before their parents
	return t, interrupted
}

// add adds one device. It returns false if the device may belong to the topology but its parent is not
// known yet.
func (t *topology) add(d Device, peer int) bool {
	if _, known := t.paths[d.Index]; known && d.Index != peer {
		return true
	}
	switch {
	case d.Index == peer:
		t.peerName, t.peerDown = d.Name, !d.Up
		t.set(d, path{where: OnPeer})
		return true
	case d.Name == "lo" || d.Kind == "dummy" && !ServiceDevice(d.Name):
		if t.loopbacks == maxDevices {
			t.truncated = true
			return true
		}
		t.loopbacks++
		t.paths[d.Index] = path{where: OnLoopback}
		return true
	case d.nsid >= 0 || d.Kind != "vlan" && d.Kind != "macvlan" && d.Kind != "ipvlan":
		return true
	}
	path, ok := t.paths[d.Parent]
	switch {
	case !ok:
		return false
	case path.where != OnPeer:
		return true
	case d.Kind != "vlan":
	case path.outer == 0:
		path.outer = d.VLAN
	case path.inner == 0:
		path.inner = d.VLAN
	default:
		return true
	}
	if len(t.paths)-t.loopbacks >= maxDevices {
		t.truncated = true
		return true
	}
	t.set(d, path)
	return true
}

// set records the path to a device, and to its master unless a shorter one is known.
func (t *topology) set(d Device, path path) {
	t.paths[d.Index] = path
	if _, known := t.paths[d.master]; d.master != 0 && !known {
		t.paths[d.master] = path
	}
}
