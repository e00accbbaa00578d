package agent

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

const (
	// maxProbes bounds the tentative addresses remembered for one interface.
	maxProbes = 64
	// maxSegments bounds the VLANs followed on one interface.
	maxSegments = 64
)

// podInterface is what the loop knows of one interface.
type podInterface struct {
	*links.Interface
	ref    detector.Interface
	holder detector.HolderID
	// segments are the tags by name of the network, for solicitations.
	segments map[string]bpf.VLAN
	// probes are the addresses that the pod itself is probing, with the time.
	probes map[segmentAddress]time.Time
	wanted map[segmentAddress]*want
	// queue waits for a look at the netns that is newer than its records.
	queue []bpf.Record
}

// addSegment remembers the tags of a network. Tagged packets that a pod makes up must
// not keep out what it really has: untagged ones and the VLANs of its own devices are
// always let in. It reports false where there is no room.
func (i *podInterface) addSegment(name string, vlan bpf.VLAN) bool {
	if _, known := i.segments[name]; known {
		return true
	}
	if vlan != (bpf.VLAN{}) && len(i.segments) >= maxSegments && !i.View.Explains(vlan.Outer, vlan.Inner) {
		return false
	}
	i.segments[name] = vlan
	return true
}

// segmentAddress is an address behind an interface in one VLAN.
type segmentAddress struct {
	ip   netip.Addr
	vlan bpf.VLAN
}

// interfaceEvent follows what the watcher found.
func (l *loop) interfaceEvent(event links.Event) {
	now := time.Now()
	switch event.Kind {
	case links.HostAddresses:
		l.hostEvent(event.Host, now)
		return
	case links.UnsupportedDevices:
		l.unsupported = event.Unsupported
		return
	}
	ref := detector.Interface{Ifindex: uint32(event.Interface.Index), Generation: event.Interface.Generation}
	i := l.interfaces[ref]
	if event.Kind == links.Removed {
		delete(l.interfaces, ref)
		l.apply(l.detector.WithdrawInterface(ref, "interface "+event.Interface.Name+" is gone", now))
		return
	}
	holder := l.holderID(event.Interface)
	if i == nil {
		i = &podInterface{
			ref:      ref,
			segments: make(map[string]bpf.VLAN),
			probes:   make(map[segmentAddress]time.Time),
			wanted:   make(map[segmentAddress]*want),
		}
		l.interfaces[ref] = i
	} else {
		switch {
		case i.holder != holder:
			l.apply(l.detector.WithdrawInterface(ref, "its netns is known differently now", now))
		case baseNetwork(i.Interface) != baseNetwork(event.Interface):
			l.apply(l.detector.WithdrawInterface(ref, "it belongs to another network now", now))
			clear(i.segments)
		default:
			l.withdrawLost(i, event.Interface, now)
		}
		if i.State == links.Waiting || event.Interface.Up && !i.Up {
			clear(i.wanted) // what was asked before could not be heard
		}
	}
	i.Interface, i.holder = event.Interface, holder
	l.wantConfigured(i, now)
	waiting := i.queue
	i.queue = nil
	for _, r := range waiting {
		l.classify(i, r)
	}
	l.replayEarly()
	l.solicitWanted()
}

// holderID says who is behind an interface: the netns where it is seen, else the
// interface itself.
func (l *loop) holderID(i *links.Interface) detector.HolderID {
	if i.Seen {
		return detector.HolderID{Node: l.node.ID(), Netns: i.View.Cookie}
	}
	return detector.HolderID{Node: l.node.ID(), Ifindex: uint32(i.Index), Generation: i.Generation}
}

// withdrawLost ends the bindings whose address has left the netns.
func (l *loop) withdrawLost(i *podInterface, now *links.Interface, at time.Time) {
	if !i.Seen || !now.Seen || now.View.Truncated {
		return
	}
	for _, old := range i.View.Addresses {
		vlan := bpf.VLAN{Outer: old.OuterVLAN, Inner: old.InnerVLAN}
		if now.View.Holds(old.IP, old.OuterVLAN, old.InnerVLAN) || !i.View.Holds(old.IP, old.OuterVLAN, old.InnerVLAN) {
			continue
		}
		delete(i.wanted, segmentAddress{old.IP, vlan})
		name := network(i.Interface, vlan)
		if l.heldElsewhere(i, name, old.IP, vlan) {
			continue
		}
		l.apply(l.detector.Withdraw(detector.Key{Network: name, IP: old.IP}, i.holder,
			"the address left netns "+now.Place.Label(), at))
	}
}

