package lab

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// Style is how a pod is joined to its node.
type Style uint8

// The styles of pods.
const (
	// Bridged: the host end is a port of a bridge, which is the pod's gateway
	// (flannel, kindnet in bridge mode, container engines).
	Bridged Style = iota
	// Routed: a /32 or /128 on the pod's interface, the gateway 169.254.1.1 answered
	// by proxy ARP, a host route per pod (Calico).
	Routed
	// Raw: the interface is up and has no address; a [Guest] may live there.
	Raw
	// Inside: a macvlan, ipvlan or VLAN device in the pod, without a host end, that sends by a device of the node.
	Inside
)

// PodOptions are the options of a pod. The zero value is a bridged pod without addresses.
type PodOptions struct {
	Style Style
	// Addrs are the addresses of the interface, IPv4 and IPv6. A bridged pod has
	// them with the prefix length of the bridge's subnet, a routed one with /32 and /128.
	Addrs []netip.Addr
	// Interface is the name inside the pod, eth0 if empty.
	Interface string
	// HostInterface is the name of the host end; empty is a generated one.
	HostInterface string
	// HostIndex is the ifindex of the host end; 0 leaves it to the kernel.
	HostIndex int
	// Bridge is the bridge to join, cni0 if empty.
	Bridge string
	// Device is the kind of the device Inside: macvlan if empty (in mode bridge), macvlan-private, macvlan-passthru, ipvlan (in mode
	// L2), ipvlan-l3, ipvlan-l3s, or vlan- and a number. Parent is the device of the node that it sends by, the uplink if empty.
	Device, Parent string
	// VRF is that of the host end of a routed pod, none if empty.
	VRF string
	// MAC and MTU of the pod's end; zero leaves them to the kernel.
	MAC net.HardwareAddr
	MTU int
	// Silent pods only answer: they send no gratuitous ARP, no multicast listener report, and have no
	// link-local address.
	Silent bool
	// DAD turns on IPv6 duplicate address detection at both ends. CNI plugins turn it off in the pod by
	// default; at the host end the link-local address takes two seconds to become usable.
	DAD bool
}

// Pod is a netns with at least one interface that leads to a node.
type Pod struct {
	*Netns
	// Node is where the pod runs.
	Node *Node
	// Interface and HostInterface are the two ends of the first veth pair.
	Interface     string
	HostInterface string
	// Started is when the first interface came up: the pod has sent nothing before.
	Started time.Time

	opts PodOptions
}

// AddPod makes a pod on the node. The name has to be unique in the lab.
func (n *Node) AddPod(name string, o PodOptions) (*Pod, error) {
	ns, err := n.lab.newNetns(name)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	p := &Pod{Netns: ns, Node: n, Interface: o.Interface, opts: o}
	// As in a pod sandbox: forwarding is off whatever the node does.
	err = ns.Sysctl("ipv4/ip_forward", "0", "ipv4/conf/all/rp_filter", "0", "ipv4/conf/default/rp_filter", "0")
	if err == nil {
		p.HostInterface, err = p.AddInterface(o)
	}
	if err != nil {
		return nil, fmt.Errorf("make pod %s: %w", name, err)
	}
	n.lab.publish(Change{Kind: PodAdded, Node: n, Pod: p})
	return p, nil
}

func (o PodOptions) withDefaults() PodOptions {
	o.Interface, o.Bridge = cmp.Or(o.Interface, "eth0"), cmp.Or(o.Bridge, Bridge)
	if IsL3() && o.Style == Bridged {
		o.Style = Routed // no bridge has such ports
	}
	o.Device, o.Parent = cmp.Or(o.Device, "macvlan"), cmp.Or(o.Parent, UplinkName)
	return o
}

// Addrs are the addresses the pod was made with.
func (p *Pod) Addrs() []netip.Addr { return slices.Clone(p.opts.Addrs) }

// Options are those the pod was made with.
func (p *Pod) Options() PodOptions {
	o := p.opts
	o.Addrs = p.Addrs()
	return o
}

