package othertools

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ndp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/tests/lab"
)

// EVPN makes each node a provider edge that learns MAC and IP of its pods from their ARP and neighbour
// discovery, advertises them to all others, and applies the rule of [mobility]. Like an edge, it ignores
// data packets. Advertisements reach all edges at once, even across a partition.
//
// The cluster's bridge and the routed pods of all nodes are one broadcast domain, and so is each VLAN in
// it, and each declared network. Any other bridge is a domain of its own on each node, because container
// engines' bridges do not span a cluster.
type EVPN struct {
	alarmLog

	networks *config.Config

	mu    sync.Mutex
	hosts mobility
	nodes map[string]*lab.Node
}

// NewEVPN makes one without edges.
func NewEVPN(networks *config.Config) *EVPN {
	return &EVPN{networks: networks, hosts: mobility{}, nodes: map[string]*lab.Node{}}
}

// Name is "evpn".
func (*EVPN) Name() string { return "evpn" }

// Watch makes a node an edge.
func (e *EVPN) Watch(_ context.Context, n *lab.Node) error {
	e.mu.Lock()
	e.nodes[n.Name] = n
	e.mu.Unlock()
	_, err := n.Listen("", func(p lab.Packet) { e.receive(n, p) })
	return err
}

// receive takes a packet that came in at a device of a node.
func (e *EVPN) receive(n *lab.Node, packet lab.Packet) {
	sender, ok := readNeighbour(packet)
	if !ok {
		return
	}
	if mac := proberMAC(n); bytes.HasPrefix(sender.mac, mac) || bytes.HasPrefix(packet.Frame[:6], mac) {
		return
	}
	p, ok := portOf(n, packet.Ifindex)
	if !ok {
		return
	}
	h := host{domain: p.domain(e.networks, n, sender.ip, packet.VLAN), ip: sender.ip}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hosts.update(time.Now(), h, location{n.Name, sender.mac.String(), p.name}, e.alive) {
		e.add(sender.ip, fmt.Sprintf("%d moves within %v, the last to %v on %s", evpnMoves, evpnWithin, sender.mac, n.ShortName()))
	}
}

// alive returns whether the port of a location exists and is up.
func (e *EVPN) alive(at location) bool {
	link, err := e.nodes[at.node].Netlink().LinkByName(at.port)
	return err == nil && link.Attrs().OperState == netlink.OperUp
}

// port is a device of an edge that leads to a pod.
type port struct {
	name string
	// bridge it is a port of; empty for the cluster's and for none.
	bridge string
}

// portOf returns the port with this index.
func portOf(n *lab.Node, index int) (p port, ok bool) {
	link, err := n.Netlink().LinkByIndex(index)
	if err != nil || link.Type() != "veth" || link.Attrs().Name == lab.UplinkName {
		return p, false
	}
	p.name = link.Attrs().Name
	if master := link.Attrs().MasterIndex; master != 0 {
		if bridge, err := n.Netlink().LinkByIndex(master); err == nil && bridge.Attrs().Name != lab.Bridge {
			p.bridge = bridge.Attrs().Name
		}
	}
	return p, true
}

// domain is the name of the broadcast domain of an address.
func (p port) domain(networks *config.Config, n *lab.Node, ip netip.Addr, vlan uint16) string {
	name := "cluster"
	if p.bridge != "" {
		name = p.bridge + " of " + n.ShortName()
	}
	// Some are declared by the interface's name in the pod, which is unknown here.
	subject := config.Subject{Interface: p.name, Peer: "eth0", Bridge: p.bridge}
	if p.bridge != "" {
		subject.Peer = "net1"
	}
	if declared, ok := networks.Network(subject, ip); ok && declared.Scope == config.Cluster {
		name = declared.Name
	}
	if vlan != 0 {
		name = fmt.Sprintf("%s, VLAN %d", name, vlan)
	}
	return name
}

// neighbour is an address and the MAC that a packet binds it to.
type neighbour struct {
	ip  netip.Addr
	mac net.HardwareAddr
}

// readNeighbour parses the binding that a packet announces: the sender of an ARP packet (RFC 826), the
// source of a neighbour solicitation, or the target of an advertisement (RFC 4861). Probes and
// link-local addresses announce none.
func readNeighbour(packet lab.Packet) (n neighbour, ok bool) {
	const header, ipv6, icmpv6, hopLimit = 14, 40, 58, 255
	switch packet.EtherType() {
	case unix.ETH_P_ARP:
		var p arp.Packet
		if p.UnmarshalBinary(packet.Frame[header:]) != nil {
			return n, false
		}
		n.mac, n.ip = p.SenderHardwareAddr, p.SenderIP
	case unix.ETH_P_IPV6:
		p := packet.Frame[header:]
		if len(p) < ipv6 || p[6] != icmpv6 || p[7] != hopLimit {
			return n, false
		}
		message, err := ndp.ParseMessage(p[ipv6:])
		if err != nil {
			return n, false
		}
		n.mac = packet.Frame[6:12]
		switch m := message.(type) {
		case *ndp.NeighborSolicitation:
			n.ip = netip.AddrFrom16([16]byte(p[8:24]))
			n.option(m.Options, ndp.Source)
		case *ndp.NeighborAdvertisement:
			n.ip = m.TargetAddress
			n.option(m.Options, ndp.Target)
		}
	}
	return n, n.ip.IsValid() && n.ip.IsGlobalUnicast()
}

// option takes the MAC from a link-layer address option, if there is one.
func (n *neighbour) option(options []ndp.Option, direction ndp.Direction) {
	for _, o := range options {
		if lla, ok := o.(*ndp.LinkLayerAddress); ok && lla.Direction == direction {
			n.mac = lla.Addr
		}
	}
}
