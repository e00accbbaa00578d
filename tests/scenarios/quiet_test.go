package scenarios

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

var mustStayQuiet = slices.Concat(quietLifecycle, quietRestart, quietHostile, quietForwarding, quietNetworks, quietSolicitation,
	quietCluster, quietApart, quietClock)

// quietLifecycle are addresses that change hands lawfully.
var quietLifecycle = []Scenario{
	{ID: "Q2", Want: Quiet, MaySuspect: true, Text: "sandbox re-created ten times, same address", Story: func(s *Stage) {
		for _, style := range bothStyles {
			ips := s.Addrs(style, 2)
			for round := range 10 {
				p := s.Pod(fmt.Sprintf("%s-%d", styleName(style), round), lab.PodOptions{Style: style, Addrs: ips})
				s.Talk(p, ips...)
				s.Sees(p, ips...)
				// In every other round the kernel takes the devices down when it
				// finds time for it, and the next sandbox is there before.
				end := p.Delete
				if round%2 == 1 {
					end = p.DeleteNetns
				}
				s.Do(end())
			}
		}
	}},
	{ID: "Q10", Want: Quiet, MaySuspect: true, Text: "a VIP moves between two pods, keepalived's way", Story: func(s *Stage) {
		for _, style := range bothStyles {
			name, vips := styleName(style), s.Addrs(style, 100)
			pods := []*lab.Pod{
				s.Pod("a-"+name, lab.PodOptions{Style: style, Addrs: s.Addrs(style, 101)}),
				s.Pod("b-"+name, lab.PodOptions{Style: style, Addrs: s.Addrs(style, 102)}),
			}
			var master *lab.Pod
			for round := range 6 {
				next := pods[round%2]
				for _, vip := range vips {
					if master != nil {
						s.Do(master.DelAddr(vip))
					}
					s.Do(next.AddAddr(vip))
				}
				// As keepalived does, five times each.
				for range 5 {
					for _, vip := range vips {
						s.Do(next.Announce(vip))
					}
				}
				s.Sees(next, vips...)
				master = next
			}
		}
	}},
	{ID: "Q11", Want: Quiet, MaySuspect: true, Text: "hand-over with a short overlap", Story: func(s *Stage) {
		for _, style := range bothStyles {
			s.handOver(func(try int) (*lab.Pod, []netip.Addr, time.Time, func() error) {
				name, ips := fmt.Sprintf("%s%d", styleName(style), try), s.Addrs(style, byte(110+try))
				elder := s.Pod("elder-"+name, lab.PodOptions{Style: style, Addrs: ips})
				s.Sees(elder, ips...)
				// The old pod's eth0 goes away a moment after its address was given out.
				newcomer := s.Pod("newcomer-"+name, lab.PodOptions{Style: style, Addrs: ips})
				s.Talk(newcomer, ips...)
				return newcomer, ips, newcomer.Started, elder.Delete
			})
		}
		// Live migration: the target announces itself before the source is stopped.
		for family := range 2 {
			s.handOver(func(try int) (*lab.Pod, []netip.Addr, time.Time, func() error) {
				ip := s.Addrs(lab.Bridged, byte(120+try))[family]
				talk := lab.GuestOptions{Addr: ip, Talk: 50 * time.Millisecond}
				source := s.Pod(fmt.Sprintf("source%d-%d", family, try), lab.PodOptions{Style: lab.Raw})
				before, err := source.StartGuest(talk)
				s.Do(err)
				s.Sees(source, ip)
				target := s.Pod(fmt.Sprintf("target%d-%d", family, try), lab.PodOptions{Style: lab.Raw})
				since := time.Now()
				_, err = target.StartGuest(talk)
				s.Do(err)
				return target, []netip.Addr{ip}, since, before.Stop
			})
		}
	}},
	{ID: "Q12", Want: Quiet, Text: "probes for an address somebody else holds", Story: func(s *Stage) {
		ips := s.Addrs(lab.Bridged, 12)
		holder := s.Pod("holder", lab.PodOptions{Addrs: ips})
		s.Sees(holder, ips...)
		own := s.Addrs(lab.Bridged, 13)
		prober := s.Pod("prober", lab.PodOptions{Addrs: own})
		s.Sees(prober, own...)
		for range 5 {
			for _, ip := range ips {
				s.Do(prober.Probe(ip))
			}
		}
		// What the same interface sent after the probes was seen.
		marks := lab.IPs("198.51.100.12", "2001:db8:12::1")
		s.Do(prober.Spoof(marks...))
		s.SeesForwarded(prober, marks...)
		// A pod whose duplicate address detection fails keeps the address in its list.
		failed := s.Pod("failed", lab.PodOptions{DAD: true, Addrs: ips[1:]})
		s.Do(failed.WaitDAD(patience, ips[1], true))
		// A guest that detects the conflict and gives up.
		vm := s.Pod("vm", lab.PodOptions{Style: lab.Raw})
		g, err := vm.StartGuest(lab.GuestOptions{Addr: ips[0], Detect: true})
		s.Do(err)
		if err := g.Owned(s.Context()); err == nil {
			s.Errorf("the guest took an address that is held")
		}
	}},
	{ID: "Q15", Want: Quiet, MaySuspect: true, Text: "a pod changes its address, another takes the old one", Story: func(s *Stage) {
		for _, style := range bothStyles {
			name, was, is := styleName(style), s.Addrs(style, 15), s.Addrs(style, 16)
			mover := s.Pod("mover-"+name, lab.PodOptions{Style: style, Addrs: was})
			running := s.Pod("running-"+name, lab.PodOptions{Style: style, Addrs: s.Addrs(style, 17)})
			s.Talk(mover, was...)
			s.Sees(mover, was...)
			for i := range was {
				s.Do(mover.DelAddr(was[i]), mover.AddAddr(is[i]))
				s.Talk(mover, is[i])
				// One taker is a running pod, the next a new one.
				s.Do(running.AddAddr(was[i]))
				s.Talk(running, was[i])
				s.Sees(mover, is[i])
				s.Sees(running, was[i])
				s.Do(running.DelAddr(was[i]))
			}
			taker := s.Pod("taker-"+name, lab.PodOptions{Style: style, Addrs: was})
			s.Talk(taker, was...)
			s.Sees(taker, was...)
		}
	}},
	{ID: "Q21", Want: Quiet, MaySuspect: true, Text: "netns inode and ifindex reused by the next pod", Story: func(s *Stage) {
		const index = 5000
		for _, style := range bothStyles {
			name, old, fresh := styleName(style), s.Addrs(style, 21), s.Addrs(style, 22)
			var second *lab.Pod
			// Others on this machine make netns, too, and may be faster.
			for try := 0; second == nil; try++ {
				if try == 20 {
					s.Fatal("the inode of the old netns was never given out again")
				}
				first := s.Pod(fmt.Sprintf("first%d-%s", try, name), lab.PodOptions{Style: style, Addrs: old, HostIndex: index})
				s.Talk(first, old...)
				s.Sees(first, old...)
				inode, err := first.Inode()
				s.Do(err)
				s.Do(first.Delete())
				second = s.podWithInode(fmt.Sprintf("second%d-%s", try, name), inode, lab.PodOptions{Style: style, Addrs: fresh, HostIndex: index})
			}
			s.Talk(second, fresh...)
			third := s.Pod("third-"+name, lab.PodOptions{Style: style, Addrs: old})
			s.Talk(third, old...)
			s.Sees(second, fresh...)
			s.Sees(third, old...)
			s.Do(second.Delete())
		}
	}},
}

