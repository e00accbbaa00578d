package observe

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// maxVLANs limits the networks of one interface.
const maxVLANs = 64

// Interface is the state of one interface that leads into a pod.
type Interface struct {
	*links.Interface
	Ref    detector.Interface
	Holder detector.HolderID
	// Found is when the interface, or its present netns, was found.
	Found time.Time
	// Lost is when the last reference to the netns disappeared; zero while there is one, or never was.
	Lost time.Time
	// Pod is what the runtime reports about the pod in the netns, or else about the first one behind the interface; empty
	// if it is not known yet.
	Pod    pods.Change
	Origin *Origin

	// base is the network of untagged packets, if no rule of the configuration names one. moves: its addresses may be in
	// other networks than their bindings.
	base  string
	moves bool
	// first is the view of the netns when the interface was found.
	first netns.View
	// vlans has the tags by network: of that of a bridge port's VLAN both none and its number.
	vlans map[string][]bpf.VLAN
	// left are the addresses that the last change removed.
	left []netns.Address
	// claimed are the addresses that the pod claims, with when it did so last.
	claimed map[netip.Addr]time.Time
	// scanRequests has what is scanned for in the kernel of the pod, with when.
	scanRequests map[scanKey]requested
	// mirrored is when its holder sent one of our probes back last.
	mirrored time.Time
	// queue has records that wait for a newer scan of the netns.
	queue   []bpf.Record
	refused refused
	// lostLogged is when lost addresses were logged last.
	lostLogged time.Time
}

// VLANs returns the tags that packets of a network have on the interface, none if it is not in the network.
func (i *Interface) VLANs(network string) []bpf.VLAN { return i.vlans[network] }

// VLAN returns the tags with which the pod would receive a probe of an address, false if the interface is not in the
// network. Those of the device that has the address come first: what a pod sends with other tags must not lead probes
// astray.
func (i *Interface) VLAN(key detector.Key) (vlan bpf.VLAN, ok bool) {
	known := i.vlans[key.Network]
	for a := range i.View.Find(key.IP) {
		if a.Where == netns.OnPeer && slices.Contains(known, vlanOf(a)) {
			return vlanOf(a), true
		}
	}
	if len(known) == 0 {
		return bpf.VLAN{}, false
	}
	return known[0], true
}

// Untagged returns the networks whose packets carry no tag on the interface.
func (i *Interface) Untagged() (networks []string) {
	for name, vlans := range i.vlans {
		if slices.Contains(vlans, bpf.VLAN{}) {
			networks = append(networks, name)
		}
	}
	return networks
}

// Primary reports whether it is, or may be, the primary interface of its pod.
func (i *Interface) Primary() bool { return i.Kind == "" && i.Origin.primary() }

// addVLAN sets the tags of a network. It reports false if there are too many networks. Untagged packets
// and the VLANs of the pod's own devices are always accepted, so that made-up tags cannot displace them.
func (i *Interface) addVLAN(network string, vlan bpf.VLAN) bool {
	known := i.vlans[network]
	if slices.Contains(known, vlan) {
		return true
	}
	if vlan != (bpf.VLAN{}) && len(i.vlans) >= maxVLANs && len(known) == 0 && !i.View.Covers(vlan.Outer, vlan.Inner) {
		return false
	}
	i.vlans[network] = append(known, vlan)
	return true
}

// foundAtStart reports whether the pod may have had the address before the agent started. It did not if
// the first scan of its netns did not list the address.
func (i *Interface) foundAtStart(ip netip.Addr, vlan bpf.VLAN) bool {
	return i.Listed && (i.first.Has(ip) || !i.first.Covers(vlan.Outer, vlan.Inner))
}

// Describe returns the holder behind an interface.
func (i *Interface) Describe(mac [6]byte) detector.Holder {
	return detector.Holder{
		ID: i.Holder, Interface: i.Ref, InterfaceName: i.Name, Bridge: i.Master, MAC: detector.MAC(mac), NetnsName: i.Netns.Label(),
		Pod: i.Pod.Pod, CreatedAt: i.Pod.CreatedAt, Sandbox: i.Pod.Sandbox,
	}
}

