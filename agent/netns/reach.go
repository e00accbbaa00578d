package netns

import (
	"errors"
	"slices"

	"github.com/vishvananda/netlink"
)

const (
	// maxReached bounds the devices followed on top of a peer, and apart from those the
	// loopback devices: a pod may make as many as it likes.
	maxReached = 1024
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

// ServiceDevice says whether the device name is that of kube-proxy's IPVS services or of
// the node-local DNS cache.
func ServiceDevice(name string) bool { return slices.Contains(serviceDevices, name) }

// reached tells which devices receive what arrives on the peer: the peer, VLAN, macvlan
// and ipvlan devices on top of it, and the bridge, bond or VRF of any of these.
type reached struct {
	peerName  string
	paths     map[int]path // by ifindex
	truncated bool
	loopbacks int
}

// path returns how packets get to the device with that index.
func (r *reached) path(index int) path {
	if path, ok := r.paths[index]; ok {
		return path
	}
	return path{where: Elsewhere}
}

// reach looks at the devices that list yields as [eachDevice] does, seen from the one with
// index peer. With [netlink.ErrDumpInterrupted] the result has holes.
func reach(peer int, list func(begin func(), each func(device)) error) (reached, error) {
	r := reached{paths: make(map[int]path)}
	var interrupted error
	for range maxHeight {
		// Those whose parent is not known yet: most pods have none, and one list does.
		var waiting int
		known := len(r.paths)
		err := list(func() { waiting = 0 }, func(d device) {
			if !r.follow(d, peer) {
				waiting++
			}
		})
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			interrupted = err
		} else if err != nil {
			return r, err
		}
		if waiting == 0 || len(r.paths) == known {
			break
		}
	}
	return r, interrupted
}

// follow takes in one device. It reports false when more could be said of it once its
// parent is known.
func (r *reached) follow(d device, peer int) bool {
	if _, known := r.paths[d.index]; known && d.index != peer {
		return true
	}
	switch {
	case d.index == peer:
		r.peerName = d.name
		r.take(d, path{where: OnPeer})
		return true
	case d.name == "lo" || d.kind == "dummy" && !ServiceDevice(d.name):
		if r.loopbacks == maxReached {
			r.truncated = true
			return true
		}
		r.loopbacks++
		r.paths[d.index] = path{where: OnLoopback}
		return true
	case d.nsid >= 0 || d.kind != "vlan" && d.kind != "macvlan" && d.kind != "ipvlan":
		return true
	}
	way, ok := r.paths[d.parent]
	switch {
	case !ok:
		return false
	case way.where != OnPeer:
		return true
	case d.kind != "vlan":
	case way.outer == 0:
		way.outer = d.vlan
	case way.inner == 0:
		way.inner = d.vlan
	default:
		return true
	}
	if len(r.paths)-r.loopbacks >= maxReached {
		r.truncated = true
		return true
	}
	r.take(d, way)
	return true
}

// take notes how packets get to a device, and so to what it is a port of, unless that is
// reached by a shorter way already.
func (r *reached) take(d device, way path) {
	r.paths[d.index] = way
	if _, known := r.paths[d.master]; d.master != 0 && !known {
		r.paths[d.master] = way
	}
}