// handOver ends the former holder a short while after the new one began. Where the
// machine was so slow that the overlap was no short one, it plays again with other
// addresses.
func (s *Stage) handOver(begin func(try int) (to *lab.Pod, ips []netip.Addr, since time.Time, end func() error)) {
	s.Helper()
	const overlap = minOverlap * 3 / 10
	for try := range 5 {
		to, ips, since, end := begin(try)
		time.Sleep(time.Until(since.Add(overlap)))
		s.Do(end())
		took := time.Since(since)
		s.Sees(to, ips...)
		if took < minOverlap*9/10 {
			return
		}
		s.Logf("an overlap of %v is not a short one", took)
		s.Expect(ips...)
	}
	s.Fatal("this machine is too slow for a short overlap")
}

// podWithInode makes a pod whose netns has an inode that was in use before, or returns
// nil. The kernel gives out the lowest free number, once it has destroyed the old netns.
func (s *Stage) podWithInode(name string, inode uint64, o lab.PodOptions) *lab.Pod {
	s.Helper()
	var misfits []*lab.Pod
	defer func() {
		for _, p := range misfits {
			s.Do(p.Delete())
		}
	}()
	for i := range 12 {
		trial := s.Pod(fmt.Sprintf("%s-%d", name, i), lab.PodOptions{Style: lab.Raw, Interface: "trial"})
		if got, err := trial.Inode(); err == nil && got == inode {
			_, err := trial.AddInterface(o)
			s.Do(err)
			return trial
		}
		misfits = append(misfits, trial)
	}
	return nil
}

