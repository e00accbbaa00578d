package scenarios

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/tests/lab"
)

// sendEvery is how often a holder solicits its gateway: far more often than a kernel does, so that
// detectors that listen have packets.
const sendEvery = 300 * time.Millisecond

// keepSending makes each holder solicit its gateway and send a datagram, if the scenario allows that.
func (j *evaluation) keepSending(d *duplicate) {
	s := j.stage
	s.Helper()
	for _, ip := range d.ips {
		for _, p := range slices.Concat(d.pods, j.inside(d.pods)) {
			switch {
			case p.Options().Style == lab.Raw:
				// A guest sends by itself.
			case p.Options().Silent && slices.Contains(p.Addrs(), ip):
				// It must send nothing: that is the scenario.
			case s.row.NoARP:
				// It must not solicit its gateway again: that is the scenario.
				s.Do(p.Spoof(ip))
			default:
				s.sendFrom(p.Netns, ip)
			}
		}
		if d.scope == "pod-host" {
			for _, n := range d.nodes {
				// Not the node of the pod, unless it is the other holder itself.
				if n != d.pods[0].Node || len(d.nodes) == 1 {
					s.sendFrom(n.Netns, ip)
				}
			}
		}
	}
}

// inside are the virtual machines and containers in pods.
func (j *evaluation) inside(pods []*lab.Pod) []*lab.Pod {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []*lab.Pod
	for _, q := range j.nested {
		if slices.ContainsFunc(pods, func(p *lab.Pod) bool { return q.Node.Netns == p.Netns }) {
			all = append(all, q)
		}
	}
	return all
}

// sendFrom sends one datagram from an address of a netns, after a look-up of the gateway. One on
// lo is used by a pod that has another one; if it has none, it only answers.
func (s *Stage) sendFrom(ns *lab.Netns, ip netip.Addr) {
	s.Helper()
	link, others := deviceOf(ns, ip)
	if link == nil || link.Attrs().Name == "lo" && !others {
		return
	}
	if link.Attrs().Name != "lo" {
		frame, err := lab.Solicitation(ip, gatewayOf(ns, link, ip), link.Attrs().HardwareAddr, 0)
		s.Do(err, ns.SendFrames(link.Attrs().Name, frame))
	}
	// Without a route it sends nothing.
	_ = ns.SendUDP(ip, lab.ExternalAddr(ip), 1)
}

// deviceOf is the device of a netns that has an address, lo if no other does; nil if it would send
// into a tunnel, or if none has it. others: a device besides lo has an address.
func deviceOf(ns *lab.Netns, ip netip.Addr) (found netlink.Link, others bool) {
	links, err := ns.Netlink().LinkList()
	if err != nil {
		return nil, false
	}
	for _, link := range links {
		lo := link.Attrs().Name == "lo"
		if !lo && len(link.Attrs().HardwareAddr) != 6 || link.Type() == "vxlan" {
			continue
		}
		addrs, err := ns.Netlink().AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			continue
		}
		for _, a := range addrs {
			b, _ := netip.AddrFromSlice(a.IP)
			others = others || !lo && b.IsGlobalUnicast()
			if b.Unmap() == ip && (found == nil || found.Attrs().Name == "lo") {
				found = link
			}
		}
	}
	return found, others
}

// gatewayOf is the default route of a device, or else the first address of its subnet.
func gatewayOf(ns *lab.Netns, link netlink.Link, ip netip.Addr) netip.Addr {
	family := netlink.FAMILY_V4
	if ip.Is6() {
		family = netlink.FAMILY_V6
	}
	routes, _ := ns.Netlink().RouteList(link, family)
	for _, r := range routes {
		if gateway, ok := netip.AddrFromSlice(r.Gw); ok {
			return gateway.Unmap()
		}
	}
	bits := 24
	if ip.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(ip, bits).Masked().Addr().Next()
}