// Update handles an event about interfaces or the node's own addresses. changed is the interface that
// was added or changed, nil if there is none.
func (t *Table) Update(event links.Event, now time.Time) (changed *Interface, all []Observation) {
	switch event.Kind {
	case links.HostAddresses:
		all = t.setHost(event.Host, now)
		t.host.listedBefore = true // at the start the watcher lists these after all interfaces
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
			t.forgetRefused(i, event.Refused, now)
		}
		delete(t.interfaces, ref)
		return nil, t.settle([]Observation{{Kind: Gone, Interface: ref, Reason: event.Reason}}, now)
	}
	var before netns.View
	if i == nil {
		i = &Interface{
			Interface: next, Ref: ref, Holder: t.holderID(next), Found: now,
			first: next.View, vlans: make(map[string][]bpf.VLAN), claimed: make(map[netip.Addr]time.Time), scanRequests: make(map[scanKey]requested),
		}
		t.interfaces[ref] = i
		t.setOrigin(i)
		i.base = t.baseNetwork(i)
	} else {
		before = i.View
		all = t.change(i, next, now)
	}
	if i.Pod.Pod == (detector.Pod{}) {
		i.Pod = pods.Change{Pod: i.Origin.Pod, CreatedAt: i.Origin.CreatedAt}
	}
	if pod, known := t.ByHostEnd(next.Name); known && pod.Cookie != next.View.Cookie {
		t.named(i, pod)
	}
	if next.Seen {
		if pod, known := t.Pod(next.View.Cookie); known {
			t.named(i, pod)
		}
	}
	all = t.settle(all, now)
	t.logChange(i)
	t.logLost(i, &before, now)
	all = append(all, t.found(i)...)
	waiting := append(i.queue, t.early[ref]...)
	i.queue = nil
	delete(t.early, ref)
	for _, r := range waiting {
		if o, ok := t.classify(i, r); ok {
			all = append(all, o)
		}
	}
	return i, all
}