// ShortName is the pod's name as it was given to [Node.AddPod].
func (p *Pod) ShortName() string { return p.lab.short(p.Name) }

// AddInterface gives the pod another interface and returns the name of its host end; that of a device Inside is as in the agent's
// output.
func (p *Pod) AddInterface(o PodOptions) (hostInterface string, err error) {
	o = o.withDefaults()
	if o.Style == Inside { // ipvlan devices never say that they are up
		name := o.Interface + "@" + o.Parent
		if vlan, ok := strings.CutPrefix(o.Device, "vlan-"); ok {
			name += "." + vlan
		}
		return name, errors.Join(p.plugInside(o), p.configure(o), p.start(o), p.answers(o))
	}
	if o.HostInterface == "" {
		style := "veth"
		if o.Style == Routed {
			style = "cali"
		}
		o.HostInterface = fmt.Sprintf("%s%08x", style, 0x5e000000+p.lab.nextPort())
	}
	for _, step := range []func(PodOptions) error{p.plug, p.configure, p.hostSide, p.start} {
		if err := step(o); err != nil {
			return "", err
		}
	}
	return o.HostInterface, errors.Join(p.Node.settled(o.HostInterface), p.settled(o.Interface), p.answers(o), p.routes(o))
}

// answers waits until the pod can answer for its addresses, unless it is to be seen before that.
func (p *Pod) answers(o PodOptions) error {
	if o.DAD || o.Style == Raw {
		return nil
	}
	began := time.Now()
	if err := p.listens(o.Interface, o.Addrs); err != nil || o.Silent || o.Interface != p.Interface || time.Since(began) < lateAnswers {
		return err
	}
	// The kernel has announced them before, and who has asked since then has given up.
	var errs []error
	for _, a := range o.Addrs {
		errs = append(errs, p.Announce(a))
	}
	return errors.Join(errs...)
}

// lateAnswers is when a new pod is slow to answer. An agent asks for 3 s.
const lateAnswers = time.Second

// start sets the pod's end up and takes the time.
func (p *Pod) start(o PodOptions) error {
	started := time.Now()
	if err := p.dropReports(o, func() error { return p.up(o.Interface) }); err != nil {
		return err
	}
	if o.Silent {
		started = time.Now() // until then it could not answer either
	}
	if p.Started.IsZero() {
		p.Started = started
	}
	return nil
}

// PairVariable names the environment variable with the kind of device that joins pods to nodes: veth, if it is empty, or netkit, for
// those in its L2 mode, or netkit-l3. In L3 mode bridged pods are routed, nobody answers ARP, and there are no MACs.
const PairVariable = "DUPIP_TEST_PAIR"

// IsL3 reports whether netkit in L3 mode joins the pods to their nodes.
func IsL3() bool { return os.Getenv(PairVariable) == "netkit-l3" }

// plug makes the pair, both ends down.
func (p *Pod) plug(o PodOptions) error {
	veth := netlink.NewVeth(attrs(o.HostInterface, nil))
	veth.Index, veth.PeerName, veth.PeerNamespace = o.HostIndex, o.Interface, netlink.NsFd(p.fd)
	veth.PeerHardwareAddr = o.MAC
	if o.MTU != 0 {
		veth.MTU, veth.PeerMTU = o.MTU, uint32(o.MTU)
	}
	if o.Style == Routed && !IsL3() {
		veth.HardwareAddr = calicoMAC
	}
	pair := netlink.Link(veth)
	if mode, ok := map[string]netlink.NetkitMode{"netkit": netlink.NETKIT_MODE_L2, "netkit-l3": netlink.NETKIT_MODE_L3}[os.Getenv(PairVariable)]; ok {
		netkit := &netlink.Netkit{LinkAttrs: veth.LinkAttrs, Mode: mode, Scrub: netlink.NETKIT_SCRUB_DEFAULT, PeerScrub: netlink.NETKIT_SCRUB_DEFAULT}
		netkit.SetPeerAttrs(&netlink.LinkAttrs{Name: veth.PeerName, Namespace: veth.PeerNamespace, HardwareAddr: o.MAC, MTU: o.MTU})
		pair = netkit
	}
	if err := p.Node.nl.LinkAdd(pair); err != nil {
		return fmt.Errorf("add %s %s: %w", pair.Type(), o.HostInterface, err)
	}
	return nil
}

