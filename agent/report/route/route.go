// Package route asks the kernel where it would send a packet to an address now. No packet is sent,
// and the kernel does not resolve neighbours because of it.
//
// It sees the netns of the process and the routes for packets of the node itself; other rules may
// apply to forwarded packets. It knows nothing about pods and conflicts.
package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/bounds"
)

// Kind is the kind of a route.
type Kind uint8

// The kinds of routes.
const (
	// Out: by a device.
	Out Kind = iota + 1
	// Self: the address is the node's own.
	Self
	// Nowhere: there is no route, or one that drops packets.
	Nowhere
)

// Route is where a packet would go.
type Route struct {
	Kind Kind
	// Device is what the packet leaves by, or with Kind Self what the route names; none with Nowhere.
	Device Device
	// Prefix is what the route is for, as the kernel has it in Table, where Protocol has put it; zero if the kernel does not say.
	Prefix   netip.Prefix
	Table    int
	Protocol string
	// Gateway is the next hop, zero if that is the address itself. Single: the route is for the address alone.
	Gateway netip.Addr
	Single  bool
	// MAC is from the neighbour entry of the address on Device; nil if there is a gateway or no
	// usable entry.
	MAC net.HardwareAddr
	// Bridge is the ifindex of the bridge that Device is, or is a VLAN of; zero if it is none. Port is then the port that leads
	// to MAC, zero if the bridge does not know it now.
	Bridge int
	Port   Device
	// Far is the other end of the tunnel, if Device is a VXLAN that has entries for the next hop.
	Far netip.Addr
}

// Device is a device of the node.
type Device struct {
	Index int
	Name  string
	// Leaves says that the device is of a type that leads out of the node: a physical device or a
	// tunnel. A veth may do so, too.
	Leaves bool
}

// get asks the kernel for the route to an address.
func get(ip netip.Addr, options *netlink.RouteGetOptions) (found netlink.Route, kind Kind, err error) {
	routes, err := netlink.RouteGetWithOptions(ip.AsSlice(), options)
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH),
		errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL): // prohibit and blackhole
		return found, Nowhere, nil
	case err != nil:
		return found, 0, fmt.Errorf("looking up the route to %s: %w", ip, err)
	case len(routes) != 1:
		return found, 0, fmt.Errorf("looking up the route to %s: %d replies", ip, len(routes))
	case routes[0].Type == unix.RTN_LOCAL:
		return routes[0], Self, nil
	}
	return routes[0], Out, nil
}

// maxLegs bounds the legs of a route that are looked at.
const maxLegs = 8

var tooManyLegs = bounds.New("too many legs of a route")

// To returns the routes that packets to an address may take: several if the kernel spreads connections over them. It fails if the kernel's
// reply is malformed, or a device was removed during the lookup.
func To(ip netip.Addr) ([]Route, error) {
	found, kind, err := get(ip, &netlink.RouteGetOptions{FIBMatch: true})
	if kind == Out && found.LinkIndex == 0 && len(found.MultiPath) == 0 { // a nexthop object, with net.ipv4.nexthop_compat_mode=0
		found, kind, err = get(ip, nil)
		found.Dst = nil // it is the address, whatever the route is for
	}
	switch {
	case err != nil:
		return nil, err
	case kind == Nowhere:
		return []Route{{Kind: kind}}, nil
	case kind == Self:
		link, err := linkByIndex(found.LinkIndex)
		if err != nil {
			return nil, fmt.Errorf("reading device %d: %w", found.LinkIndex, err)
		}
		return []Route{of(Route{Kind: kind, Device: device(link)}, &found)}, nil
	case len(found.MultiPath) == 0:
		found.MultiPath = []*netlink.NexthopInfo{{LinkIndex: found.LinkIndex, Gw: found.Gw, Via: found.Via, Encap: found.Encap}}
	}
	var legs []Route
	for _, hop := range found.MultiPath {
		switch {
		case hop.Flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0:
		case len(legs) == maxLegs:
			tooManyLegs.Exceeded(1)
		default:
			next := gateway(hop.Gw, hop.Via)
			if hop.Encap != nil { // the gateway is that of the outer packet
				next = netip.Addr{}
			}
			leg, err := by(ip, hop.LinkIndex, next)
			if err != nil {
				return nil, err
			}
			legs = append(legs, of(leg, &found))
		}
	}
	return legs, nil
}

