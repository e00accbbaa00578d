// Package route asks the kernel where it would send a packet to an address now. No packet is sent,
// and the kernel does not resolve neighbours because of it.
//
// It sees the netns of the process and the routes for packets of the node itself; other rules may
// apply to forwarded packets. It knows nothing about pods and conflicts.
package route

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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
	// Device is what the packet leaves by; only with Kind Out.
	Device Device
	// Gateway is the next hop, zero if that is the address itself.
	Gateway netip.Addr
	// MAC is from the neighbour entry of the address on Device; nil if there is a gateway or no
	// usable entry.
	MAC net.HardwareAddr
	// Bridged says that Device is a bridge, or a VLAN of one. Port is then the port that leads to
	// MAC, zero if the bridge does not know it now.
	Bridged bool
	Port    Device
}

// Device is a device of the node.
type Device struct {
	Index int
	Name  string
	// Leaves says that the device is of a type that leads out of the node: a physical device or a
	// tunnel. A veth may do so, too.
	Leaves bool
}

// To returns the route to an address. It fails if the kernel's reply is malformed, or a device was
// removed during the lookup.
func To(ip netip.Addr) (Route, error) {
	routes, err := netlink.RouteGet(ip.AsSlice())
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH),
		errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL): // prohibit and blackhole
		return Route{Kind: Nowhere}, nil
	case err != nil:
		return Route{}, fmt.Errorf("looking up the route to %s: %w", ip, err)
	case len(routes) != 1:
		return Route{}, fmt.Errorf("looking up the route to %s: %d replies", ip, len(routes))
	}
	route := routes[0]
	if route.Type == unix.RTN_LOCAL {
		return Route{Kind: Self}, nil
	}
	link, err := linkByIndex(route.LinkIndex)
	if err != nil {
		return Route{}, fmt.Errorf("reading device %d: %w", route.LinkIndex, err)
	}
	r := Route{Kind: Out, Device: device(link), Gateway: gateway(route)}
	if r.Gateway == ip {
		r.Gateway = netip.Addr{}
	}
	bridge, vid, bridged := bridgeOf(link)
	r.Bridged = bridged
	if r.Gateway.IsValid() {
		return r, nil
	}
	if r.MAC, err = neighbour(route.LinkIndex, ip); err != nil || r.MAC == nil || !bridged {
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

// gateway is the next hop of a route; it may be of the other address family.
func gateway(route netlink.Route) netip.Addr {
	hop := route.Gw
	if via, ok := route.Via.(*netlink.Via); ok && len(hop) == 0 {
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

// bridgeOf returns the bridge that a device is, or is a VLAN of, and the VLAN that packets by the
// device have in its table.
func bridgeOf(link netlink.Link) (index int, vid uint16, ok bool) {
	bridge, ok := below(link).(*netlink.Bridge)
	if !ok {
		return 0, 0, false
	}
	if bridge.VlanFiltering != nil && *bridge.VlanFiltering {
		if vlan, is := link.(*netlink.Vlan); is {
			vid = uint16(vlan.VlanId)
		} else if bridge.VlanDefaultPVID != nil {
			vid = *bridge.VlanDefaultPVID
		}
	}
	return bridge.Index, vid, true
}
