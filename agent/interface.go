package agent

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
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
	// lost is when nothing led to the netns any more; zero while something does, or
	// never did.
	lost time.Time
	// first is what was seen of the netns when the interface was found.
	first netns.View
	// segments are the tags by name of the network, for solicitations.
	segments map[string]bpf.VLAN
	// probes are the addresses that the pod itself is probing, with the time.
	probes map[segmentAddress]time.Time
	wanted map[segmentAddress]*want
	// questions are the addresses that were asked for here, with the time.
	questions map[netip.Addr]time.Time
	// queue waits for a look at the netns that is newer than its records.
	queue []bpf.Record
	// pod is empty as long as it is not known; sandboxIPs is what the runtime reports.
	pod        detector.Pod
	createdAt  time.Time
	sandbox    detector.Sandbox
	sandboxIPs []netip.Addr
	refused    refused
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
		l.followHost(event.Host, now)
		if !l.ready { // the watcher lists these last
			l.ready, l.readyAt = true, now
		}
		return
	case links.Unobserved:
		l.unobserved = event.Unobserved
		return
	}
	ref := detector.Interface{Ifindex: uint32(event.Interface.Index), Generation: event.Interface.Generation}
	i := l.interfaces[ref]
	if event.Kind == links.Removed {
		if i != nil {
			l.forgetRefused(i, event.Refused, now)
		}
		delete(l.interfaces, ref)
		l.apply(l.detector.WithdrawInterface(ref, event.Reason, now))
		return
	}
	holder := l.holderID(event.Interface)
	var left []segmentAddress
	if i == nil {
		i = &podInterface{
			ref:      ref,
			segments: make(map[string]bpf.VLAN),
			probes:   make(map[segmentAddress]time.Time),
			wanted:   make(map[segmentAddress]*want),
			first:    event.Interface.View,
		}
		l.interfaces[ref] = i
	} else {
		if i.holder != holder {
			l.apply(l.detector.WithdrawInterface(ref, "its netns is known differently now", now))
			i.follow(pods.Change{})
		} else {
			left = l.withdrawLost(i, event.Interface, now)
		}
		if i.State == links.Waiting || event.Interface.Up && !i.Up {
			clear(i.wanted) // what was asked before could not be heard
		}
	}
	switch {
	case event.Interface.Seen:
		i.lost = time.Time{}
	case i.Interface != nil && i.Seen:
		i.lost = now
	}
	moved := i.Interface != nil && !sameNetworks(l.config, i.Interface, event.Interface)
	i.Interface, i.holder = event.Interface, holder
	if moved {
		l.moveBindings(now, i)
	}
	l.name(i)
	l.wantConfigured(i, now)
	l.wantLeft(i, left, now)
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

// withdrawLost ends the bindings whose address has left the netns, and returns those
// addresses.
func (l *loop) withdrawLost(i *podInterface, now *links.Interface, at time.Time) (left []segmentAddress) {
	if !i.Seen || !now.Seen || now.View.Truncated {
		return nil
	}
	for _, old := range i.View.Addresses {
		vlan := bpf.VLAN{Outer: old.OuterVLAN, Inner: old.InnerVLAN}
		if now.View.Holds(old.IP, old.OuterVLAN, old.InnerVLAN) || !i.View.Holds(old.IP, old.OuterVLAN, old.InnerVLAN) {
			continue
		}
		delete(i.wanted, segmentAddress{old.IP, vlan})
		name := network(l.config, i.Interface, vlan, old.IP)
		if l.heldElsewhere(i, name, old.IP, vlan) {
			continue
		}
		l.apply(l.detector.Withdraw(detector.Key{Network: name, IP: old.IP}, i.holder,
			"the address left netns "+now.Place.Label(), at))
		left = append(left, segmentAddress{old.IP, vlan})
	}
	return left
}

// heldElsewhere says whether the same netns has the address on another interface
// of the same network.
func (l *loop) heldElsewhere(i *podInterface, name string, ip netip.Addr, vlan bpf.VLAN) bool {
	for _, other := range l.interfaces {
		if other != i && other.holder == i.holder && network(l.config, other.Interface, vlan, ip) == name &&
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
	if r.Kind == bpf.Tentative && r.MAC == l.mac {
		l.cameBack(i, r.IP, at)
		return
	}
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
	name := network(l.config, i.Interface, r.VLAN, r.IP)
	if !i.addSegment(name, r.VLAN) {
		l.dropped[dropVLANs]++
		return
	}
	sighting := detector.Sighting{
		Key:      detector.Key{Network: name, IP: r.IP},
		Holder:   l.describe(i, r.MAC),
		Evidence: detector.Data,
		At:       at,

		FoundAtStart: i.foundAtStart(where),
	}
	if r.Kind != bpf.Data {
		sighting.Evidence = detector.Announced
		sighting.Answer = r.Kind == bpf.Answer
	}
	// An answer is not proof of holding: Linux answers for every address it has on
	// any interface, and for what it proxies. The list of addresses tells. Nor is one proof
	// that others gave and a mirror sent back.
	if !i.Seen || !i.View.Holds(r.IP, r.VLAN.Outer, r.VLAN.Inner) {
		if i.Seen && !i.View.Taken.After(at) {
			// It may have been added since the last look; and a list that was empty
			// then may say more now.
			if len(i.queue) < maxQueue {
				i.queue = append(i.queue, r)
				l.watcher.Refresh(i.Generation)
			} else {
				l.dropped[dropLook]++
			}
			return
		}
		if i.Seen && i.View.Explains(r.VLAN.Outer, r.VLAN.Inner) || l.echoes.from(i.holder, at) {
			sighting.Evidence = detector.Forwarded
		}
	}
	if sighting.Evidence == detector.Announced {
		delete(i.probes, where)
	}
	// An announcement of a holder that the detector does not want to hear ends no question.
	if sighting.Evidence != detector.Forwarded && sighting.Evidence != detector.Data &&
		(sighting.Answer || !l.detector.DeafUntil(sighting.Key, i.holder).After(at)) {
		delete(i.wanted, where)
	}
	l.observe(sighting)
}

// foundAtStart says whether the pod may have had the address for long when the agent met
// the interface: unless its netns was listed then, and did not have it.
func (i *podInterface) foundAtStart(a segmentAddress) bool {
	return i.Listed && (i.first.Lists(a.ip) || !i.first.Explains(a.vlan.Outer, a.vlan.Inner))
}

// observe tells the detector, and those who wait for this very answer.
func (l *loop) observe(s detector.Sighting) {
	l.apply(l.detector.Observe(s, time.Now()))
	l.answeredQuestions(&s)
}

// describe makes the holder behind an interface, as people will see it.
func (l *loop) describe(i *podInterface, mac [6]byte) detector.Holder {
	holder := detector.Holder{
		ID:            i.holder,
		Interface:     i.ref,
		InterfaceName: i.Name,
		MAC:           detector.MAC(mac),
		Pod:           i.pod,
		CreatedAt:     i.createdAt,
		Sandbox:       i.sandbox,
	}
	if i.Seen {
		holder.NetnsName = i.Place.Label()
	}
	return holder
}
