package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dupip/dupip/agent/solicit"
	"github.com/dupip/dupip/tests/lab"
)

// quietNetworks are addresses that exist several times and belong to different networks.
var quietNetworks = []Scenario{
	{ID: "Q7", Want: Quiet, Nodes: 2, Text: "docker0 with its own 172.17.0.2 on two nodes", Story: func(s *Stage) {
		container := netip.MustParseAddr("172.17.0.2")
		for i, a := range s.Actors {
			n := a.Node
			s.Do(n.AddBridge("docker0", netip.MustParsePrefix("172.17.0.1/16")))
			s.Do(n.AddBridge("br-0123456789ab", netip.MustParsePrefix("172.17.0.1/16")))
			for _, bridge := range []string{"docker0", "br-0123456789ab"} {
				c := s.T.Pod(n, fmt.Sprintf("%s-%d", bridge, i), lab.PodOptions{Bridge: bridge, Addrs: []netip.Addr{container}})
				s.Talk(c, container)
				s.Sees(c, container)
			}
		}
		// The cluster may use that range as well.
		p := s.Pod("pod", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{container}})
		s.Talk(p, container)
		s.Sees(p, container)
	}},
	{ID: "Q8", Want: Quiet, Text: "one address in two declared networks", Config: `
networks:
  - name: tenant-a
    match: {bridges: [vrf-a]}
  - name: tenant-b
    match: {bridges: [vrf-b]}
  - name: edge
    match: {interfaces: ["edge*"], cidrs: [10.44.0.0/16, "fd00:44::/64"]}
`, Story: func(s *Stage) {
		ips := lab.IPs("10.44.0.8", "fd00:44::8")
		for _, bridge := range []string{"vrf-a", "vrf-b"} {
			s.Do(s.Node.AddBridge(bridge, netip.MustParsePrefix("10.44.0.1/24"), netip.MustParsePrefix("fd00:44::1/64")))
		}
		pods := []*lab.Pod{
			s.Pod("a", lab.PodOptions{Bridge: "vrf-a", Addrs: ips}),
			s.Pod("b", lab.PodOptions{Bridge: "vrf-b", Addrs: ips}),
			s.Pod("edge", lab.PodOptions{Style: lab.Routed, HostInterface: "edge1", Addrs: ips}),
			s.Pod("default", lab.PodOptions{Style: lab.Routed, Addrs: ips}),
		}
		for _, p := range pods {
			s.Talk(p, ips...)
			s.Sees(p, ips...)
		}
	}},
	{ID: "Q9", Want: Quiet, Text: "anycast and a VIP that are declared shared", Config: `
shared: [10.9.9.53, 10.9.10.0/24, "fd00:9::/64"]
`, Story: func(s *Stage) {
		shared := lab.IPs("10.9.9.53", "10.9.10.9", "fd00:9::9")
		for i := range 3 {
			for _, style := range bothStyles {
				p := s.Pod(fmt.Sprintf("%s-%d", styleName(style), i), lab.PodOptions{Style: style, Addrs: s.Addrs(style, byte(90+i))})
				for _, ip := range shared {
					s.Do(p.AddAddr(ip))
				}
				s.Talk(p, shared...)
				s.Sees(p, shared...)
			}
		}
		if n := s.Suppressed("shared"); n != len(shared) {
			s.Errorf("suppressed as shared: %d, want %d", n, len(shared))
		}
	}},
	{ID: "Q14", Want: Quiet, Text: "one pod, two interfaces and lo, one address", Story: func(s *Stage) {
		s.Do(s.Node.AddBridge("br-extra"))
		ips := s.Addrs(lab.Bridged, 14)
		p := s.Pod("pod", lab.PodOptions{Addrs: ips})
		host, err := p.AddInterface(lab.PodOptions{Interface: "net1", Bridge: "br-extra", Addrs: ips})
		s.Do(err)
		for _, ip := range ips {
			s.Do(p.AddAddrOn("lo", netip.PrefixFrom(ip, ip.BitLen())))
		}
		s.Talk(p, ips...)
		s.Sees(p, ips...)
		ctx, cancel := context.WithTimeout(s.Context(), patience)
		defer cancel()
		for _, ip := range ips {
			_, err := s.Agent().Client.WaitBinding(ctx, ip, func(b lab.Binding) bool { return b.Interface == host })
			s.Do(err)
		}
		// The same at a routed pod, with the address on lo alone in a second one's way.
		routed := s.Addrs(lab.Routed, 14)
		q := s.Pod("routed", lab.PodOptions{Style: lab.Routed, Addrs: routed})
		for _, ip := range routed {
			s.Do(q.AddAddrOn("lo", netip.PrefixFrom(ip, ip.BitLen())))
		}
		s.Talk(q, routed...)
		s.Sees(q, routed...)
	}},
	{ID: "Q26", Want: Quiet, Nodes: 2, Text: "net1 with one subnet on the bridges of two nodes", Story: func(s *Stage) {
		ips := lab.IPs("10.10.0.5", "fd00:10::5")
		for i, a := range s.Actors {
			n := a.Node
			s.Do(n.AddBridge("br-net1", netip.MustParsePrefix("10.10.0.1/24"), netip.MustParsePrefix("fd00:10::1/64")))
			p := s.T.Pod(n, fmt.Sprintf("multus%d", i), lab.PodOptions{Addrs: []netip.Addr{n.IPv4(26), n.IPv6(26)}})
			_, err := p.AddInterface(lab.PodOptions{Interface: "net1", Bridge: "br-net1", Addrs: ips})
			s.Do(err)
			s.Do(p.SendFrom("net1", ips[0], netip.MustParseAddr("10.10.0.1")), p.SendFrom("net1", ips[1], netip.MustParseAddr("fd00:10::1")))
			s.Sees(p, ips...)
		}
		// Somebody has it in the cluster's network.
		p := s.Pod("pod", lab.PodOptions{Style: lab.Routed, Addrs: ips})
		s.Talk(p, ips...)
		s.Sees(p, ips...)
	}},
	{ID: "Q27", Want: Quiet, Nodes: 2, Text: "kube-ipvs0 and nodelocaldns on two nodes", Story: func(s *Stage) {
		services := lab.IPs("10.96.0.1", "10.96.0.10", "fd00:96::a")
		for i, a := range s.Actors {
			n := a.Node
			s.Do(n.AddDummy("kube-ipvs0"), n.AddDummy("nodelocaldns"))
			for _, ip := range services {
				s.Do(n.AddAddr("kube-ipvs0", netip.PrefixFrom(ip, ip.BitLen())))
			}
			for _, text := range []string{"169.254.20.10/32", "10.96.0.10/32"} {
				s.Do(n.AddAddr("nodelocaldns", netip.MustParsePrefix(text)))
			}
			ips := []netip.Addr{n.IPv4(27), n.IPv6(27)}
			p := s.T.Pod(n, fmt.Sprintf("client%d", i), lab.PodOptions{Addrs: ips})
			// The node answers from the service's address, and asks from it.
			for _, ip := range services {
				s.Do(p.Ping(ip))
				dst := ips[0]
				if ip.Is6() {
					dst = ips[1]
				}
				s.Do(n.SendUDP(ip, dst, 3))
			}
			s.Sees(p, ips...)
		}
		// A pod behind which the service is reached another way.
		egress := s.Pod("egress", lab.PodOptions{Style: lab.Routed, Addrs: s.Addrs(lab.Routed, 27)})
		s.Sees(egress, egress.Addrs()...)
		s.Do(egress.Spoof(services...))
		s.SeesForwarded(egress, services...)
	}},
}

