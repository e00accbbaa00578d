package report

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/wire"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// lookEvery is the time between two looks at the segment.
const lookEvery = 5 * time.Second

// maxSegment bounds the findings about addresses that other machines have, too.
const maxSegment = 64

// maxOfOne bounds those about one other node among them, or about machines that are no nodes.
const maxOfOne = 16

// segment is what the last look has found: addresses of this node that others have for themselves, too. It does not change.
type segment struct {
	list  []document.Finding
	count map[string]int // by each kind that was looked for, with those that were left out
}

// omitted is how many were left out.
func (s segment) omitted() int {
	return s.count[document.TwoNodes] + s.count[document.Stranger] - len(s.list)
}

// lookedAt is what a look at the segment of the nodes is about. It belongs to nobody else.
type lookedAt struct {
	device    int // ifindex
	twins     []twin
	hears     bool // strangers, if there are any
	strangers []wire.Stranger
	holders   []detector.Binding // of the strangers' addresses here
}

// twin is an address that another node has, too.
type twin struct {
	detector.Twin
	prefix netip.Prefix
	pods   int // of this node with addresses of the prefix, if it is a gateway
}

// FollowSegment looks who else has addresses of this node on the segment that joins the nodes, until ctx ends.
func (r *Report) FollowSegment(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			var l lookedAt
			if r.whenReady(ctx, func() { l = r.look(time.Now()) }) == nil {
				r.findSegment(l, r.members())
			}
		}
	}
}

// look collects what there is to say of the segment of the nodes, and has it listened to. Call it in the goroutine that owns the parts.
func (r *Report) look(now time.Time) (l lookedAt) {
	own, ok := r.Table.Own.Segment()
	if !ok || r.OnSegment == nil {
		return l // it had one, perhaps
	}
	l.device, l.hears = own.Index, len(r.Table.Own.Segments()) > 0
	told := make(map[netip.Addr]bool) // an address may have two keys there
	for _, t := range r.Detector.Twins(now) {
		l.twins, told[t.Own.Key.IP] = append(l.twins, twin{Twin: t, prefix: r.Table.Own.Prefix(t.Own.Key)}), true
	}
	if slices.ContainsFunc(l.twins, twin.isGateway) {
		r.countPods(l.twins)
	}
	for _, s := range r.OnSegment(now) {
		keys := r.Table.Own.OnSegment(own.Device, s.IP)
		if told[s.IP] || slices.ContainsFunc(keys, r.Detector.IsConfirmed) {
			continue
		}
		for _, key := range keys {
			if holders, _ := r.Detector.LocalHolders(key); len(holders) > 0 {
				l.strangers, l.holders = append(l.strangers, s), append(l.holders, holders[0])
				break
			}
		}
	}
	return l
}

// countPods counts the pods of this node in the subnets of gateways.
func (r *Report) countPods(twins []twin) {
	r.Detector.Bindings(func(b *detector.Binding) bool {
		if b.Holder.ID.Node != r.Self.NodeID() || b.Evidence == detector.Host || !b.Evidence.Counts() {
			return false
		}
		for i, t := range twins {
			if t.isGateway() && t.prefix.IsValid() && t.prefix.Masked().Contains(b.Key.IP) {
				twins[i].pods++
			}
		}
		return false // nobody needs the list
	})
}

// isGateway reports whether an address is that of a bridge of pods on one of two nodes at least.
func (t twin) isGateway() bool {
	return t.Own.Holder.Place == detector.PlaceBridge || t.Other.Holder.Place == detector.PlaceBridge
}

