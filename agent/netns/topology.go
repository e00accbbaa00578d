package netns

import (
	"errors"
	"slices"

	"github.com/vishvananda/netlink"
)

const (
	// maxDevices bounds the devices followed on top of a peer, and apart from those the
	// loopback devices: a pod may make as many as it likes.
	maxDevices = 1024
	// maxHeight is how often the devices are listed to find those on top of others. They
	// may be listed before their parents, and stand at most two tags high on a master.
	maxHeight = 4
)

// path is how packets get from the peer to a device.
type path struct {
	where        Where
	outer, inner uint16
}

// serviceDevices carry addresses of services, which every node of a cluster has, and so
// every pod that is one.
var serviceDevices = []string{"kube-ipvs0", "nodelocaldns"}

// ServiceDevice reports whether the device name is that of kube-proxy's IPVS services or of
// the node-local DNS cache.
func ServiceDevice(name string) bool { return slices.Contains(serviceDevices, name) }

// topology are the devices that receive what arrives on the peer: the peer, VLAN, macvlan
// and ipvlan devices on top of it, and the bridge, bond or VRF of any of these.
type topology struct {
	peerName  string
	paths     map[int]path // by ifindex
	truncated bool
	loopbacks int
}

// path returns how packets get to the device with that index.
func (t *topology) path(index int) path {
	if path, ok := t.paths[index]; ok {
		return path
	}
	return path{where: Elsewhere}
}

// readTopology reads the devices that list yields as [eachDevice] does, seen from the one with
// index peer. With [netlink.ErrDumpInterrupted] the result has holes.
func readTopology(peer int, list func(begin func(), each func(device)) error) (topology, error) {
	t := topology{paths: make(map[int]path)}
	var interrupted error
	for range maxHeight {
		// Those whose parent is not known yet: most pods have none, and one list does.
		var waiting int
		known := len(t.paths)
		err := list(func() { waiting = 0 }, func(d device) {
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
			break
		}
	}
	return t, interrupted
}

// add adds one device. It reports false if the device may belong to the topology once its
// parent is known.
func (t *topology) add(d device, peer int) bool {
	if _, known := t.paths[d.index]; known && d.index != peer {
		return true
	}
	switch {
	case d.index == peer:
		t.peerName = d.name
		t.set(d, path{where: OnPeer})
		return true
	case d.name == "lo" || d.kind == "dummy" && !ServiceDevice(d.name):
		if t.loopbacks == maxDevices {
			t.truncated = true
			return true
		}
		t.loopbacks++
		t.paths[d.index] = path{where: OnLoopback}
		return true
	case d.nsid >= 0 || d.kind != "vlan" && d.kind != "macvlan" && d.kind != "ipvlan":
		return true
	}
	path, ok := t.paths[d.parent]
	switch {
	case !ok:
		return false
	case path.where != OnPeer:
		return true
	case d.kind != "vlan":
	case path.outer == 0:
		path.outer = d.vlan
	case path.inner == 0:
		path.inner = d.vlan
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

// set records how packets get to a device, and so to what it is a port of, unless a shorter
// path to that is known.
func (t *topology) set(d device, path path) {
	t.paths[d.index] = path
	if _, known := t.paths[d.master]; d.master != 0 && !known {
		t.paths[d.master] = path
	}
}
