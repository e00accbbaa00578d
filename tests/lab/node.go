package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Bridge is the name of the bridge that every node has, as CNI plugins call it.
const Bridge = "cni0"

// UplinkName is the device that joins a node to the switch.
const UplinkName = "eth0"

const uplink = UplinkName

// calicoMAC is the address of the host end of every Calico interface.
var calicoMAC = net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}

// Node is a netns that pods are attached to. [Lab.AddNode] makes those with a bridge
// and an uplink; [Pod.AsNode] makes one of a pod, for containers inside it.
type Node struct {
	*Netns
	// Number is N in the node's addresses: 10.244.N.0/24 and fd00:244:N::/64 for
	// bridged pods, 10.245.N.0/24 and fd00:245:N::/64 for routed ones, 192.168.77.N
	// and fd00:77::N on the switch. It is 0 for a pod that serves as a node.
	Number int
	// Program is the path of the agent's binary; empty is [Binary].
	Program string
	// Mounts are what agents that start from now on have in place of files and folders of the machine.
	Mounts []Mount

	bootIDFile *atomic.Pointer[string]
	ovs        *ovs
}

// IPv4 is the address with this last byte in the subnet of the node's bridged pods.
func (n *Node) IPv4(last byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 244, byte(n.Number), last})
}

// IPv6 is the address with this last byte in the subnet of the node's bridged pods.
func (n *Node) IPv6(last byte) netip.Addr { return n.ula(0x244, last) }

// RoutedIPv4 is the address with this last byte in the subnet of the node's routed pods.
func (n *Node) RoutedIPv4(last byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 245, byte(n.Number), last})
}

// RoutedIPv6 is the address with this last byte in the subnet of the node's routed pods.
func (n *Node) RoutedIPv6(last byte) netip.Addr { return n.ula(0x245, last) }

func (n *Node) ula(subnet uint16, last byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 2: byte(subnet >> 8), 3: byte(subnet), 5: byte(n.Number), 15: last})
}

// SegmentAddrs are an IPv4 and an IPv6 address of the segment of the nodes, which no node has: for macvlan and ipvlan pods. last is 210 or more.
func (n *Node) SegmentAddrs(last byte) []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{192, 168, 77, last}), netip.MustParseAddr(fmt.Sprintf("fd00:77::%x", last))}
}

// Uplink is the node's own IPv4 address on the switch.
func (n *Node) Uplink() netip.Addr {
	return netip.AddrFrom4([4]byte{192, 168, 77, byte(n.Number)})
}

// Uplink6 is the node's own IPv6 address on the switch.
func (n *Node) Uplink6() netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("fd00:77::%x", n.Number))
}

// Address is where other nodes reach the node: [Node.Uplink], or [Node.Uplink6] if it has IPv6 only.
func (n *Node) Address() netip.Addr {
	if n.lab.IPv6Only {
		return n.Uplink6()
	}
	return n.Uplink()
}

// switch addresses: the gateway of all nodes, behind which there is nothing.
var (
	gateway  = netip.MustParsePrefix("192.168.77.254/24")
	gateway6 = netip.MustParsePrefix("fd00:77::fe/64")
)

func (n *Netns) buildSwitch() error {
	return errors.Join(
		n.addBridge("br0", net.HardwareAddr{0x0a, 0x58, 0xc0, 0xa8, 77, 254}, gateway, gateway6),
		// Packets to the world end here, without an ICMP error that pods would receive.
		n.Sysctl("ipv4/icmp_ratemask", "0", "ipv4/ip_forward", "0"),
	)
}

// addBridge makes a bridge that is up. IPv6 duplicate address detection is off on it,
// because its link-local address would otherwise stay tentative until a first port.
func (n *Netns) addBridge(name string, mac net.HardwareAddr, addrs ...netip.Prefix) error {
	return n.addDevice(&netlink.Bridge{LinkAttrs: attrs(name, mac)}, addrs...)
}

