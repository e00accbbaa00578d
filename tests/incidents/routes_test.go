package incidents

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRoutes: machines with routes as network plugins write them. What leads to a pod, or nobody knows where, is no finding. Then some lead
// elsewhere, as after the bookings of Calico #12257.
func TestRoutes(t *testing.T) {
	s := newTestCluster(t)
	var all []options
	for i := range 4 {
		all = append(all, options{subnets: []string{fmt.Sprintf("10.98.%d.0/24", i+1)}})
	}
	n := s.build(all...)
	s.startAgents(n...)
	s.waitMembers(n...)
	n1, n2, n3, n4 := n[0], n[1], n[2], n[3]
	up := func(m *machine) string { return m.Node.Uplink().String() }
	route := func(m *machine, words ...string) { m.shell("ip", append([]string{"route", "replace"}, words...)...) }
	to := func(p *pod) string { return p.IPs[0].String() + "/32" }

	pods := n3.runMany("web", 7)
	straight, relayed, spread, tunnelled, lost, round, overlay := pods[0], pods[1], pods[2], pods[3], pods[4], pods[5], pods[6]
	s.runEach("own", 1, n1) // of the block that n1 drops what is free of
	route(n1, "blackhole", "10.98.1.0/24", "proto", "80")
	for _, m := range n[1:] {
		route(m, "10.98.1.0/24", "via", up(n1))
	}
	for _, m := range n {
		// As kube-proxy has service addresses, and a VPN a device whose ends are not known.
		s.Do(m.Node.AddDummy("kube-ipvs0"), m.Node.AddTunnel("overlay0"))
		m.shell("ip", "addr", "add", "10.96.0.1/32", "dev", "kube-ipvs0")
	}
	for _, m := range []*machine{n1, n2, n4} {
		for _, p := range []*pod{straight, lost, round, overlay} {
			route(m, to(p), "via", up(n3))
		}
		next := n4
		if m == n4 {
			next = n3
		}
		route(m, to(relayed), "via", up(next))
		route(m, to(spread), "nexthop", "via", up(n3), "nexthop", "via", "192.0.2.77", "dev", "eth0", "onlink")
		route(m, to(tunnelled), "via", "10.98.9.2", "dev", "overlay0", "onlink")
	}
	s.waitBindings(pods...)
	for _, m := range []*machine{n1, n2, n4} {
		s.Eventually("the routes of "+m.name, func() error { return m.counts("misrouted", 0) })
	}

	// Like the node of the block after its pod is gone there; two that believe each other; and by forwarding entries.
	route(n1, "blackhole", to(lost))
	for _, m := range []*machine{n2, n4} {
		route(m, to(lost), "via", up(n1))
	}
	route(n1, to(round), "via", up(n2))
	route(n2, to(round), "via", up(n4))
	route(n4, to(round), "via", up(n2))
	route(n1, "blackhole", to(overlay))
	for _, m := range []*machine{n2, n4} {
		const mac = "02:00:00:00:00:77"
		m.shell("ip", "neigh", "replace", "10.98.9.1", "lladdr", mac, "dev", "overlay0", "nud", "permanent")
		m.shell("bridge", "fdb", "append", mac, "dev", "overlay0", "dst", up(n1))
		route(m, to(overlay), "via", "10.98.9.1", "dev", "overlay0", "onlink")
	}
	wrong := map[*pod]map[*machine]string{
		lost:    {n2: n1.name + ": nowhere", n4: n1.name + ": nowhere"},
		overlay: {n2: n1.name + ": nowhere", n4: n1.name + ": nowhere"},
		round:   {n1: n2.name + " " + n4.name + " " + n2.name + ": loop", n2: n4.name + " " + n2.name + ": loop", n4: n2.name + " " + n4.name + ": loop"},
	}
	found := func(p *pod) (said []string, err error) {
		for _, m := range n {
			list, err := m.findings()
			if err != nil {
				return nil, err
			}
			for _, f := range list {
				if f.Kind != "misrouted" || f.IP != p.IPs[0] {
					continue
				}
				if got := strings.Join(f.Through, " ") + ": " + f.End; got != wrong[p][m] || f.HeldBy != n3.name || f.Pod == nil || *f.Pod != p.ref() {
					return nil, fmt.Errorf("%s says %s held by %s, want %q", m.name, got, f.HeldBy, wrong[p][m])
				}
				said = append(said, m.name)
			}
		}
		return said, nil
	}
	for p := range wrong {
		s.Eventually("packets to "+p.Name+" as misrouted", func() error {
			// Three of the four machines keep an address, and one of those is on it.
			if said, err := found(p); err != nil || len(said) == 0 {
				return fmt.Errorf("%q say so: %w", said, err)
			}
			return nil
		})
	}
	t.Logf("$ dupip audit --cluster\n%s", n4.dupip("audit", "--cluster"))
	for _, m := range []*machine{n1, n2, n4} {
		for p := range wrong {
			route(m, to(p), "via", up(n3))
		}
	}
	for p := range wrong {
		s.Eventually("the end of the findings about "+p.Name, func() error {
			if said, err := found(p); err != nil || len(said) > 0 {
				return fmt.Errorf("%q still say so: %w", said, err)
			}
			return nil
		})
	}
	for _, m := range n {
		for _, f := range m.audits.Seen() {
			about := func(p *pod) bool { return f.Kind == "misrouted" && f.IP == p.IPs[0] }
			if !slices.ContainsFunc([]*pod{lost, round, overlay}, about) {
				s.Fatal(fmt.Errorf("false finding on %s: %v", m.name, f.Finding))
			}
		}
	}
	s.assertNoConflict(true)
}