// of adds which route of the kernel a leg belongs to.
func of(leg Route, found *netlink.Route) Route {
	leg.Prefix, leg.Table, leg.Protocol = prefix(found.Dst), found.Table, found.Protocol.String()
	leg.Single = leg.Prefix.IsSingleIP()
	return leg
}

func prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	ones, _ := n.Mask.Size()
	ip, _ := netip.AddrFromSlice(n.IP)
	return netip.PrefixFrom(ip.Unmap(), ones)
}

// by returns the route to an address by a device, and a gateway unless that is zero.
func by(ip netip.Addr, index int, gateway netip.Addr) (Route, error) {
	link, err := linkByIndex(index)
	if err != nil {
		return Route{}, fmt.Errorf("reading device %d: %w", index, err)
	}
	r := Route{Kind: Out, Device: device(link), Gateway: gateway}
	if r.Gateway == ip {
		r.Gateway = netip.Addr{}
	}
	hop := ip
	if r.Gateway.IsValid() {
		hop = r.Gateway
	}
	if link.Type() == "vxlan" {
		if r.Far, err = farEnd(index, hop); err != nil {
			return r, err
		}
	}
	bridge, vid := bridgeOf(link)
	r.Bridge = bridge
	if r.Gateway.IsValid() {
		return r, nil
	}
	if r.MAC, err = neighbour(index, ip); err != nil || r.MAC == nil || bridge == 0 {
		return r, err
	}
	port, err := portOf(bridge, r.MAC, vid)
	if err != nil || port == 0 || port == bridge {
		return r, err
	}
	if link, err = linkByIndex(port); err != nil {
		return r, fmt.Errorf("reading device %d: %w", port, err)
	}
	r.Port = device(link)
	return r, nil
}

// gateway is the next hop of a route or of a leg; it may be of the other address family.
func gateway(hop net.IP, via netlink.Destination) netip.Addr {
	if via, ok := via.(*netlink.Via); ok && len(hop) == 0 {
		hop = via.Addr
	}
	ip, _ := netip.AddrFromSlice(hop)
	if ip = ip.Unmap(); ip.IsUnspecified() {
		return netip.Addr{}
	}
	return ip
}

// linkByIndex is replaced by tests.
var linkByIndex = netlink.LinkByIndex

// uplinkTypes are the types of devices that lead out of the node.
var uplinkTypes = map[string]bool{
	"device": true, "bond": true, "team": true, "vxlan": true, "geneve": true, "wireguard": true,
	"ipip": true, "ip6tnl": true, "sit": true, "gre": true, "gretap": true, "ip6gre": true, "ip6gretap": true,
	"vti": true, "vti6": true, "xfrm": true,
}

func device(link netlink.Link) Device {
	return Device{Index: link.Attrs().Index, Name: link.Attrs().Name, Leaves: uplinkTypes[below(link).Type()]}
}

// below returns the device that a VLAN is of, and any other device itself.
func below(link netlink.Link) netlink.Link {
	if link.Type() == "vlan" && link.Attrs().NetNsID < 0 {
		if below, err := linkByIndex(link.Attrs().ParentIndex); err == nil {
			return below
		}
	}
	return link
}

// bridgeOf returns the bridge that a device is, or is a VLAN of, zero for none, and the VLAN that packets by the
// device have in its table.
func bridgeOf(link netlink.Link) (index int, vid uint16) {
	bridge, ok := below(link).(*netlink.Bridge)
	if !ok {
		return 0, 0
	}
	if bridge.VlanFiltering != nil && *bridge.VlanFiltering {
		if vlan, is := link.(*netlink.Vlan); is {
			vid = uint16(vlan.VlanId)
		} else if bridge.VlanDefaultPVID != nil {
			vid = *bridge.VlanDefaultPVID
		}
	}
	return bridge.Index, vid
}