// addDevice makes a device that is up, with these addresses.
func (n *Netns) addDevice(link netlink.Link, addrs ...netip.Prefix) error {
	name := link.Attrs().Name
	if err := n.nl.LinkAdd(link); err != nil {
		return fmt.Errorf("add %s in netns %s: %w", name, n.Name, err)
	}
	errs := []error{n.Sysctl("ipv6/conf/"+name+"/accept_dad", "0", "ipv6/conf/"+name+"/accept_ra", "0")}
	for _, a := range addrs {
		errs = append(errs, n.addAddr(name, a))
	}
	return errors.Join(append(errs, n.up(name))...)
}

func attrs(name string, mac net.HardwareAddr) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name, a.HardwareAddr = name, mac
	return a
}

// addAddr adds an address to a device, without duplicate address detection.
func (n *Netns) addAddr(device string, p netip.Prefix) error {
	return n.change(device, fmt.Sprintf("add %v", p), func(link netlink.Link) error {
		return n.nl.AddrAdd(link, nlAddr(p, false))
	})
}

// AddNode makes a node with a name of its own in the lab; "" takes "node" and its
// number. At most 200 nodes fit the addresses.
func (l *Lab) AddNode(name string) (*Node, error) {
	l.mu.Lock()
	l.numbers++
	number := l.numbers
	l.mu.Unlock()
	if name == "" {
		name = fmt.Sprintf("node%d", number)
	}
	ns, err := l.newNetns(name)
	if err != nil {
		return nil, err
	}
	n := &Node{Netns: ns, Number: number, bootIDFile: new(atomic.Pointer[string])}
	if err := errors.Join(n.Reboot(), n.build(l.hub)); err != nil {
		return nil, fmt.Errorf("build node %s: %w", name, err)
	}
	l.mu.Lock()
	others := l.nodes
	l.nodes = append(l.nodes, n)
	l.mu.Unlock()
	for _, m := range others {
		if err := errors.Join(n.routeTo(m), m.routeTo(n)); err != nil {
			return nil, fmt.Errorf("join nodes: %w", err)
		}
	}
	return n, nil
}

func (n *Node) build(hub *Netns) error {
	port := fmt.Sprintf("port%d", n.Number)
	veth := netlink.NewVeth(attrs(uplink, nil))
	pods, own := []netip.Prefix{netip.PrefixFrom(n.IPv6(1), 64)}, []netip.Prefix{netip.PrefixFrom(n.Uplink6(), 64)}
	if !n.lab.IPv6Only {
		pods, own = append(pods, netip.PrefixFrom(n.IPv4(1), 24)), append(own, netip.PrefixFrom(n.Uplink(), 24))
	}
	return errors.Join(
		n.Sysctl("ipv4/ip_forward", "1", "ipv6/conf/all/forwarding", "1", "ipv6/conf/default/accept_ra", "0",
			// A reverse path filter would drop the second holder's traffic at some nodes only.
			"ipv4/conf/all/rp_filter", "0", "ipv4/conf/default/rp_filter", "0"),
		n.addBridge(Bridge, net.HardwareAddr{0x0a, 0x58, 10, 244, byte(n.Number), 1}, pods...),
		hub.with(func(fd netns.NsHandle) error {
			veth.PeerName, veth.PeerNamespace = port, netlink.NsFd(fd)
			return n.addDevice(veth)
		}),
		hub.enslave(port, "br0"),
		hub.settled(port),
		n.addUplink(hub, own),
		n.defaultRoutes(),
	)
}

// defaultRoutes sends what is for others to the gateway.
func (n *Node) defaultRoutes() error {
	device := n.lab.uplinkName()
	err := n.route(device, netip.MustParsePrefix("::/0"), gateway6.Addr())
	if !n.lab.IPv6Only {
		err = errors.Join(err, n.route(device, netip.MustParsePrefix("0.0.0.0/0"), gateway.Addr()))
	}
	return err
}

// enslave makes a device a port of a bridge and sets it up.
func (n *Netns) enslave(device, bridge string) error {
	br, err := n.link(bridge)
	if err != nil {
		return err
	}
	return errors.Join(
		n.change(device, "make it a port of "+bridge, func(link netlink.Link) error { return n.nl.LinkSetMaster(link, br) }),
		n.up(device),
	)
}