// plugInside makes the device, down.
func (p *Pod) plugInside(o PodOptions) error {
	parent, err := p.Node.link(o.Parent)
	if err != nil {
		return err
	}
	// Until Linux 6.13 no device of the node may have the name (rtnl_newlink, net/core/rtnetlink.c).
	own := attrs(fmt.Sprintf("inside%d", p.lab.nextPort()), o.MAC)
	own.ParentIndex, own.Namespace = parent.Attrs().Index, netlink.NsFd(p.fd)
	var device netlink.Link
	switch o.Device {
	case "macvlan":
		device = &netlink.Macvlan{LinkAttrs: own, Mode: netlink.MACVLAN_MODE_BRIDGE}
	case "macvlan-private":
		device = &netlink.Macvlan{LinkAttrs: own, Mode: netlink.MACVLAN_MODE_PRIVATE}
	case "macvlan-passthru":
		device = &netlink.Macvlan{LinkAttrs: own, Mode: netlink.MACVLAN_MODE_PASSTHRU}
	case "ipvlan":
		device = &netlink.IPVlan{LinkAttrs: own, Mode: netlink.IPVLAN_MODE_L2}
	case "ipvlan-l3":
		device = &netlink.IPVlan{LinkAttrs: own, Mode: netlink.IPVLAN_MODE_L3}
	case "ipvlan-l3s":
		device = &netlink.IPVlan{LinkAttrs: own, Mode: netlink.IPVLAN_MODE_L3S}
	default:
		var vlan int
		if _, err := fmt.Sscanf(o.Device, "vlan-%d", &vlan); err != nil {
			return fmt.Errorf("no device %s: %w", o.Device, err)
		}
		device = &netlink.Vlan{LinkAttrs: own, VlanId: vlan}
	}
	if err := p.Node.nl.LinkAdd(device); err != nil {
		return fmt.Errorf("add %s %s on %s: %w", o.Device, o.Interface, o.Parent, err)
	}
	return p.change(own.Name, "rename", func(link netlink.Link) error { return p.nl.LinkSetName(link, o.Interface) })
}

// configure sets what must be set before the pod's end comes up and sends.
func (p *Pod) configure(o PodOptions) error {
	v4, v6 := "ipv4/conf/"+o.Interface+"/", "ipv6/conf/"+o.Interface+"/"
	settings := []string{v6 + "accept_ra", "0"}
	switch {
	case o.Style == Raw:
		settings = append(settings, v6+"disable_ipv6", "1")
	case o.Silent:
		settings = append(settings, v4+"arp_notify", "0", v6+"ndisc_notify", "0", v6+"router_solicitations", "0",
			v6+"accept_dad", "0", v6+"addr_gen_mode", "1",
			// The second listener report for a group comes at a random time within
			// this: 24 days. The first comes at once; quietly drops it.
			v6+"mldv2_unsolicited_report_interval", "2147483647")
	default:
		// CNI plugins have the kernel announce the addresses.
		settings = append(settings, v4+"arp_notify", "1", v6+"ndisc_notify", "1")
		if !o.DAD {
			settings = append(settings, v6+"accept_dad", "0")
		}
	}
	errs := []error{p.Sysctl(settings...)}
	for _, a := range o.Addrs {
		errs = append(errs, p.assign(o, a))
	}
	return errors.Join(errs...)
}

func (p *Pod) assign(o PodOptions, a netip.Addr) error {
	prefix := host(a)
	if o.Style == Bridged || o.Style == Inside {
		prefix = netip.PrefixFrom(a, 24)
		if a.Is6() {
			prefix = netip.PrefixFrom(a, 64)
		}
	}
	return p.change(o.Interface, fmt.Sprintf("add %v", prefix), func(link netlink.Link) error {
		return p.nl.AddrAdd(link, nlAddr(prefix, o.DAD))
	})
}