// findSegment makes the findings of a look.
func (r *Report) findSegment(l lookedAt, members []cluster.Member) {
	found := segment{count: make(map[string]int)}
	if l.device != 0 { // else the kind has no series
		found.count[document.TwoNodes] = 0
	}
	if l.hears {
		found.count[document.Stranger] = 0
	}
	of := make(map[string]int) // one that says much leaves room for others
	add := func(f document.Finding) {
		found.count[f.Kind]++
		if of[f.HeldBy]++; len(found.list) < maxSegment && of[f.HeldBy] <= maxOfOne {
			found.list = append(found.list, f)
		}
	}
	alive := make(map[string]bool)
	for _, m := range members {
		alive[m.NodeID()] = alive[m.NodeID()] || m.State == cluster.Alive
	}
	for _, t := range l.twins {
		if !alive[t.Other.Holder.ID.Node] { // what it had may be another one's now
			continue
		}
		f := document.Finding{
			Kind: document.TwoNodes, IP: t.Own.Key.IP, Book: "nodes", Since: t.Since.Round(0), HeldBy: cluster.NodeName(t.Other.Holder.ID.Node), Prefix: t.prefix,
			Gateway: t.isGateway(),
		}
		f.Holder = holderOf(t.Own.Holder)
		if f.Gateway && t.Own.Holder.Place == detector.PlaceUplink {
			f.Prefix = netip.Prefix{} // it is the node's own, and not left over
		} else {
			f.Pods = t.pods
		}
		add(f)
	}
	if len(l.strangers) > 0 {
		owners := r.ownersOf(l.device, byAddress(members, r.Self.NodeID()))
		for i, s := range l.strangers {
			who, known := owners[s.MAC]
			if known && who == "" { // it passes packets on, or is this node itself
				continue
			}
			f := document.Finding{
				Kind: document.Stranger, IP: s.IP, Book: "nodes", Since: s.First.Round(0), By: s.MAC, HeldBy: who,
				Holder: holderOf(l.holders[i].Holder),
			}
			add(f)
		}
	}
	before := r.lastSegment()
	for _, f := range found.list {
		known := slices.ContainsFunc(before.list, func(o document.Finding) bool {
			return o.Kind == f.Kind && o.IP == f.IP && o.HeldBy == f.HeldBy && o.By == f.By
		})
		if !known && r.segmentLines.Allow() {
			r.Log.Warn("somebody else has an address of this node or of a pod here; \"dupip audit\" says what to do", "kind", f.Kind, "ip", f.IP, "interface", f.Interface, "node", f.HeldBy, "mac", f.By)
		}
	}
	r.segment.Store(&found)
}

// holderOf describes the holder of a finding.
func holderOf(h detector.Holder) document.Holder {
	d := document.Holder{Pod: document.NewPod(h.Pod)}
	for text, from := range map[*string]string{&d.Interface: h.InterfaceName, &d.Bridge: h.Bridge, &d.Netns: h.NetnsName} {
		*text = document.Text(from, document.MaxName)
	}
	return d
}

// ownersOf returns which nodes have MACs on a device, by the kernel's neighbour entries of their addresses. It is empty for gateways, and for the
// devices of this node.
func (r *Report) ownersOf(device int, members map[netip.Addr]string) map[detector.MAC]string {
	owners := make(map[detector.MAC]string)
	set := func(mac net.HardwareAddr, who string) {
		if len(mac) == len(detector.MAC{}) {
			owners[detector.MAC(mac)] = who
		}
	}
	neighbours, _ := netlink.NeighList(device, netlink.FAMILY_ALL)
	gateways := make(map[netip.Addr]bool)
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, _ := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE) // of all tables
		for _, route := range routes {
			for _, hop := range append(route.MultiPath, &netlink.NexthopInfo{Gw: route.Gw, Via: route.Via}) {
				if via, ok := hop.Via.(*netlink.Via); ok {
					hop.Gw = via.Addr
				}
				if gw, ok := netip.AddrFromSlice(hop.Gw); ok {
					gateways[gw.Unmap()] = true
				}
			}
		}
	}
	for _, n := range neighbours {
		ip, _ := netip.AddrFromSlice(n.IP)
		if node, ok := members[ip.Unmap()]; ok {
			set(n.HardwareAddr, cluster.NodeName(node))
		}
	}
	for _, n := range neighbours {
		ip, _ := netip.AddrFromSlice(n.IP)
		if _, member := members[ip.Unmap()]; gateways[ip.Unmap()] && !member {
			set(n.HardwareAddr, "")
		}
	}
	links, _ := netlink.LinkList()
	for _, link := range links {
		set(link.Attrs().HardwareAddr, "")
	}
	return owners
}

// lastSegment returns what the last look has found. Any goroutine may call it.
func (r *Report) lastSegment() segment {
	if found := r.segment.Load(); found != nil {
		return *found
	}
	return segment{}
}