// change updates an interface.
func (t *Table) change(i *Interface, next *links.Interface, now time.Time) (all []Observation) {
	before, holder := i.Interface, t.holderID(next)
	i.left = nil
	if i.Holder != holder {
		all = append(all, Observation{Kind: Gone, Interface: i.Ref, Reason: "the identity of its netns has changed"})
		i.Pod, i.Found = pods.Change{}, now
		for _, r := range i.queue { // packets of the previous netns
			t.drop(r, droppedGone)
		}
		i.queue, i.mirrored = nil, time.Time{}
		clear(i.claimed)
		clear(i.scanRequests)
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
	t.setOrigin(i)
	t.rebase(i)
	i.moves = i.moves || before.PortVLAN != next.PortVLAN || !t.config.SameRules(rules, subject(next, i.Origin.Peer))
	return all
}

// rebase finds the base network of an interface again.
func (t *Table) rebase(i *Interface) {
	before := i.base
	i.base = t.baseNetwork(i)
	i.moves = i.moves || i.base != before
}

// settle moves the bindings of interfaces into other networks where something has changed that these depend on. all are
// the earlier observations that the caller has not handled yet.
func (t *Table) settle(all []Observation, now time.Time) []Observation {
	t.updateSubnets()
	t.updateParents()
	if t.host.stale {
		all = append(all, t.moveHost(false, now)...)
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
func (t *Table) holderID(i *links.Interface) detector.HolderID {
	if i.Seen {
		return detector.HolderID{Node: t.Host.Node, Netns: i.View.Cookie}
	}
	return detector.HolderID{Node: t.Host.Node, Ifindex: uint32(i.Index), Generation: i.Generation}
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
		key := t.key(i, old)
		if t.heldElsewhere(i, key, vlanOf(old)) {
			continue
		}
		all = append(all, withdrawn(key, i.Holder, "the address left netns "+next.Netns.Label()))
		if !next.View.Covers(old.OuterVLAN, old.InnerVLAN) {
			i.left = append(i.left, old)
		}
	}
	return append(all, t.withdrawClaims(i, next, now)...)
}

// heldElsewhere reports whether the netns has the address on another interface of the same network.
func (t *Table) heldElsewhere(i *Interface, key detector.Key, vlan bpf.VLAN) bool {
	for _, other := range t.interfaces {
		if other != i && other.Holder == i.Holder && t.Key(other, key.IP, vlan) == key &&
			other.View.Holds(key.IP, vlan.Outer, vlan.Inner) {
			return true
		}
	}
	return false
}

// move moves the bindings of an interface into the networks that their addresses belong to now. They
// keep their evidence, because the BPF program would not report the addresses again for a while.
func (t *Table) move(i *Interface, all []Observation) []Observation {
	before := Interface{Interface: i.Interface, vlans: i.vlans}
	i.vlans = make(map[string][]bpf.VLAN)
	for _, b := range t.Bindings(func(b *detector.Binding) bool { return b.Holder.Interface == i.Ref && b.Holder.ID == i.Holder }) {
		vlan, here := before.VLAN(b.Key)
		ended := slices.ContainsFunc(all, func(o Observation) bool { return o.Kind == Withdrawn && o.Sighting.Key == b.Key })
		if !here || ended {
			continue
		}
		key := t.Key(i, b.Key.IP, vlan)
		i.addVLAN(key.Network, vlan)
		if key == b.Key {
			continue
		}
		all = append(all, withdrawn(b.Key, b.Holder.ID, "the address is in network "+key.Network+" now"), Observation{
			Kind: Seen, Interface: i.Ref, VLAN: vlan,
			Sighting: detector.Sighting{Key: key, Holder: b.Holder, Evidence: b.Evidence, At: b.LastSeen},
		})
	}
	return all
}

// Key returns the key of an address on an interface.
func (t *Table) Key(i *Interface, ip netip.Addr, vlan bpf.VLAN) detector.Key {
	return detector.Key{Network: t.network(i, vlan, ip), IP: ip}
}

func (t *Table) key(i *Interface, a netns.Address) detector.Key { return t.Key(i, a.IP, vlanOf(a)) }

func vlanOf(a netns.Address) bpf.VLAN { return bpf.VLAN{Outer: a.OuterVLAN, Inner: a.InnerVLAN} }

// Network is the network of untagged packets on an interface.
func (t *Table) Network(i *Interface) string { return t.Key(i, netip.Addr{}, bpf.VLAN{}).Network }

// Configured returns the addresses that a pod should answer for on the interface, with their tags.
func (t *Table) Configured(i *Interface) iter.Seq2[detector.Key, bpf.VLAN] {
	return t.keys(i, i.configured())
}

// Configures returns the tags of a key that is among those of Configured.
func (t *Table) Configures(i *Interface, key detector.Key) (bpf.VLAN, bool) {
	for a := range i.configured() {
		if a.IP == key.IP && t.key(i, a) == key {
			return vlanOf(a), true
		}
	}
	return bpf.VLAN{}, false
}

// Left returns the addresses that the last change removed from a pod without other addresses. A process
// may have taken them over from the kernel, as gVisor does.
func (t *Table) Left(i *Interface) iter.Seq2[detector.Key, bpf.VLAN] {
	return t.keys(i, slices.Values(i.left))
}

func (t *Table) keys(i *Interface, addresses iter.Seq[netns.Address]) iter.Seq2[detector.Key, bpf.VLAN] {
	return func(yield func(detector.Key, bpf.VLAN) bool) {
		for a := range addresses {
			key := t.key(i, a)
			i.addVLAN(key.Network, vlanOf(a))
			if !yield(key, vlanOf(a)) {
				return
			}
		}
	}
}

func (i *Interface) configured() iter.Seq[netns.Address] {
	return func(yield func(netns.Address) bool) {
		if !i.Seen || i.State == links.Pending { // an answer would not be seen yet
			return
		}
		// Addresses on lo count only if there are no others: many pods lawfully have the address of a
		// service there.
		unnumbered := i.Primary() && i.View.Unnumbered()
		for _, a := range i.View.Addresses {
			if a.Valid && (a.Where == netns.OnPeer || unnumbered) && !yield(a) {
				return
			}
		}
		if !i.Primary() || i.View.Covers(0, 0) {
			return
		}
		// If a virtual machine has the addresses, the netns has none, but the runtime may know those of
		// eth0.
		for _, ip := range i.Pod.IPs {
			if ip.IsGlobalUnicast() && !i.View.Has(ip) && !yield(netns.Address{IP: ip}) {
				return
			}
		}
	}
}

// Listed is an address that the kernel of a pod lists.
type Listed struct {
	Key       detector.Key
	VLAN      bpf.VLAN
	Interface *Interface
	netns.Address
}

// Lists returns the pod interfaces with an address in their netns, ordered by interface name.
func (t *Table) Lists(ip netip.Addr) (all []Listed) {
	for _, i := range t.interfaces {
		for a := range i.View.Find(ip) {
			all = append(all, Listed{t.key(i, a), vlanOf(a), i, a})
		}
	}
	slices.SortFunc(all, func(x, y Listed) int { return strings.Compare(x.Interface.Name, y.Interface.Name) })
	return all
}
