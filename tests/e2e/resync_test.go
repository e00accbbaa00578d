package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// namespaces are situations in which the agent has to find a netns, or a device in one, without its periodic list. Each makes a second
// holder of the address that an older pod has.
var namespaces = map[string]func(l *lab.T, a *lab.Agent, early *lab.Pod, ip netip.Addr){
	"a macvlan device comes into an old netns without a name": func(l *lab.T, _ *lab.Agent, early *lab.Pod, ip netip.Addr) {
		addInside(l, early, ip)
	},
	"a macvlan device comes into a new netns without a name": func(l *lab.T, _ *lab.Agent, early *lab.Pod, ip netip.Addr) {
		fresh := l.Pod(early.Node, "fresh", lab.PodOptions{Style: lab.Raw})
		l.Do(fresh.DeleteLink())
		removeName(l, fresh)
		addInside(l, fresh, ip)
	},
	"a macvlan device comes into a netns without a name that is made a moment later": func(l *lab.T, _ *lab.Agent, early *lab.Pod, ip netip.Addr) {
		n := early.Node
		l.Do(runCommand(n, "ip link add mv0 link eth1 type macvlan mode bridge"))
		sleeper, err := n.Launch(exec.Command("unshare", "-n", "sleep", "infinity"))
		l.Do(err)
		l.Eventually("the netns", func() error {
			return runCommand(n, fmt.Sprintf("test $(readlink /proc/%d/ns/net) != $(readlink /proc/self/ns/net)", sleeper.PID()))
		})
		l.Do(runCommand(n, fmt.Sprintf("ip link set mv0 netns %d && nsenter -n -t %[1]d ip address add %v/24 dev mv0 && nsenter -n -t %[1]d ip link set mv0 up",
			sleeper.PID(), ip)))
	},
	"a macvlan device comes into a netns whose name was another's, which a process holds": func(l *lab.T, a *lab.Agent, early *lab.Pod, ip netip.Addr) {
		n := early.Node
		first := l.Pod(n, "name", lab.PodOptions{Style: lab.Inside, Parent: "eth1", Addrs: lab.IPs("10.7.0.8")})
		wantInside(l, a, first, "attached", "segment@eth1")
		removeName(l, first)
		second := l.Pod(n, "name", lab.PodOptions{Style: lab.Raw})
		l.Do(second.DeleteLink())
		addInside(l, second, ip)
	},
	"a macvlan device in a netns whose name is another's, which a process holds": func(l *lab.T, a *lab.Agent, early *lab.Pod, ip netip.Addr) {
		n := early.Node
		first := l.Pod(n, "name", lab.PodOptions{Style: lab.Inside, Parent: "eth1", Addrs: lab.IPs("10.7.0.8")})
		wantInside(l, a, first, "attached", "segment@eth1")
		removeName(l, first)
		l.Pod(n, "name", lab.PodOptions{})
		l.Do(first.AddAddrOn("eth0", netip.PrefixFrom(ip, 24)))
	},
	"the host has no /run/netns before": func(l *lab.T, a *lab.Agent, early *lab.Pod, ip netip.Addr) {
		// As in the agent's mount namespace, where /run is empty. Nothing but the name leads to the netns.
		fresh := l.Pod(early.Node, "fresh", lab.PodOptions{Style: lab.Raw})
		l.Do(fresh.DeleteLink(), fresh.RemoveName())
		sleeper, err := fresh.Launch(exec.Command("sleep", "infinity"))
		l.Do(err, runCommand(early.Node, fmt.Sprintf("nsenter -m -t %d ip netns attach fresh %d", a.PID(), sleeper.PID())), sleeper.Kill())
		addInside(l, fresh, ip)
	},
	"a pod moves its macvlan device into a netns without a name": func(l *lab.T, a *lab.Agent, early *lab.Pod, ip netip.Addr) {
		n := early.Node
		mover := l.Pod(n, "mover", lab.PodOptions{Style: lab.Inside, Parent: "eth1", Addrs: lab.IPs("10.7.0.8")})
		wantInside(l, a, mover, "attached", "segment@eth1")
		hidden := l.Pod(n, "hidden", lab.PodOptions{Style: lab.Raw, Interface: "spare"})
		l.Do(hidden.DeleteLink())
		removeName(l, hidden)
		l.Do(mover.MoveInterface("eth0", hidden, "eth0", ip))
	},
	"a pod moves eth0 into a netns that only a descriptor holds": func(l *lab.T, _ *lab.Agent, early *lab.Pod, ip netip.Addr) {
		n := early.Node
		mover := l.Pod(n, "mover", lab.PodOptions{Addrs: lab.IPs("10.7.0.8"), Bridge: "lan1"})
		hidden := l.Pod(n, "hidden", lab.PodOptions{Style: lab.Raw, Interface: "spare"})
		l.Do(hidden.DeleteLink(), hidden.RemoveName())
		l.Do(mover.MoveInterface("eth0", hidden, "eth0", ip))
	},
}

// addInside gives a pod a macvlan device with an address.
func addInside(l *lab.T, p *lab.Pod, ip netip.Addr) {
	l.Helper()
	_, err := p.AddInterface(lab.PodOptions{Style: lab.Inside, Parent: "eth1", Addrs: []netip.Addr{ip}})
	l.Do(err)
}

// removeName leaves a process in a netns, and no name.
func removeName(l *lab.T, p *lab.Pod) {
	l.Helper()
	_, err := p.Launch(exec.Command("sleep", "infinity"))
	l.Do(err, p.RemoveName())
}

// TestNamespacesWithoutResync: the agent finds duplicates in namespaces by events, and not by the list of everything that it makes every
// 30 s.
func TestNamespacesWithoutResync(t *testing.T) {
	for name, happens := range namespaces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lab.NewT(t)
			n := l.Node("")
			l.Do(n.AddSegment("eth1", netip.MustParsePrefix("10.7.0.1/24")), n.AddBridge("lan1", netip.MustParsePrefix("10.7.0.1/24")))
			ip := netip.MustParseAddr("10.7.0.7")
			options := lab.PodOptions{Style: lab.Inside, Parent: "eth1", Addrs: []netip.Addr{ip}}
			switch name {
			case "a pod moves eth0 into a netns that only a descriptor holds":
				options = lab.PodOptions{Bridge: "lan1", Addrs: []netip.Addr{ip}}
			case "the host has no /run/netns before":
				run := filepath.Join(t.TempDir(), "run")
				l.Do(os.Mkdir(run, 0o755))
				n.Mounts = append(n.Mounts, lab.Mount{File: run, At: "/run"})
			}
			early := l.Pod(n, "early", lab.PodOptions{Style: lab.Raw})
			l.Do(early.DeleteLink())
			removeName(l, early)
			older := l.Pod(n, "older", options)
			if len(n.Mounts) > 0 {
				_, err := older.Launch(exec.Command("sleep", "infinity")) // without a name in the agent's /run
				l.Do(err)
			}
			a := l.Agent(n)
			w := l.Watch(a)
			_, err := a.Client.WaitBinding(within(l, patience), ip, func(b lab.Binding) bool { return b.Evidence != "host" })
			l.Do(err)
			happens(l, a, early, ip)
			began := time.Now()
			e, err := w.WaitConfirmed(ip, lab.Patience(soon))
			l.Do(err)
			t.Logf("confirmed after %.1f s", e.Received.Sub(began).Seconds())
			found, err := a.Scrape(l.Context())
			l.Do(err)
			for _, series := range found.Find("dupip_resync_found_total") {
				if found[series] != 0 {
					t.Errorf("%s is %v", series, found[series])
				}
			}
		})
	}
}