// route sets a route, in the table of the device; without a gateway (the zero Addr) the destination is on the link.
func (n *Netns) route(device string, dst netip.Prefix, via netip.Addr) error {
	link, err := n.link(device)
	if err != nil {
		return err
	}
	return n.routeIn(n.table(link), device, dst, via)
}

// routeIn is route with a table, 0 for the main one.
func (n *Netns) routeIn(table int, device string, dst netip.Prefix, via netip.Addr) error {
	index, err := n.Ifindex(device)
	if err != nil {
		return err
	}
	r := &netlink.Route{LinkIndex: index, Dst: ipNet(dst), Table: table}
	if via.IsValid() {
		r.Gw = via.AsSlice()
		r.Flags = int(netlink.FLAG_ONLINK)
	} else {
		r.Scope = netlink.SCOPE_LINK
	}
	if err := n.nl.RouteReplace(r); err != nil {
		return fmt.Errorf("route %v to %s in netns %s: %w", dst, device, n.Name, err)
	}
	return nil
}

func (n *Node) routeTo(m *Node) error {
	var errs []error
	for _, a := range []netip.Addr{m.IPv4(0), m.RoutedIPv4(0)} {
		if !n.lab.IPv6Only {
			errs = append(errs, n.route(n.lab.uplinkName(), netip.PrefixFrom(a, 24), m.Uplink()))
		}
	}
	for _, a := range []netip.Addr{m.IPv6(0), m.RoutedIPv6(0)} {
		errs = append(errs, n.route(n.lab.uplinkName(), netip.PrefixFrom(a, 64), m.Uplink6()))
	}
	return errors.Join(errs...)
}

// AddBridge makes another bridge on the node, with these addresses.
func (n *Node) AddBridge(name string, addrs ...netip.Prefix) error {
	return n.addBridge(name, nil, addrs...)
}

// AddDummy makes a dummy device for service addresses; on a kernel without those, a bridge without
// ports.
func (n *Node) AddDummy(name string) error {
	err := n.addDevice(&netlink.Dummy{LinkAttrs: attrs(name, nil)})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return n.AddBridge(name)
	}
	return err
}

// AddTunnel makes a VXLAN device that is up, as an overlay network has one on every node.
func (n *Node) AddTunnel(name string, addrs ...netip.Prefix) error {
	return n.addDevice(&netlink.Vxlan{LinkAttrs: attrs(name, nil), VxlanId: 1, Port: 8472}, addrs...)
}

// AddSegment adds a device with a segment behind it that no other node reaches.
func (n *Node) AddSegment(name string, addrs ...netip.Prefix) error {
	veth := netlink.NewVeth(attrs(name, nil))
	veth.PeerName = name + "-far"
	return errors.Join(n.addDevice(veth, addrs...), n.up(veth.PeerName))
}

// AddAddr adds an address to a device of the node, lo and the bridge included.
func (n *Node) AddAddr(device string, p netip.Prefix) error { return n.addAddr(device, p) }

// Disconnect unplugs the node from the switch.
func (n *Node) Disconnect() error {
	if err := n.lab.hub.down(fmt.Sprintf("port%d", n.Number)); err != nil {
		return err
	}
	n.lab.publish(Change{Kind: NodeDisconnected, Node: n})
	return nil
}

// Reconnect ends Disconnect. It returns when packets flow again.
func (n *Node) Reconnect() error {
	hub, port := n.lab.hub, fmt.Sprintf("port%d", n.Number)
	if err := errors.Join(hub.up(port), hub.settled(port), n.settled(uplink)); err != nil {
		return err
	}
	n.lab.publish(Change{Kind: NodeReconnected, Node: n})
	return nil
}

// Lab is where the node is.
func (n *Node) Lab() *Lab { return n.lab }

// ShortName is the node's name without the part that is unique on the machine.
func (n *Node) ShortName() string { return n.lab.short(n.Name) }
