package observe

import (
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// Update handles an event about interfaces or the node's own addresses. changed is the interface that
// was added or changed, nil if there is none.
func (t *Table) Update(event links.Event, now time.Time) (changed *Interface, all []Observation) {
	switch event.Kind {
	case links.HostAddresses:
		t.Own.set(event.Host)
		for _, i := range t.interfaces {
			if i.Kind != "" {
				i.rebase()
			}
		}
		all = t.Own.move(true, now)
		t.Own.listedBefore = true // at the start the watcher lists these after all interfaces
		return nil, t.settle(all, now)
	case links.Unobserved:
		t.unobserved = event.Unobserved
		return nil, nil
	}
	next := event.Interface
	ref := detector.Interface{Ifindex: uint32(next.Index), Generation: next.Generation}
	i := t.interfaces[ref]
	if event.Kind == links.Removed {
		if i != nil {
			t.Refusals.forget(i, event.Refused, now)
			t.Mirrors.drop(i)
		}
		delete(t.interfaces, ref)
		return nil, t.settle([]Observation{{Kind: Gone, Interface: ref, Reason: event.Reason}}, now)
	}
	var before netns.View
	if i == nil {
		i = &Interface{
			Interface: next, Ref: ref, Holder: holderID(t.Host.Node, next), Found: now, first: next.View,
			placed: placed{networks: &t.networks, vlans: make(map[string][]bpf.VLAN)}, claimed: make(map[netip.Addr]time.Time),
			awaiting: awaiting{requests: make(map[scanKey]requested)},
		}
		t.interfaces[ref] = i
		t.Own.followPrimary(i, t.Origins.set(i))
		i.base = t.networks.base(i)
	} else {
		before = i.View
		all = t.change(i, next, now)
	}
	if i.Pod.Pod == (detector.Pod{}) {
		i.Pod = pods.Change{Pod: i.Origin.Pod, CreatedAt: i.Origin.CreatedAt}
	}
	if i.readdressed.IsZero() || !slices.Equal(before.Addresses, i.View.Addresses) {
		i.readdressed = now
	}
	if pod, known := t.ByHostEnd(next.Name); known && pod.Cookie != next.View.Cookie {
		t.named(i, pod)
	}
	if next.Seen {
		if pod, known := t.Pod(next.View.Cookie); known {
			t.named(i, pod)
		}
	}
	t.followEngine(i)
	all = t.settle(all, now)
	if i.View.More && !before.More {
		t.Records.dropped[droppedView]++
	}
	t.Origins.logChange(i)
	t.lost.look(i, &before, now)
	all = append(all, i.found()...)
	for _, r := range t.Records.early[ref] {
		t.Mirrors.hear(i, &r)
	}
	waiting := append(i.awaiting.records, t.Records.early[ref]...)
	i.awaiting.records = nil
	delete(t.Records.early, ref)
	for _, r := range waiting {
		if o, ok := t.classify(i, r); ok {
			all = append(all, o)
		}
	}
	return i, all
}

// named notes what the runtime and CNI report about the pod that an interface leads to now, or was set up for.
func (t *Table) named(i *Interface, pod pods.Change) {
	wasPrimary := i.Origin.primary()
	if t.Origins.named(i, pod) {
		t.Own.followPrimary(i, wasPrimary)
		i.rebase()
	}
}

// change updates an interface.
func (t *Table) change(i *Interface, next *links.Interface, now time.Time) (all []Observation) {
	before, holder := i.Interface, holderID(t.Host.Node, next)
	i.left = nil
	if i.Holder != holder {
		all = append(all, Observation{Kind: Gone, Interface: i.Ref, Reason: "the identity of its netns has changed"})
		i.Pod, i.Found = pods.Change{}, now
		if next.Seen { // else it may be the same netns, of which no name is left
			for _, r := range i.awaiting.records {
				t.Records.drop(r, droppedGone)
			}
			i.awaiting.records = nil
		}
		t.Mirrors.drop(i)
		clear(i.claimed)
		clear(i.awaiting.requests)
	} else {
		all = t.withdrawLost(i, next, now)
	}
	switch {
	case next.Seen:
		i.Lost = time.Time{}
	case before.Seen:
		i.Lost = now
	}
	i.Interface, i.Holder = next, holder
	rules := subject(before, i.Origin.Peer)
	t.Own.followPrimary(i, t.Origins.set(i))
	i.rebase()
	i.moves = i.moves || before.PortVLAN != next.PortVLAN || !t.networks.config.SameRules(rules, subject(next, i.Origin.Peer))
	return all
}

// settle moves the bindings of interfaces into other networks where something has changed that these depend on. all are
// the earlier observations that the caller has not handled yet.
func (t *Table) settle(all []Observation, now time.Time) []Observation {
	t.networks.findSubnets(t.interfaces)
	t.Own.follow(t.interfaces)
	if t.Own.stale {
		all = append(all, t.Own.move(false, now)...)
	}
	for _, i := range t.interfaces {
		if i.moves {
			i.moves = false
			all = t.move(i, all)
		}
	}
	return all
}

// holderID is the holder behind an interface: the netns if it can be seen, else the interface.
func holderID(node string, i *links.Interface) detector.HolderID {
	if i.Seen {
		return detector.HolderID{Node: node, Netns: i.View.Cookie}
	}
	return detector.HolderID{Node: node, Ifindex: uint32(i.Index), Generation: i.Generation}
}

// withdrawLost withdraws the addresses that have left the netns.
func (t *Table) withdrawLost(i *Interface, next *links.Interface, now time.Time) (all []Observation) {
	if !i.Seen || !next.Seen || next.View.Truncated {
		return nil
	}
	for _, old := range i.View.Addresses {
		if next.View.Holds(old.IP, old.OuterVLAN, old.InnerVLAN) || !i.View.Holds(old.IP, old.OuterVLAN, old.InnerVLAN) {
			continue
		}
		key := i.key(old)
		if t.interfaces.holdElsewhere(i, key, vlanOf(old)) {
			continue
		}
		all = append(all, withdrawn(key, i.Holder, "the address left netns "+next.Netns.Label()))
		if !next.View.Covers(old.OuterVLAN, old.InnerVLAN) {
			i.left = append(i.left, old)
		}
	}
	return append(all, withdrawClaims(&t.Options, i, next, now)...)
}

// withdrawClaims withdraws the claims whose addresses have left the netns, and forgets old ones.
func withdrawClaims(o *Options, i *Interface, next *links.Interface, now time.Time) (all []Observation) {
	left := make(map[netip.Addr]bool)
	for ip, claimed := range i.claimed {
		if now.Sub(claimed) >= claimFor {
			delete(i.claimed, ip)
		} else if !next.View.More && !next.View.Has(ip) {
			delete(i.claimed, ip)
			left[ip] = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	for _, b := range o.Bindings(func(b *detector.Binding) bool {
		return left[b.Key.IP] && b.Holder.Interface == i.Ref && b.Holder.ID == i.Holder && b.Evidence <= detector.Claimed
	}) {
		all = append(all, withdrawn(b.Key, i.Holder, "the address left netns "+next.Netns.Label()))
	}
	return all
}

// move moves the bindings of an interface into the networks that their addresses belong to now. They
// keep their evidence, because the BPF program would not report the addresses again for a while.
func (t *Table) move(i *Interface, all []Observation) []Observation {
	before := Interface{Interface: i.Interface, placed: i.placed}
	i.vlans = make(map[string][]bpf.VLAN)
	for _, b := range t.Bindings(func(b *detector.Binding) bool { return b.Holder.Interface == i.Ref && b.Holder.ID == i.Holder }) {
		vlan, here := before.VLAN(b.Key)
		ended := slices.ContainsFunc(all, func(o Observation) bool { return o.Kind == Withdrawn && o.Sighting.Key == b.Key })
		if !here || ended {
			continue
		}
		key := i.Key(b.Key.IP, vlan)
		i.addVLAN(key.Network, vlan)
		was := b.Holder.Place
		if b.Holder.Place = t.networks.place(key.Network); key == b.Key && b.Holder.Place == was {
			continue
		}
		if key != b.Key {
			all = append(all, withdrawn(b.Key, b.Holder.ID, "the address is in network "+key.Network+" now"))
		}
		all = append(all, Observation{
			Kind: Seen, Interface: i.Ref, VLAN: vlan,
			Sighting: detector.Sighting{Key: key, Holder: b.Holder, Evidence: b.Evidence, At: b.LastSeen},
		})
	}
	return all
}