// quietForwarding are packets from and answers for addresses that the pod itself does
// not have.
var quietForwarding = []Scenario{
	{ID: "Q4", Want: Quiet, Text: "the host's own traffic on every interface", Story: func(s *Stage) {
		docker := netip.MustParsePrefix("172.17.0.1/16")
		s.Do(s.Node.AddBridge("docker0", docker))
		own := []netip.Addr{s.Node.Uplink(), s.Node.IPv4(1), docker.Addr(), s.Node.Uplink6(), s.Node.IPv6(1)}
		for _, style := range bothStyles {
			ips := s.Addrs(style, 4)
			p := s.Pod("pod-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips})
			s.Sees(p, ips...)
			for _, src := range own {
				dst := ips[0]
				if src.Is6() {
					dst = ips[1]
				}
				s.Do(s.Node.SendUDP(src, dst, 3))
				if src != docker.Addr() {
					s.Do(p.Ping(src))
				}
			}
			s.Do(s.Node.Ping(ips[0]), s.Node.Ping(ips[1]))
		}
		s.SeesHost(s.Node, s.Node.Uplink(), s.Node.Uplink6(), s.Node.IPv4(1), s.Node.IPv6(1))
	}},
	{ID: "Q5", Want: Quiet, Text: "a forwarding pod emits other pods' addresses", Story: func(s *Stage) {
		routerIPs, clientIPs := s.Addrs(lab.Bridged, 50), s.Addrs(lab.Bridged, 51)
		router := s.Pod("router", lab.PodOptions{Addrs: routerIPs})
		s.Sees(router, routerIPs...)
		s.Do(router.Sysctl("ipv4/ip_forward", "1"), router.Sysctl("ipv6/conf/all/forwarding", "1"),
			router.Sysctl("ipv4/conf/all/send_redirects", "0"), router.Sysctl("ipv4/conf/eth0/send_redirects", "0"))
		client := s.Pod("client", lab.PodOptions{Addrs: clientIPs})
		s.Do(client.DefaultRoute(routerIPs...))
		s.Talk(client, clientIPs...)
		s.Sees(client, clientIPs...)
		s.SeesForwarded(router, clientIPs...)
		// A VPN or egress pod on a routed interface: addresses of other pods, and of nobody.
		ips := s.Addrs(lab.Routed, 50)
		egress := s.Pod("egress", lab.PodOptions{Style: lab.Routed, Addrs: ips})
		s.Sees(egress, ips...)
		others := slices.Concat(clientIPs, lab.IPs("10.8.0.6", "fd00:8::6"))
		for range 3 {
			s.Do(egress.Spoof(others...))
		}
		s.SeesForwarded(egress, others...)
	}},
	{ID: "Q13", Want: Quiet, Text: "link-local, multicast and unspecified sources", Story: func(s *Stage) {
		never := lab.IPs("169.254.1.1", "169.254.20.10", "0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255",
			"fe80::1", "fe80::ecee:eeff:feee:eeee", "ff02::1", "::", "::1")
		for i, style := range []lab.Style{lab.Bridged, lab.Bridged, lab.Routed, lab.Routed} {
			ips := s.Addrs(style, byte(20+i))
			p := s.Pod(fmt.Sprintf("pod%d", i), lab.PodOptions{Style: style, Addrs: ips})
			s.Talk(p, ips...)
			s.Sees(p, ips...)
			s.Do(p.Spoof(never...))
			s.Do(p.Announce(never[0]), p.Announce(never[6]))
			// What the same interface sends afterwards is seen, so those were.
			mark := netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})
			s.Do(p.Spoof(mark))
			s.SeesForwarded(p, mark)
		}
		s.Unknown(never...)
	}},
	{ID: "Q20", Want: Quiet, Text: "a container engine nested in each of two pods", Story: func(s *Stage) {
		nested := netip.MustParseAddr("172.17.0.2")
		for i, style := range bothStyles {
			ips := s.Addrs(style, byte(60+i))
			p := s.Pod(fmt.Sprintf("engine%d", i), lab.PodOptions{Style: style, Addrs: ips})
			s.Sees(p, ips...)
			s.Do(p.Sysctl("ipv4/ip_forward", "1"))
			inside := p.AsNode()
			s.Do(inside.AddBridge("docker0", netip.MustParsePrefix("172.17.0.1/16")))
			// Not translated on its way out, as with a broken or absent NAT rule.
			c := s.T.Pod(inside, fmt.Sprintf("container%d", i), lab.PodOptions{Bridge: "docker0", Addrs: []netip.Addr{nested}})
			s.Talk(c, nested)
			s.SeesForwarded(p, nested)
		}
	}},
	{ID: "Q24", Want: Quiet, Text: "two pods and the host answer for their own docker0", Story: func(s *Stage) {
		docker := netip.MustParsePrefix("172.17.0.1/16")
		s.Do(s.Node.AddBridge("docker0", docker))
		asker := s.Pod("asker", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 24)})
		var engines []*lab.Pod
		for i := range 2 {
			p := s.Pod(fmt.Sprintf("engine%d", i), lab.PodOptions{Addrs: s.Addrs(lab.Bridged, byte(70+i))})
			s.Sees(p, p.Addrs()...)
			s.Do(p.AsNode().AddBridge("docker0", docker))
			engines = append(engines, p)
		}
		for range 3 {
			s.Do(asker.Ask(docker.Addr()))
		}
		for _, p := range engines {
			s.SeesForwarded(p, docker.Addr())
		}
	}},
	{ID: "Q25", Want: Quiet, Text: "a pod with proxy ARP answers for other pods", Story: func(s *Stage) {
		proxyIPs, ips := s.Addrs(lab.Bridged, 25), s.Addrs(lab.Bridged, 26)
		proxy := s.Pod("proxy", lab.PodOptions{Addrs: proxyIPs})
		s.Sees(proxy, proxyIPs...)
		s.Do(proxy.Sysctl("ipv4/ip_forward", "1"), proxy.Sysctl("ipv6/conf/all/forwarding", "1"),
			proxy.Sysctl("ipv4/conf/eth0/proxy_arp", "1"), proxy.Sysctl("ipv6/conf/eth0/proxy_ndp", "1"),
			proxy.Sysctl("ipv4/neigh/eth0/proxy_delay", "0"), proxy.Sysctl("ipv6/neigh/eth0/proxy_delay", "0"))
		// It answers for what it believes to be behind another device.
		inside := proxy.AsNode()
		s.Do(inside.AddBridge("tunnel0"), proxy.RouteVia("tunnel0", netip.PrefixFrom(ips[0], 32)), proxy.ProxyNDP(ips[1]))
		holder := s.Pod("holder", lab.PodOptions{Addrs: ips})
		asker := s.Pod("asker", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 27)})
		s.Sees(holder, ips...)
		for range 3 {
			for _, ip := range ips {
				s.Do(asker.Ask(ip))
			}
		}
		s.SeesForwarded(proxy, ips...)
	}},
}
