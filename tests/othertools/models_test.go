package othertools

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/tests/lab"
)

// EVPN learns from real packets of pods on two nodes.
func TestEVPN(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	nodes := []*lab.Node{l.Node(""), l.Node("")}
	e := NewEVPN(new(config.Config))
	watch(l, e, nodes...)
	container := netip.MustParseAddr("172.17.0.2")
	for _, n := range nodes {
		l.Do(n.AddBridge("docker0", netip.MustParsePrefix("172.17.0.1/16")))
	}
	pods := func(o lab.PodOptions, name string) (all []*lab.Pod) {
		for _, n := range nodes {
			all = append(all, l.Pod(n, name+n.ShortName(), o))
		}
		return all
	}
	routed := []netip.Addr{nodes[0].RoutedIPv4(5), nodes[0].RoutedIPv6(5)}
	quiet := []netip.Addr{nodes[0].RoutedIPv4(6), container}
	twins := pods(lab.PodOptions{Style: lab.Routed, Addrs: routed}, "twin")
	still := pods(lab.PodOptions{Style: lab.Routed, Addrs: quiet[:1], Silent: true}, "still")
	docker := pods(lab.PodOptions{Bridge: "docker0", Addrs: quiet[1:]}, "docker")
	for range evpnMoves {
		for i := range nodes {
			l.Do(docker[i].Announce(container))
			// Datagrams teach an edge no addresses.
			l.Do(still[i].Spoof(quiet[0]))
			for _, ip := range routed {
				l.Do(twins[i].Announce(ip))
				waitUpdated(l, e, ip, nodes[i])
			}
		}
	}
	for _, ip := range routed {
		waitAlarm(l, e, ip)
	}
	for _, ip := range quiet {
		if hasAlarm(e, ip) {
			t.Errorf("alarm about %v: %v", ip, alarmTexts(e))
		}
	}
}

// waitUpdated waits until an address is where it was announced last: the edges are read
// at the same time, in any order.
func waitUpdated(t *lab.T, e *EVPN, ip netip.Addr, n *lab.Node) {
	t.Helper()
	eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		r := e.hosts[host{"cluster", ip}]
		return r != nil && r.at.node == n.Name
	})
}

// What is re-created elsewhere has not moved.
func TestEVPNRecreated(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	nodes := []*lab.Node{l.Node(""), l.Node("")}
	e := NewEVPN(new(config.Config))
	watch(l, e, nodes...)
	ip := nodes[0].RoutedIPv4(5)
	for round := range 2 * evpnMoves {
		n := nodes[round%2]
		p := l.Pod(n, "pod"+string(rune('a'+round)), lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
		l.Do(p.Announce(ip))
		waitUpdated(l, e, ip, n)
		l.Do(p.Delete())
	}
	if hasAlarm(e, ip) {
		t.Errorf("alarms: %v", alarmTexts(e))
	}
}

// The API server lists what IPAM gave to the pods that it knows.
func TestBookkeeping(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	one, two := l.Node("one"), l.Node("two")
	books := podRecords{}
	l.Subscribe(books.update)
	ip, later := one.RoutedIPv4(5), one.RoutedIPv4(6)
	want := func(what string, all map[netip.Addr]string) {
		t.Helper()
		if diff := cmp.Diff(all, books.duplicates(), cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	pod := func(n *lab.Node, name string, ips ...netip.Addr) *lab.Pod {
		t.Helper()
		return l.Pod(n, name, lab.PodOptions{Style: lab.Routed, Addrs: ips})
	}
	older := pod(one, "older", ip)
	want("one pod", nil)
	newcomer := pod(two, "newcomer", ip)
	both := map[netip.Addr]string{ip: "newcomer on two and older on one"} // by name
	want("two pods", both)

	l.Do(two.Disconnect())
	l.Do(newcomer.Delete())
	want("the end of a pod on a disconnected node is not reported", both)
	unheard := pod(two, "unheard", later)
	l.Do(two.Reconnect())
	want("the node is back", nil)
	first := pod(one, "first", later)
	want("what was made meanwhile is known", map[netip.Addr]string{later: "first on one and unheard on two"})
	l.Do(unheard.DeleteNetns(), first.Delete())
	want("both are gone", nil)

	l.Do(newPodWithout(l, two, "late").AddAddr(ip))
	want("given after the start", map[netip.Addr]string{ip: "late on two and older on one"})
	l.Do(older.Delete())
	want("one is left", nil)
	taker := pod(one, "taker", later)
	l.Do(taker.AddAddr(ip))
	want("taken in a running pod", nil)

	l.Do(one.AddBridge("docker0", netip.MustParsePrefix("172.17.0.1/16")))
	l.Pod(one, "container", lab.PodOptions{Bridge: "docker0", Addrs: []netip.Addr{ip}})
	want("a container is no pod", nil)
	_, err := taker.AddInterface(lab.PodOptions{Interface: "net1", Addrs: []netip.Addr{one.IPv4(9)}})
	l.Do(err)
	pod(two, "other", one.IPv4(9))
	want("another network of a pod", nil)
	if got := listedPods(books); got != 3 {
		t.Errorf("pods in the books: %d, want 3", got)
	}
}

func newPodWithout(t *lab.T, n *lab.Node, name string) *lab.Pod {
	t.Helper()
	return t.Pod(n, name, lab.PodOptions{Style: lab.Routed})
}

func listedPods(b podRecords) (pods int) {
	for l := range maps.Values(b) {
		pods += len(l.listed)
	}
	return pods
}

// PodIP reads the list by itself and reports an ongoing duplicate once.
func TestPodIP(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	p := NewPodIP()
	watch(l, p, n)
	ip := n.RoutedIPv4(5)
	for _, name := range []string{"a", "b"} {
		l.Pod(n, name, lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
	}
	waitAlarm(l, p, ip)
	l.Pod(n, "c", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
	eventually(l, func() bool { return len(p.Alarms()) == 2 })
}