// heldElsewhere says whether the same netns has the address on another interface
// of the same network.
func (l *loop) heldElsewhere(i *podInterface, name string, ip netip.Addr, vlan bpf.VLAN) bool {
	for _, other := range l.interfaces {
		if other != i && other.holder == i.holder && network(other.Interface, vlan) == name &&
			other.View.Holds(ip, vlan.Outer, vlan.Inner) {
			return true
		}
	}
	return false
}

// classify decides what a record is evidence of, and tells the detector.
func (l *loop) classify(i *podInterface, r bpf.Record) {
	at := timeOf(r.Time)
	where := segmentAddress{r.IP, r.VLAN}
	if r.Kind == bpf.Tentative {
		if i.View.Settled(r.IP) && i.View.Taken.Before(at) {
			return // the pod has the address already; probing it puts nothing off
		}
		if len(i.probes) >= maxProbes {
			l.forgetProbes(i)
		}
		if len(i.probes) < maxProbes {
			i.probes[where] = at
		}
		return
	}
	name := network(i.Interface, r.VLAN)
	if !i.addSegment(name, r.VLAN) {
		l.dropped["too many VLANs"]++
		return
	}
	sighting := detector.Sighting{
		Key:      detector.Key{Network: name, IP: r.IP},
		Holder:   l.describe(i, r.MAC),
		Evidence: detector.Data,
		At:       at,
	}
	if r.Kind != bpf.Data {
		sighting.Evidence = detector.Announced
		sighting.Answer = r.Kind == bpf.Answer
	}
	// An answer is not proof of holding: Linux answers for every address it has on
	// any interface, and for what it proxies. The list of addresses tells.
	if i.Seen && !i.View.Holds(r.IP, r.VLAN.Outer, r.VLAN.Inner) {
		if !i.View.Taken.After(at) {
			// It may have been added since the last look; and a list that was empty
			// then may say more now.
			if len(i.queue) < maxQueue {
				i.queue = append(i.queue, r)
				l.watcher.Refresh(i.Generation)
			} else {
				l.dropped["waiting for a look"]++
			}
			return
		}
		if i.View.Explains(r.VLAN.Outer, r.VLAN.Inner) {
			sighting.Evidence = detector.Forwarded
		}
	}
	if sighting.Evidence == detector.Announced {
		delete(i.probes, where)
	}
	if sighting.Evidence != detector.Forwarded && sighting.Evidence != detector.Data {
		delete(i.wanted, where)
	}
	l.apply(l.detector.Observe(sighting, time.Now()))
}

// describe makes the holder behind an interface, as people will see it.
func (l *loop) describe(i *podInterface, mac [6]byte) detector.Holder {
	holder := detector.Holder{
		ID:            i.holder,
		Interface:     i.ref,
		InterfaceName: i.Name,
		MAC:           detector.MAC(mac),
	}
	if i.Seen {
		holder.NetnsName = i.Place.Label()
	}
	return holder
}

// hostEvent follows the node's own addresses: they are bindings too, and are
// refreshed by every list.
func (l *loop) hostEvent(host []links.HostAddress, now time.Time) {
	present := make(map[netip.Addr]bool, len(host))
	for _, address := range host {
		present[address.IP] = true
	}
	for _, old := range l.hostAddresses {
		if !present[old.IP] {
			l.apply(l.detector.Withdraw(detector.Key{Network: DefaultNetwork, IP: old.IP}, l.host,
				"the address left the node", now))
		}
	}
	l.hostAddresses = host
	l.ready = true
	for _, address := range host {
		l.apply(l.detector.Observe(l.hostSighting(address, now), now))
	}
}

// hostSighting is a look at one of the node's own addresses.
func (l *loop) hostSighting(address links.HostAddress, at time.Time) detector.Sighting {
	sighting := detector.Sighting{
		Key: detector.Key{Network: DefaultNetwork, IP: address.IP},
		Holder: detector.Holder{
			ID:            l.host,
			Interface:     detector.Interface{Ifindex: uint32(address.Index)},
			InterfaceName: address.Device,
			NetnsName:     "host",
		},
		Evidence: detector.Host,
		Answer:   true,
		At:       at,
	}
	if len(address.MAC) == len(sighting.Holder.MAC) {
		copy(sighting.Holder.MAC[:], address.MAC)
	}
	return sighting
}
