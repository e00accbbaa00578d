package observe

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/bounds"
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
	// readdressed is when its addresses have changed last.
	readdressed time.Time

	placed
	// first is the view of the netns when the interface was found.
	first netns.View
	// left are the addresses that the last change removed.
	left []netns.Address
	// claimed are the addresses that the pod claims, with when it did so last.
	claimed  map[netip.Addr]time.Time
	mirror   mirror
	awaiting awaiting
	refused  refused
	// lostLogged is when lost addresses were logged last.
	lostLogged time.Time
}

// scanKey is what is scanned for in the kernel of a pod.
type scanKey struct {
	ip   netip.Addr
	vlan bpf.VLAN
}

// awaiting is what waits for a scan of the netns of an interface.
type awaiting struct {
	// requests has what is scanned for in the kernel of the pod.
	requests map[scanKey]requested
	records  []bpf.Record
}

// requested is when a scan was requested first and last. A scan may be the answer to the first and too old for the last.
type requested struct{ first, last time.Time }

// refused counts packets that made no record because a limit was reached.
type refused struct {
	// last is the latest reading, previous the sum of the programs that were attached before.
	last, previous bpf.Counters
	sampled        uint64 // the sum at the last sample
	warned         time.Time
}

// placed is in which networks an interface is.
type placed struct {
	networks *networks
	// base is the network of untagged packets, if no rule of the configuration names one. moves: its addresses may be in
	// other networks than their bindings.
	base  string
	moves bool
	// vlans has the tags by network: of that of a bridge port's VLAN both none and its number.
	vlans map[string][]bpf.VLAN
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

// holder is [Interface.Describe] for an address.
func (i *Interface) holder(mac [6]byte, key detector.Key) detector.Holder {
	h := i.Describe(mac)
	h.Given, h.Place = i.Given(key.IP), i.networks.place(key.Network)
	return h
}

// rebase finds the base network of an interface again.
func (i *Interface) rebase() {
	before := i.base
	i.base = i.networks.base(i)
	i.moves = i.moves || i.base != before
}

// Key returns the key of an address on the interface.
func (i *Interface) Key(ip netip.Addr, vlan bpf.VLAN) detector.Key {
	return detector.Key{Network: i.networks.of(i, vlan, ip), IP: ip}
}

func (i *Interface) key(a netns.Address) detector.Key { return i.Key(a.IP, vlanOf(a)) }

func vlanOf(a netns.Address) bpf.VLAN { return bpf.VLAN{Outer: a.OuterVLAN, Inner: a.InnerVLAN} }

// Network is the network of untagged packets on the interface.
func (i *Interface) Network() string { return i.Key(netip.Addr{}, bpf.VLAN{}).Network }

// Configured returns the addresses that a pod should answer for on the interface, with their tags.
func (i *Interface) Configured() iter.Seq2[detector.Key, bpf.VLAN] { return i.keys(i.configured()) }

// Configures returns the tags of a key that is among those of Configured.
func (i *Interface) Configures(key detector.Key) (bpf.VLAN, bool) {
	for a := range i.configured() {
		if a.IP == key.IP && i.key(a) == key {
			return vlanOf(a), true
		}
	}
	return bpf.VLAN{}, false
}

// Left returns the addresses that the last change removed from a pod without other addresses. A process
// may have taken them over from the kernel, as gVisor does.
func (i *Interface) Left() iter.Seq2[detector.Key, bpf.VLAN] { return i.keys(slices.Values(i.left)) }

func (i *Interface) keys(addresses iter.Seq[netns.Address]) iter.Seq2[detector.Key, bpf.VLAN] {
	return func(yield func(detector.Key, bpf.VLAN) bool) {
		for a := range addresses {
			key := i.key(a)
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

// Given says whether a network plugin gave the pod behind the interface an address, by what the runtime and CNI's result
// have of its sandbox. "Not given" needs a result of this very interface, and an address that the pod's kernel has: the
// guest of a virtual machine may have been given its address by others.
func (i *Interface) Given(ip netip.Addr) detector.Given {
	switch {
	case i.Origin.Role == SecondaryByResult: // the runtime and the result have the primary network only
		return detector.GivenUnknown
	case i.given(ip):
		return detector.GivenYes
	case i.givenOthers(ip) && i.Seen && i.View.Has(ip):
		return detector.GivenNo
	}
	return detector.GivenUnknown
}

// given reports whether the runtime or CNI's result has an address.
func (i *Interface) given(ip netip.Addr) bool {
	return slices.Contains(i.Pod.IPs, ip) || i.Pod.Result != nil &&
		slices.ContainsFunc(i.Pod.Result.Addresses, func(p netip.Prefix) bool { return p.Addr() == ip })
}

// givenOthers reports whether CNI's result gives this very interface addresses, as the primary one, and neither the result nor the runtime
// has ip. It allocates nothing, because Given is called for each packet.
func (i *Interface) givenOthers(ip netip.Addr) bool {
	result := i.Pod.Result
	switch {
	case result == nil || len(result.Addresses) == 0 || i.given(ip):
		return false
	case result.Whole:
		// Docker's gateway network, DHCP and routers give others, on other devices or in other subnets.
		for _, p := range result.Addresses { // a function for slices.ContainsFunc would be allocated
			if p.Contains(ip) && i.View.OnPeer(p.Addr()) {
				return !i.Unsettled() && i.View.Configured(ip)
			}
		}
		return false
	}
	return i.Origin.Role != SecondaryByResult && result.Names(i.Name)
}

// Unsettled reports whether the engine of a container was asked before it knew the present addresses.
func (i *Interface) Unsettled() bool {
	return i.Pod.Result != nil && i.Pod.Result.Whole && i.Pod.ListedAt.Before(i.readdressed.Add(pods.EngineDelay))
}

// followEngine has the engine of a container asked again if its last answer may lack the present addresses.
func (t *Table) followEngine(i *Interface) {
	if i.Unsettled() && t.Readdressed != nil {
		t.Readdressed(i.Pod.Cookie, i.readdressed.Add(pods.EngineDelay))
	}
}

// GivenOthers returns the addresses that CNI's result gives the interface, if it gives others than ip; nil if that is not known.
func (i *Interface) GivenOthers(ip netip.Addr) (others []netip.Addr) {
	if !i.givenOthers(ip) {
		return nil
	}
	for _, p := range i.Pod.Result.Addresses {
		others = append(others, p.Addr())
	}
	return others
}

// interfaces are all that lead into pods.
type interfaces map[detector.Interface]*Interface

// any reports whether any interface of a holder is so.
func (all interfaces) any(holder detector.HolderID, is func(*Interface) bool) bool {
	for _, i := range all {
		if i.Holder == holder && is(i) {
			return true
		}
	}
	return false
}

// observed reports whether another interface to which the observer is attached leads to the device with an address.
func (all interfaces) observed(i *Interface, ip netip.Addr) bool {
	return all.any(i.Holder, func(other *Interface) bool {
		return other != i && other.State == links.Attached && other.View.OnPeer(ip)
	})
}

// holdElsewhere reports whether the netns has the address on another interface of the same network.
func (all interfaces) holdElsewhere(i *Interface, key detector.Key, vlan bpf.VLAN) bool {
	return all.any(i.Holder, func(other *Interface) bool {
		return other != i && other.Key(key.IP, vlan) == key && other.View.Holds(key.IP, vlan.Outer, vlan.Inner)
	})
}

const (
	// claimFor is how long a claim lives that is not repeated: as long as evidence does.
	claimFor = 5 * time.Minute
	// maxClaims limits the claims of one interface, to as many as addresses are listed. The oldest make room: by the
	// observer's limit that takes longer than two rounds of probes.
	maxClaims = 1024
)

var tooManyClaims = bounds.New("too many addresses that a pod only announces")

// claims reports whether a record is a claim, and notes it. The pod has the address on a device that is not observed, such
// as a bridge of its own, and announces it unasked on this interface: neighbours that believe it send their packets here.
// After a claim its answers to our probes count, too. Alone they mean nothing, because Linux answers on each interface for
// all addresses of the netns (arp_ignore 0). ARP requests with a foreign sender change caches, too; they are not covered.
func (i *Interface) claims(r bpf.Record, at time.Time, all interfaces) bool {
	switch {
	case r.Kind != bpf.Gratuitous && r.Kind != bpf.Answer, !i.Seen || !i.View.Covers(r.VLAN.Outer, r.VLAN.Inner),
		!i.View.Elsewhere(r.IP, r.VLAN.Outer, r.VLAN.Inner) || all.observed(i, r.IP):
		return false
	case r.Kind == bpf.Answer:
		claimed, ok := i.claimed[r.IP]
		return ok && at.Sub(claimed) < claimFor
	}
	if _, known := i.claimed[r.IP]; !known && len(i.claimed) >= maxClaims {
		oldest := r.IP
		for ip, claimed := range i.claimed {
			if oldest == r.IP || claimed.Before(i.claimed[oldest]) {
				oldest = ip
			}
		}
		delete(i.claimed, oldest)
		tooManyClaims.Exceeded(1)
	}
	i.claimed[r.IP] = at
	return true
}