func (p *Pod) hostSide(o PodOptions) error {
	n, dev := p.Node, o.HostInterface
	var errs []error
	if !o.DAD {
		errs = append(errs, n.Sysctl("ipv6/conf/"+dev+"/accept_dad", "0"))
	}
	if o.Style != Routed {
		if n.ovs != nil && n.ovs.bridges[o.Bridge] {
			return errors.Join(append(errs, n.ovs.change("add-port", o.Bridge, dev), n.up(dev))...)
		}
		return errors.Join(append(errs, n.enslave(dev, o.Bridge))...)
	}
	errs = append(errs,
		n.Sysctl("ipv4/conf/"+dev+"/proxy_arp", "1", "ipv4/neigh/"+dev+"/proxy_delay", "0",
			"ipv6/conf/"+dev+"/proxy_ndp", "1", "ipv6/conf/"+dev+"/accept_ra", "0"))
	if o.VRF != "" {
		errs = append(errs, n.enslave(dev, o.VRF))
	} else {
		errs = append(errs, n.up(dev))
	}
	for _, a := range o.Addrs {
		// One route per address, as on a real node: a newcomer replaces it, and the older pod gets no
		// packets.
		errs = append(errs, n.route(dev, host(a), netip.Addr{}))
	}
	return errors.Join(errs...)
}

// The gateways of a routed pod: an address that the node has a route for and answers
// by proxy ARP, and the link-local address that ee:ee:ee:ee:ee:ee gives.
var (
	proxyGateway  = netip.MustParseAddr("169.254.1.1")
	proxyGateway6 = netip.MustParseAddr("fe80::ecee:eeff:feee:eeee")
)

// routes gives the pod its default routes. Only eth0 has them.
func (p *Pod) routes(o PodOptions) error {
	if o.Interface != "eth0" || o.Style == Raw {
		return nil
	}
	gw4, gw6 := proxyGateway, proxyGateway6
	if o.Style == Bridged {
		var err error
		if gw4, gw6, err = p.Node.bridgeAddrs(o.Bridge); err != nil {
			return err
		}
	}
	var has4, has6 bool
	for _, a := range o.Addrs {
		has4, has6 = has4 || a.Is4(), has6 || a.Is6()
	}
	var errs []error
	if has4 && gw4.IsValid() {
		if o.Style == Routed {
			errs = append(errs, p.route(o.Interface, host(gw4), netip.Addr{}))
		}
		errs = append(errs, p.route(o.Interface, netip.MustParsePrefix("0.0.0.0/0"), gw4))
	}
	if has6 && gw6.IsValid() {
		if o.Silent {
			// It has no link-local address and so no route to those.
			errs = append(errs, p.route(o.Interface, netip.MustParsePrefix("fe80::/64"), netip.Addr{}))
		}
		errs = append(errs, p.route(o.Interface, netip.MustParsePrefix("::/0"), gw6))
	}
	return errors.Join(errs...)
}

// bridgeAddrs are the first IPv4 and the first global IPv6 address of a bridge.
func (n *Node) bridgeAddrs(bridge string) (v4, v6 netip.Addr, err error) {
	list, err := n.addrs(bridge)
	if err != nil {
		return v4, v6, err
	}
	for _, entry := range list {
		a, _ := netip.AddrFromSlice(entry.IP)
		a = a.Unmap()
		switch {
		case a.Is4() && !v4.IsValid():
			v4 = a
		case a.Is6() && !a.IsLinkLocalUnicast() && !v6.IsValid():
			v6 = a
		}
	}
	return v4, v6, nil
}

// AsNode lets other pods be attached to a pod, as a container engine inside it does.
func (p *Pod) AsNode() *Node { return &Node{Netns: p.Netns, bootIDFile: p.Node.bootIDFile} }
