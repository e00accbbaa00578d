package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/tests/lab"
)

// EVPN makes each node a provider edge that learns MAC and IP of its pods from the ARP and
// neighbour discovery they send, tells all others at once, and applies the rule of
// [mobility]. It looks at data packets no more than an edge does.
//
// The cluster's bridge and the routed pods of all nodes are one broadcast domain, and so is
// each VLAN in it, and each network that is declared. Any other bridge is one of its own on
// each node: nobody would stretch a container engine's bridge over the cluster. What one
// edge tells reaches all others at once, even one that is cut off.
type EVPN struct {
	record
	closers

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
	s, err := listen(n)
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.nodes[n.Name] = n
	e.mu.Unlock()
	var reading sync.WaitGroup
	var closing atomic.Bool
	var failed error
	reading.Go(func() {
		ports := map[string]port{}
		buf := make([]byte, 65536)
		for {
			r, err := s.receive(buf)
			switch {
			case errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.ENOBUFS):
			case err != nil && closing.Load():
				return
			case err != nil:
				failed = err
				return
			case !r.own:
				e.hear(n, s, ports, r)
			}
		}
	})
	e.onClose(func() error {
		closing.Store(true)
		err := s.file.Close()
		reading.Wait()
		return errors.Join(err, failed)
	})
	return nil
}

// hear takes a frame that came in at a device of a node.
func (e *EVPN) hear(n *lab.Node, s *socket, ports map[string]port, r received) {
	heard, ok := readNeighbour(r.frame)
	if !ok {
		return
	}
	if mac := asker(n); bytes.Equal(heard.mac, mac) || bytes.Equal(heard.to, mac) {
		return
	}
	name, err := s.deviceName(r.ifindex)
	if err != nil {
		return
	}
	p, known := ports[name]
	if !known {
		p = portOf(n, name)
		ports[name] = p
	}
	if !p.access {
		return
	}
	h := host{domain: p.domain(e.networks, n, heard.ip, r.vlan), ip: heard.ip}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hosts.learn(time.Now(), h, place{n.Name, heard.mac.String(), p.name}, e.alive) {
		e.add(heard.ip, fmt.Sprintf("%d moves within %v, the last to %v on %s", evpnMoves, evpnWithin, heard.mac, n.ShortName()))
	}
}

// alive says that the port of a place is still there and up.
func (e *EVPN) alive(at place) bool {
	link, err := e.nodes[at.node].Netlink().LinkByName(at.port)
	return err == nil && link.Attrs().OperState == netlink.OperUp
}

// port is a device of an edge.
type port struct {
	name string
	// access ports lead to pods.
	access bool
	// bridge it is a port of; empty for the cluster's and for none.
	bridge string
}

// portOf finds out about a device.
func portOf(n *lab.Node, name string) port {
	link, err := n.Netlink().LinkByName(name)
	if err != nil || link.Type() != "veth" || name == lab.UplinkName {
		return port{}
	}
	p := port{name: name, access: true}
	if master := link.Attrs().MasterIndex; master != 0 {
		if bridge, err := n.Netlink().LinkByIndex(master); err == nil && bridge.Attrs().Name != lab.Bridge {
			p.bridge = bridge.Attrs().Name
		}
	}
	return p
}

// domain is the name of the broadcast domain of an address.
func (p port) domain(networks *config.Config, n *lab.Node, ip netip.Addr, vlan uint16) string {
	name := "cluster"
	if p.bridge != "" {
		name = p.bridge + " of " + n.ShortName()
	}
	// Some are declared by the interface's name in the pod, which is not seen from here.
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
