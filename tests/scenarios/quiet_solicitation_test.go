package scenarios

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/tests/lab"
)

// quietSolicitation is about what the agent itself sends.
var quietSolicitation = onOneAndMore(2, Scenario{
	ID: "Q28", Want: Quiet, Text: "our own solicitation does no harm", Play: func(s *Stage) {
		ips := s.Addrs(lab.Bridged, 28)
		bystander := s.Pod("bystander", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 29)})
		// Its own addresses are probed once, before it becomes a bystander.
		s.Sees(bystander, bystander.Addrs()...)
		known := s.Pod("known", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 30)})
		for _, ip := range append(known.Addrs(), s.Node.IPv4(1), s.Node.IPv6(1)) {
			s.Do(bystander.Ping(ip))
		}
		before, err := neighbours(bystander)
		s.Do(err)

		// A pod comes up with duplicate address detection while its interface is
		// solicited without a pause, besides what the agent does.
		p := s.Pod("pod", lab.PodOptions{DAD: true})
		stop := s.solicitWithoutPause(p, ips)
		for _, ip := range ips {
			s.Do(p.AddAddr(ip))
		}
		s.Do(p.WaitDAD(patience, ips[1], false))
		s.Sees(p, ips...)
		stop()

		s.guestUnderSuspicion(netip.MustParseAddr("10.244.1.128"))

		s.sameNeighbours(bystander, before, known, p)
		s.routedUnderSolicitation()
	},
})

// routedUnderSolicitation plays a routed pod that comes up with duplicate address detection
// while it is solicited without a pause.
func (s *Stage) routedUnderSolicitation() {
	s.Helper()
	ips := s.Addrs(lab.Routed, 28)
	p := s.Pod("routed", lab.PodOptions{Style: lab.Routed, DAD: true})
	stop := s.solicitWithoutPause(p, ips)
	for _, ip := range ips {
		s.Do(p.AddAddr(ip))
	}
	s.Do(p.WaitDAD(patience, ips[1], false))
	s.Sees(p, ips...)
	stop()
}

// sameNeighbours fails the scenario if an entry of the pod's neighbour table has changed, or if there
// is a new one that the kernels of the node and of the other pods did not make themselves with their
// link-local addresses.
func (s *Stage) sameNeighbours(p *lab.Pod, before map[netip.Addr]string, others ...*lab.Pod) {
	s.Helper()
	after, err := neighbours(p)
	s.Do(err)
	bridge, err := s.Node.MAC(lab.Bridge)
	s.Do(err)
	kernels := []string{bridge.String()}
	for _, o := range others {
		mac, err := o.MAC(o.Interface)
		s.Do(err)
		kernels = append(kernels, mac.String())
	}
	for ip, mac := range after {
		was, known := before[ip]
		if was != mac && (known || !ip.IsLinkLocalUnicast() || !slices.Contains(kernels, mac)) {
			s.Errorf("neighbour table of a bystander: %v was at %q and is at %s", ip, was, mac)
		}
	}
}

// guestUnderSuspicion plays a guest that restarts and runs RFC 5227 detection while
// the agent has a reason to solicit its address: on another link a pod has the same.
func (s *Stage) guestUnderSuspicion(ip netip.Addr) {
	s.Helper()
	s.Expect(ip)
	vm := s.Pod("vm", lab.PodOptions{Style: lab.Raw})
	before, err := vm.StartGuest(lab.GuestOptions{Addr: ip, Interval: 50 * time.Millisecond})
	s.Do(err)
	s.Sees(vm, ip)
	s.Do(before.Stop())

	probes, err := s.Node.Tap(vm.HostInterface, nil)
	s.Do(err)
	guest, err := vm.StartGuest(lab.GuestOptions{Addr: ip, Detect: true})
	s.Do(err)
	s.Eventually("the guest probes", func() error { return tapped(probes, 1) })
	rival := s.PodOn(s.last(), "rival", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
	s.Talk(rival, ip)
	_, err = s.Watch().WaitType("suspected", ip, patience)
	s.Do(err)
	ctx, cancel := lab.WithTimeout(s.Context(), patience)
	defer cancel()
	s.Do(guest.Owned(ctx))
}

// solicitWithoutPause sends solicitations for the addresses to a pod's interface as
// fast as a socket takes them, until stop is called.
func (s *Stage) solicitWithoutPause(p *lab.Pod, ips []netip.Addr) (stop func()) {
	s.Helper()
	index, err := s.Node.Ifindex(p.HostInterface)
	s.Do(err)
	var sender *probe.Socket
	s.Do(s.Node.Exec(func() (err error) {
		sender, err = probe.OpenSocket()
		return err
	}))
	s.Cleanup(func() { _ = sender.Close() })
	n := uint16(0)
	return s.repeats(200*time.Microsecond, func() error {
		n++
		for _, ip := range ips {
			// A full queue is as good as a pause.
			if sender.Send(probe.Target{Ifindex: index, IP: ip, Source: [6]byte{2, 'q', '2', '8', byte(n >> 8), byte(n)}}) != nil {
				time.Sleep(time.Millisecond)
			}
		}
		return nil
	})
}

// neighbours are the entries of a pod's neighbour tables that have a MAC address.
func neighbours(p *lab.Pod) (map[netip.Addr]string, error) {
	index, err := p.Ifindex(p.Interface)
	if err != nil {
		return nil, err
	}
	list, err := lab.Dump(func() ([]netlink.Neigh, error) { return p.Netlink().NeighList(index, netlink.FAMILY_ALL) })
	known := map[netip.Addr]string{}
	for _, n := range list {
		if a, ok := netip.AddrFromSlice(n.IP); ok && len(n.HardwareAddr) == 6 && !a.IsMulticast() {
			known[a.Unmap()] = n.HardwareAddr.String()
		}
	}
	return known, err
}
