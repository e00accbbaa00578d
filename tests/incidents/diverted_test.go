package incidents

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/cri"
)

// TestDiverted: machines whose own kernels send the packets for live pods elsewhere, or attract them. What looks like it, and is lawful,
// stays there all the time.
func TestDiverted(t *testing.T) {
	s := newTestCluster(t)
	// The pods of n2 have an address of a routed range, one of the nodes' own segment, and one of a range that Docker has by default.
	ipam := cri.HostLocal("10.98.2.0/24", "192.168.77.192/28", "172.17.0.0/28")
	ipam["ranges"].([]any)[2].([]any)[0].(map[string]any)["gateway"] = "172.17.0.14"
	store := s.TempDir()
	ipam["dataDir"] = store
	n := s.build(options{subnets: []string{"10.98.1.0/24"}}, options{plugin: map[string]any{"ipam": ipam}, store: store}, options{subnets: []string{"10.98.3.0/24"}})
	s.startAgents(n...)
	s.waitMembers(n...)
	n1, n2, n3 := n[0], n[1], n[2]
	up := func(m *machine) string { return m.Node.Uplink().String() }
	ip := func(m *machine, words string) { m.shell("ip", strings.Fields(words)...) }

	own, far := n1.run(named("own")), n2.runMany("far", 2)
	victim, other := far[0], far[1]
	if victim.IPs[2] != netip.MustParseAddr("172.17.0.1") {
		victim, other = other, victim
	}
	routed, flat, docker := victim.IPs[0], victim.IPs[1], victim.IPs[2]
	for _, m := range []*machine{n1, n3} {
		ip(m, "route add 10.98.2.0/24 via "+up(n2))
		ip(m, "route add 172.17.0.0/28 via "+up(n2))
		s.Do(m.Node.AddDummy("kube-ipvs0"), m.Node.AddDummy("nodelocaldns"), m.Node.AddTunnel("overlay0"), m.Node.AddBridge("docker0"))
		ip(m, "addr add 10.96.0.1/32 dev kube-ipvs0")
		ip(m, "addr add 169.254.20.10/32 dev nodelocaldns")
		ip(m, "addr add 172.17.0.13/16 dev docker0") // no pod has it
		ip(m, "route add "+other.IPs[0].String()+" via 10.98.9.2 dev overlay0 onlink")
		ip(m, "route add "+other.IPs[1].String()+" nexthop via "+up(n2)+" nexthop via 192.168.77.77 dev eth0 onlink")
		ip(m, "rule add from 10.98.1.77 lookup 77 priority 77")
		ip(m, "route add local 10.98.0.0/16 dev lo table 77")
	}
	ip(n2, "route add blackhole 10.98.2.0/24 proto 80")
	s.Do(n2.Node.AddTunnel("tunl0"))
	ip(n2, "addr add 10.98.2.0/32 dev tunl0")
	n2.shell("sysctl", "-w", "net.ipv4.conf.eth0.proxy_arp=1") // for its own pods
	ip(n3, "route add 10.98.1.0/24 via "+up(n1))
	s.waitBindings(append(far, own)...)
	for _, m := range n {
		s.Eventually("the first looks of "+m.name, func() error { return m.counts("diverted", 0) })
	}
	hostEnd := regexp.MustCompile(` dev (\S+)`).FindStringSubmatch(n1.shell("ip", "-o", "route", "get", own.IPs[0].String()))[1]

	type want struct {
		m       *machine
		ip      netip.Addr
		end     string
		command string // that ends it, as the audit prints it
	}
	var seen []want
	play := func(what string, w want, begin, end string) {
		t.Helper()
		seen = append(seen, w)
		check := func(when string, is bool) {
			t.Helper()
			s.Eventually(when+what, func() error {
				list, err := w.m.findings()
				if err == nil && len(list) == 0 && is || len(list) > 0 && !is {
					err = fmt.Errorf("%s has %v", w.m.name, list)
				}
				for _, f := range list {
					if f.Kind != "diverted" || f.IP != w.ip || f.End != w.end || f.HeldBy == "" || f.Pod == nil {
						s.Fatal(fmt.Errorf("%s: %s says %s, %s", what, w.m.name, f, f.End))
					}
				}
				return err
			})
		}
		began := time.Now()
		w.m.shell("sh", "-c", begin)
		check("", true)
		took := time.Since(began)
		if took > patience {
			t.Errorf("%s: found after %v", what, took)
		}
		text := w.m.dupip("audit")
		t.Logf("%s: after %v\n%s", what, took.Round(time.Millisecond), text)
		if explained := n2.dupip("explain", w.ip.String()); !strings.Contains(explained, "Node "+w.m.name) {
			t.Errorf("%s: explain says %s", what, explained)
		}
		if w.command != "" {
			if !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool { return strings.TrimSpace(line) == w.command }) {
				t.Errorf("%s: the audit has no %q", what, w.command)
			}
			end = w.command
		}
		w.m.shell("sh", "-c", end)
		check("the end of ", false)
	}
	local := "ip route %s local 10.98.1.0/24 dev eth0 table local"
	play("a local range over own pods", want{n1, own.IPs[0], "self", fmt.Sprintf(local, "del")}, fmt.Sprintf(local, "add"), "")
	ip(n3, "route add "+flat.String()+" dev kube-ipvs0")
	play("proxy_arp on an uplink", want{n3, flat, "proxy_arp", "sysctl -w net.ipv4.conf.eth0.proxy_arp=0"}, "sysctl -w net.ipv4.conf.eth0.proxy_arp=1", "")
	entry := "ip neigh %s proxy " + flat.String() + " dev eth0"
	play("a proxy entry", want{n3, flat, "proxy", fmt.Sprintf(entry, "del")}, fmt.Sprintf(entry, "add"), "")
	play("docker0", want{n1, docker, "self", ""}, "ip addr add 172.17.0.1/16 dev docker0", "ip addr del 172.17.0.1/16 dev docker0")
	service := "ip addr %s " + routed.String() + "/32 dev kube-ipvs0"
	play("a Service's address", want{n1, routed, "self", ""}, fmt.Sprintf(service, "add"), fmt.Sprintf(service, "del"))
	stale := "ip route %s " + routed.String() + " dev " + hostEnd
	play("a stale route to a pod", want{n1, routed, "pods", fmt.Sprintf(stale, "del")}, fmt.Sprintf(stale, "add"), "")
	t.Logf("$ dupip explain\n%s", n1.dupip("explain", routed.String()))
	for _, m := range n {
		for _, f := range m.audits.Seen() {
			if !slices.ContainsFunc(seen, func(w want) bool { return f.Kind == "diverted" && m == w.m && f.IP == w.ip }) {
				s.Fatal(fmt.Errorf("false finding on %s: %v", m.name, f.Finding))
			}
		}
	}
	s.assertNoConflict(true)
}