// neighbour returns the MAC of an address from the kernel's neighbour table, nil if there is no
// usable entry. The kernel uses stale entries and confirms them later.
func neighbour(device int, ip netip.Addr) (net.HardwareAddr, error) {
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	entry, err := entryOf(family, device, 0, nl.NewRtAttr(unix.NDA_DST, ip.AsSlice()))
	const usable = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT
	if err != nil || entry == nil || entry.State&usable == 0 || len(entry.HardwareAddr) != 6 {
		return nil, err
	}
	return entry.HardwareAddr, nil
}

// portOf returns the index of the bridge port that frames to a MAC leave by, the bridge's own for its
// own MAC, and 0 if its table has no entry; then the bridge floods the frames.
func portOf(bridge int, mac net.HardwareAddr, vid uint16) (int, error) {
	attrs := []*nl.RtAttr{
		nl.NewRtAttr(unix.NDA_LLADDR, mac),
		nl.NewRtAttr(unix.NDA_MASTER, nl.Uint32Attr(uint32(bridge))),
	}
	if vid != 0 {
		attrs = append(attrs, nl.NewRtAttr(unix.NDA_VLAN, nl.Uint16Attr(vid)))
	}
	entry, err := entryOf(unix.AF_BRIDGE, 0, 0, attrs...)
	if err != nil || entry == nil {
		return 0, err
	}
	return entry.LinkIndex, nil
}

// farEnd returns the other end of a VXLAN's tunnel to a next hop, zero if the device has no entries for that (vxlan_fdb_get,
// drivers/net/vxlan/vxlan_core.c).
func farEnd(device int, hop netip.Addr) (netip.Addr, error) {
	mac, err := neighbour(device, hop)
	if err != nil || mac == nil {
		return netip.Addr{}, err
	}
	entry, err := entryOf(unix.AF_BRIDGE, device, netlink.NTF_SELF, nl.NewRtAttr(unix.NDA_LLADDR, mac))
	if err != nil || entry == nil {
		return netip.Addr{}, err
	}
	far, _ := netip.AddrFromSlice(entry.IP)
	return far.Unmap(), nil
}

// Ports returns the ifindexes of the ports of each bridge, by the bridge's ifindex.
func Ports() (map[int][]int, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing devices: %w", err)
	}
	ports := make(map[int][]int)
	for _, link := range links {
		if a := link.Attrs(); a.MasterIndex != 0 {
			ports[a.MasterIndex] = append(ports[a.MasterIndex], a.Index)
		}
	}
	return ports, nil
}

// ByDestination reports whether the node's rules choose routes by nothing but the destination. If they look at the source, the device or a
// mark, [To] may be wrong for packets that the node forwards.
func ByDestination() (bool, error) {
	rules, err := netlink.RuleList(netlink.FAMILY_ALL)
	if err != nil {
		return false, fmt.Errorf("listing the rules of routes: %w", err)
	}
	return !slices.ContainsFunc(rules, func(r netlink.Rule) bool {
		other := r.Table == unix.RT_TABLE_UNSPEC && r.Goto <= 0 // such as that of VRFs
		return other || r.Src != nil || r.IifName != "" || r.OifName != "" || r.Mask != nil || r.Tos != 0 || r.TunID != 0 || r.IPProto != 0 ||
			r.Dport != nil || r.Sport != nil || r.UIDRange != nil
	}), nil
}

// entryOf returns one entry of a neighbour table, nil if it does not exist (RTM_GETNEIGH without
// NLM_F_DUMP, Linux 5.0). The kernel does not resolve the neighbour because of it.
func entryOf(family, device int, flags byte, attrs ...*nl.RtAttr) (*netlink.Neigh, error) {
	// struct ndmsg, linux/neighbour.h. The library's type has padding that is not zeroed, which
	// the kernel refuses.
	data := make([]byte, unix.SizeofNdMsg)
	data[0] = byte(family)
	binary.NativeEndian.PutUint32(data[4:], uint32(device))
	data[10] = flags
	for _, attr := range attrs {
		data = append(data, attr.Serialize()...)
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_REQUEST)
	request.AddRawData(data)
	answers, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking up a neighbour: %w", err)
	case len(answers) != 1 || len(answers[0]) < unix.SizeofNdMsg:
		return nil, fmt.Errorf("looking up a neighbour: %d replies", len(answers))
	}
	return netlink.NeighDeserialize(answers[0])
}