// quietSolicitation is about what the agent itself sends.
var quietSolicitation = []Scenario{
	{ID: "Q28", Want: Quiet, Text: "our own solicitation hurts nobody", Story: func(s *Stage) {
		ips := s.Addrs(lab.Bridged, 28)
		bystander := s.Pod("bystander", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 29)})
		// It is asked for its own addresses once, before it becomes a bystander.
		s.Sees(bystander, bystander.Addrs()...)
		known := s.Pod("known", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 30)})
		for _, ip := range append(known.Addrs(), s.Node.IPv4(1), s.Node.IPv6(1)) {
			s.Do(bystander.Ping(ip))
		}
		before, err := bystander.Neighbours()
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
	}},
}

// sameNeighbours fails the story if an entry of the pod's neighbour table has changed,
// or if there is a new one that the kernels of the node and of the other pods did not
// make themselves with their link-local addresses.
func (s *Stage) sameNeighbours(p *lab.Pod, before map[netip.Addr]string, others ...*lab.Pod) {
	s.Helper()
	after, err := p.Neighbours()
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
	before, err := vm.StartGuest(lab.GuestOptions{Addr: ip, Talk: 50 * time.Millisecond})
	s.Do(err)
	s.Sees(vm, ip)
	s.Do(before.Stop())

	probes, err := s.Node.Tap(vm.HostInterface, nil)
	s.Do(err)
	guest, err := vm.StartGuest(lab.GuestOptions{Addr: ip, Detect: true})
	s.Do(err)
	for deadline := time.Now().Add(patience); probes.Count() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatal("the guest did not probe")
		}
	}
	rival := s.Pod("rival", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
	s.Talk(rival, ip)
	_, err = s.Watch().WaitType("suspected", ip, patience)
	s.Do(err)
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	s.Do(guest.Owned(ctx))
}

// solicitWithoutPause sends solicitations for the addresses to a pod's interface as
// fast as a socket takes them, until stop is called.
func (s *Stage) solicitWithoutPause(p *lab.Pod, ips []netip.Addr) (stop func()) {
	s.Helper()
	index, err := s.Node.Ifindex(p.HostInterface)
	s.Do(err)
	var sender *solicit.Sender
	s.Do(s.Node.Exec(func() (err error) {
		sender, err = solicit.Open(solicit.MAC("scenario", "q28"))
		return err
	}))
	ctx, cancel := context.WithCancel(s.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			for _, ip := range ips {
				// A full queue is as good as a pause.
				if err := sender.Send(solicit.Target{Ifindex: index, IP: ip}); err != nil && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(200 * time.Microsecond)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		done.Wait()
		_ = sender.Close()
	})
	s.Cleanup(stop)
	return stop
}
