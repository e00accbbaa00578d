package scenarios

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// machine is a pod with a virtual machine behind its eth0, as KubeVirt's bridge binding
// makes it.
type machine struct {
	*lab.Pod
	guestMAC net.HardwareAddr
}

// bridgeBinding turns a pod into the sandbox of a virtual machine. Its eth0 becomes
// eth0-nic, with a MAC made up, as a port of a bridge; a device that leads nowhere holds
// the addresses for those who want to read them there, and the kernel does not answer for
// them. Here that device is lo, because not every kernel has dummy devices.
func (s *Stage) bridgeBinding(p *lab.Pod, ips ...netip.Addr) *machine {
	s.Helper()
	m := &machine{Pod: p}
	nl := p.Netlink()
	nic, err := nl.LinkByName("eth0")
	s.Do(err)
	m.guestMAC = nic.Attrs().HardwareAddr
	s.Do(nl.LinkSetDown(nic))
	addrs, err := nl.AddrList(nic, netlink.FAMILY_ALL)
	s.Do(err)
	for _, a := range addrs {
		s.Do(nl.AddrDel(nic, &a))
	}
	s.Do(nl.LinkSetName(nic, "eth0-nic"))
	p.Interface = "eth0-nic"
	other := append(net.HardwareAddr{0x02}, m.guestMAC[1:]...)
	other[5] ^= 0xff
	s.Do(nl.LinkSetHardwareAddr(nic, other), p.Sysctl("ipv4/conf/all/arp_ignore", "1"))
	for _, ip := range ips {
		s.Do(p.AddAddrOn("lo", netip.PrefixFrom(ip, ip.BitLen())))
	}
	s.Do(p.AsNode().AddBridge("k6t-eth0", netip.MustParsePrefix("169.254.75.10/32")))
	s.port(p, "eth0-nic", "k6t-eth0")
	return m
}

// boot starts the machine: a kernel of its own behind the bridge, with the MAC that the
// pod's eth0 had.
func (s *Stage) boot(m *machine, gateways []netip.Addr, ips ...netip.Addr) *lab.Pod {
	s.Helper()
	guest := s.T.Pod(m.AsNode(), m.ShortName()+"-vm", lab.PodOptions{Bridge: "k6t-eth0", MAC: m.guestMAC, Addrs: ips})
	s.Do(guest.DefaultRoute(gateways...))
	return guest
}

// port makes a device of a pod a port of one of the pod's bridges, and sets it up.
func (s *Stage) port(p *lab.Pod, device, bridge string) {
	s.Helper()
	nl := p.Netlink()
	link, err := nl.LinkByName(device)
	s.Do(err)
	master, err := nl.LinkByName(bridge)
	s.Do(err)
	s.Do(nl.LinkSetMaster(link, master), nl.LinkSetUp(link))
}

// macvlan makes a device on top of another one of a pod, with a MAC of its own.
func (s *Stage) macvlan(p *lab.Netns, device, name string, mac net.HardwareAddr) {
	s.Helper()
	nl := p.Netlink()
	parent, err := nl.LinkByName(device)
	s.Do(err)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex, attrs.HardwareAddr = name, parent.Attrs().Index, mac
	link := &netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}
	s.Do(nl.LinkAdd(link), nl.LinkSetUp(link))
}

// IsBetween waits until a conflict about each address, this one or the next, is confirmed
// with just these holders, on one node.
func (s *Stage) IsBetween(holders []*lab.Pod, ips ...netip.Addr) {
	s.Helper()
	var want finding
	for _, p := range holders {
		want.add(p.Node, p.Name)
	}
	a := s.agentOf(holders[0].Node)
	for _, ip := range ips {
		s.Eventually("the holders", func() error {
			open, err := a.Agent.Client.Conflicts(s.Context(), false)
			if slices.ContainsFunc(open, func(c lab.Conflict) bool {
				return c.IP == ip && c.State == "confirmed" && slices.Equal(holdersOf(c), want.holders)
			}) {
				return nil
			}
			return errors.Join(fmt.Errorf("no conflict about %v is confirmed between %v; there are %v", ip, want.holders, open), err)
		})
	}
}

// drop takes addresses from a device.
func (s *Stage) drop(n *lab.Netns, device string, ips ...netip.Addr) {
	s.Helper()
	link, err := n.Netlink().LinkByName(device)
	s.Do(err)
	for _, ip := range ips {
		s.Do(n.Netlink().AddrDel(link, &netlink.Addr{IPNet: &net.IPNet{
			IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen()),
		}}))
	}
}

// reflect makes a pod send back every frame that it gets, as it is.
func (s *Stage) reflect(p *lab.Pod) {
	s.Helper()
	nl := p.Netlink()
	index, err := p.Ifindex("eth0")
	s.Do(err)
	ingress := netlink.MakeHandle(0xffff, 0)
	s.Do(nl.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: ingress, Parent: netlink.HANDLE_INGRESS,
	}}))
	s.Do(nl.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: ingress, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions: []netlink.Action{&netlink.MirredAction{
			ActionAttrs: netlink.ActionAttrs{Action: netlink.TC_ACT_PIPE}, MirredAction: netlink.TCA_EGRESS_MIRROR, Ifindex: index,
		}},
	}))
}

// secondUplinks joins the nodes by a wire outside, as a second network of the engine
// does whose containers they are: nothing on the node leads to the other end. It returns
// the addresses of each node.
func (s *Stage) secondUplinks(v4, v6 string) (wire *netlink.Handle, all [][]netip.Addr) {
	s.Helper()
	wire, err := s.Node.Elsewhere()
	s.Do(err)
	s.outerNetwork(wire, "br-0123456789ab")
	for i, a := range s.Actors {
		s.plugOutside(wire, "br-0123456789ab", a, "eth1")
		own := lab.IPs(fmt.Sprint(v4, i+2), fmt.Sprint(v6, i+2))
		s.Do(a.Node.AddAddr("eth1", netip.PrefixFrom(own[0], 16)), a.Node.AddAddr("eth1", netip.PrefixFrom(own[1], 64)))
		all = append(all, own)
	}
	return wire, all
}

// outerNetwork makes a network outside of the nodes, with addresses of the machine there.
func (s *Stage) outerNetwork(wire *netlink.Handle, name string, addrs ...netip.Prefix) {
	s.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	s.Do(wire.LinkAdd(bridge), wire.LinkSetUp(bridge))
	for _, a := range addrs {
		s.Do(wire.AddrAdd(bridge, &netlink.Addr{IPNet: prefixNet(a), Flags: unix.IFA_F_NODAD}))
	}
}

func prefixNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// plugOutside gives a node a device in a network outside.
func (s *Stage) plugOutside(wire *netlink.Handle, network string, a *Actor, device string) {
	s.Helper()
	port := device + a.Node.ShortName()
	node, err := os.Open(a.Node.Path())
	s.Do(err)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = port
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = device, netlink.NsFd(node.Fd())
	s.Do(wire.LinkAdd(veth), node.Close(), a.Node.Sysctl("ipv6/conf/"+device+"/accept_dad", "0"))
	uplink, err := a.Node.Netlink().LinkByName(device)
	s.Do(err)
	s.Do(a.Node.Netlink().LinkSetUp(uplink))
	link, err := wire.LinkByName(port)
	s.Do(err)
	bridge, err := wire.LinkByName(network)
	s.Do(err)
	s.Do(wire.LinkSetMaster(link, bridge), wire.LinkSetUp(link))
}

// segment is a broadcast domain: a bridge, or with vlan one VLAN of it.
type segment struct {
	bridge string
	vlan   uint16
}

// network is what the network of net1 is called there.
func (g segment) network() string {
	if g.vlan == 0 {
		return "net1@" + g.bridge
	}
	return fmt.Sprintf("net1@%s.%d", g.bridge, g.vlan)
}

// segments makes a bridge of two VLANs. A kernel whose bridges do not know VLANs gets two
// bridges.
func (s *Stage) segments(name string) []segment {
	s.Helper()
	nl := s.Node.Netlink()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	filtering := true
	bridge := &netlink.Bridge{LinkAttrs: attrs, VlanFiltering: &filtering}
	err := nl.LinkAdd(bridge)
	if errors.Is(err, unix.EOPNOTSUPP) {
		s.Do(s.Node.AddBridge(name), s.Node.AddBridge(name+"2"))
		return []segment{{bridge: name}, {bridge: name + "2"}}
	}
	s.Do(err, nl.LinkSetUp(bridge))
	return []segment{{name, 100}, {name, 200}}
}

// assign puts a port of a segment's bridge into its VLAN, as the bridge plugin does.
func (s *Stage) assign(port string, g segment) {
	s.Helper()
	if g.vlan == 0 {
		return
	}
	nl := s.Node.Netlink()
	link, err := nl.LinkByName(port)
	s.Do(err)
	s.Do(nl.BridgeVlanDel(link, 1, true, true, false, true), nl.BridgeVlanAdd(link, g.vlan, true, true, false, true))
}
