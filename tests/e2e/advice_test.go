package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/tests/lab"
)

// advised is a conflict with its advice, as `dupip conflicts -o json` has it.
type advised struct {
	IP      netip.Addr
	State   string
	Holders []struct {
		Node, Netns, Interface, Bridge string
		FoundAtStart                   bool
		Pod                            *struct {
			Name      string
			CreatedAt time.Time
			Sandbox   string
			Stopped   bool
		}
	}
	Routes []struct {
		Node, To, ToNode, Device string
		Holder                   *int
	}
	Advice *struct {
		Newer, Than *int
		By, Unknown string
		Remove      []removal
	}
}

type removal struct {
	Holder               int
	Because, Command, On string
	Then                 []struct{ Command, On string }
}

// removal is the i-th of the advice, empty if there are not so many.
func (c advised) removal(i int) (r removal) {
	if i < len(c.Advice.Remove) {
		r = c.Advice.Remove[i]
	}
	return r
}

// adviceOn waits until an address is a confirmed conflict with advice.
func adviceOn(t *lab.T, a *lab.Agent, ip netip.Addr, flags ...string) (c advised) {
	t.Helper()
	t.Eventually("advice", func() error {
		out, err := a.CLI(t.Context(), append([]string{"conflicts", "-o", "json", "--ip", ip.String()}, flags...)...)
		if err != nil {
			return err
		}
		var doc struct{ Conflicts []advised }
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			return err
		}
		if len(doc.Conflicts) != 1 || doc.Conflicts[0].State != "confirmed" || doc.Conflicts[0].Advice == nil {
			return fmt.Errorf("no conflict with advice: %s", out)
		}
		c = doc.Conflicts[0]
		return nil
	})
	return c
}

// newerNetns is the netns of the newer holder, empty if that is not known.
func (c advised) newerNetns() string {
	if c.Advice.Newer == nil {
		return ""
	}
	return c.Holders[*c.Advice.Newer].Netns
}

// nextHops are the next hops of the routes, in the order of the document.
func (c advised) nextHops() string {
	var all []string
	for _, r := range c.Routes {
		to := r.To
		if r.Holder != nil {
			to = c.Holders[*r.Holder].Netns
		}
		if r.ToNode != "" {
			to += " " + r.ToNode
		}
		all = append(all, r.Node+": "+to)
	}
	return strings.Join(all, ", ")
}

// runFirstCommand runs the first command of the advice on its node, and waits for the end of the
// conflict.
func (c advised) runFirstCommand(t *lab.T, agents ...*lab.Agent) {
	t.Helper()
	first := c.removal(0)
	i := slices.IndexFunc(agents, func(a *lab.Agent) bool { return a.Node.ShortName() == first.On })
	if i < 0 || first.Command == "" {
		t.Fatal(fmt.Errorf("%q is not for a node that is there: %q; advice %+v on %+v", first.Command, first.On, *c.Advice, c.Holders))
	}
	t.Do(runCommand(agents[i].Node, first.Command))
	for _, a := range agents {
		ended(t, a, c.IP)
	}
}

// ended waits until an address has no conflict. A conflict is verified every ten seconds and held for
// three.
func ended(t *lab.T, a *lab.Agent, ip netip.Addr) {
	t.Helper()
	err := lab.Poll(t.Context(), 2*patience, func() error {
		open, err := a.Client.Conflicts(t.Context(), false)
		if err == nil && slices.ContainsFunc(open, func(o lab.Conflict) bool { return o.IP == ip }) {
			err = fmt.Errorf("the conflict is open on %s: %+v", a.Node.ShortName(), open)
		}
		return err
	})
	t.Do(err)
}

// runCommand runs a command on a node. It has to be silent.
func runCommand(n *lab.Node, command string) error {
	return n.Exec(func() error {
		out, err := exec.Command("sh", "-c", command).CombinedOutput()
		if len(out) > 0 {
			err = errors.Join(err, fmt.Errorf("%q printed: %s", command, out))
		}
		return err
	})
}

// checkOutput checks what the conflict's text has, line breaks apart.
func checkOutput(t *lab.T, a *lab.Agent, args []string, want ...string) {
	t.Helper()
	out, err := a.CLI(t.Context(), args...)
	t.Do(err)
	text := strings.Join(strings.Fields(out), " ")
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("the output of dupip %v lacks %q:\n%s", args, w, out)
		}
	}
}

// Of two routed pods the newer has the route, as with the ptp plugin, and the older gets no packets.
// The command in the advice ends the conflict.
func TestAdviceRouted(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	ips := []netip.Addr{n.RoutedIPv4(5), n.RoutedIPv6(5)}
	older := l.Pod(n, "older", lab.PodOptions{Style: lab.Routed, Addrs: ips})
	a := l.Agent(n)
	w := l.Watch(a)
	newer := l.Pod(n, "newer", lab.PodOptions{Style: lab.Routed, Addrs: ips})
	for _, ip := range ips {
		_, err := w.WaitConfirmed(ip, patience)
		l.Do(err)
		c := adviceOn(l, a, ip)
		if c.newerNetns() != newer.Name || c.Advice.By != "firstSeen" || !c.Holders[0].FoundAtStart || c.Holders[1].FoundAtStart {
			t.Errorf("advice %+v on %+v", *c.Advice, c.Holders)
		}
		if want := n.ShortName() + ": " + newer.Name; c.nextHops() != want {
			t.Errorf("packets to %v go %q, want %q", ip, c.nextHops(), want)
		}
	}
	command := "Remove the newer one, on node " + n.ShortName() + ": ip link set dev " + newer.HostInterface + " down"
	dark := older.Name + " gets no traffic from " + n.ShortName() + "."
	checkOutput(l, a, []string{"conflicts"}, dark, command)
	checkOutput(l, a, []string{"conflicts", "-o", "wide"}, dark, command)
	checkOutput(l, a, []string{"explain", ips[1].String()}, dark, command,
		"while "+older.Name+" has it: repair IPAM, or replace that one, too, on node "+n.ShortName()+": ip link set dev "+older.HostInterface+" down")
	c := adviceOn(l, a, ips[0])
	c.runFirstCommand(l, a)
}

// On a bridge the node's own neighbour entry decides who gets its packets; the pods' packets do not
// change that. Without an entry the receiver is unknown, and the query leaves no entry behind.
func TestAdviceBridged(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	ip := n.IPv4(5)
	mac := []byte{2, 0, 0, 0, 0, 5} // that of both
	l.Pod(n, "older", lab.PodOptions{Addrs: []netip.Addr{ip}, MAC: mac})
	newer := l.Pod(n, "newer", lab.PodOptions{Addrs: []netip.Addr{ip}, MAC: mac})
	a := l.Agent(n)
	w := l.Watch(a)
	_, err := w.WaitConfirmed(ip, patience)
	l.Do(err)
	for range 2 {
		c := adviceOn(l, a, ip)
		if c.newerNetns() != "" || c.Advice.Unknown != "found-at-start" || c.nextHops() != n.ShortName()+": unknown" {
			t.Errorf("packets go %q, advice %+v", c.nextHops(), *c.Advice)
		}
	}
	checkOutput(l, a, []string{"conflicts"}, "they were there before the agent", "has no neighbour entry", "Remove one of them, on node "+n.ShortName()+":")
	// The bridge has learned the MAC from the last frame.
	l.Do(n.Ping(ip))
	l.Eventually("lead to the newer", func() error {
		if err := newer.Ping(n.IPv4(1)); err != nil {
			return err
		}
		c := adviceOn(l, a, ip)
		if want := n.ShortName() + ": " + newer.Name; c.nextHops() != want {
			return fmt.Errorf("packets go %q, want %q", c.nextHops(), want)
		}
		if first := c.removal(0); first.Command == "" || first.Because != "" {
			return fmt.Errorf("advice %+v", *c.Advice)
		}
		return nil
	})
	checkOutput(l, a, []string{"conflicts"}, "Remove one of them, on node "+n.ShortName()+":")
}

// A node keeps sending to the MAC of a pod on a bridge after the pod is gone. The advice has the
// command that makes it find the other pod.
func TestAdviceFlush(t *testing.T) {
	for name, address := range map[string]func(n *lab.Node) netip.Addr{
		"IPv4": func(n *lab.Node) netip.Addr { return n.IPv4(5) },
		"IPv6": func(n *lab.Node) netip.Addr { return n.IPv6(5) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lab.NewT(t)
			n := l.Node("")
			ip := address(n)
			l.Pod(n, "older", lab.PodOptions{Addrs: []netip.Addr{ip}})
			a := l.Agent(n)
			w := l.Watch(a)
			newer := l.Pod(n, "newer", lab.PodOptions{Addrs: []netip.Addr{ip}})
			mac, err := newer.MAC(newer.Interface)
			l.Do(err)
			bridge, err := n.Netlink().LinkByName(lab.Bridge)
			l.Do(err)
			entry := &netlink.Neigh{
				LinkIndex: bridge.Attrs().Index, IP: ip.AsSlice(), HardwareAddr: mac, State: netlink.NUD_REACHABLE,
			}
			_, err = w.WaitConfirmed(ip, patience)
			l.Do(err)
			var first removal
			l.Eventually("advice", func() error {
				// The pods' answers to the agent may change the entry again.
				if err := n.Netlink().NeighSet(entry); err != nil {
					return err
				}
				c := adviceOn(l, a, ip)
				if first = c.removal(0); c.Holders[first.Holder].Netns != newer.Name || len(first.Then) != 1 {
					return fmt.Errorf("advice %+v, packets go %q", *c.Advice, c.nextHops())
				}
				return nil
			})
			flush := first.Then[0]
			if want := fmt.Sprintf("ip neigh flush to %v dev %s", ip, lab.Bridge); flush.Command != want || flush.On != n.ShortName() {
				t.Fatalf("then %+v, want %q", flush, want)
			}
			l.Do(runCommand(n, first.Command), n.Netlink().NeighSet(entry), runCommand(n, flush.Command))
			known, err := n.Netlink().NeighList(bridge.Attrs().Index, netlink.FAMILY_ALL)
			l.Do(err)
			if slices.ContainsFunc(known, func(e netlink.Neigh) bool { return e.IP.Equal(ip.AsSlice()) && slices.Equal(e.HardwareAddr, mac) }) {
				t.Errorf("the node still sends packets for %v to the one that was removed: %v", ip, known)
			}
			l.Do(n.Ping(ip))
		})
	}
}

// Each of two nodes reports its own route, whichever agent is queried.
func TestAdviceAcrossNodes(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	agents := l.Cluster(3)
	n1, n2 := agents[0].Node, agents[1].Node
	ip := n1.RoutedIPv4(5)
	older := l.Pod(n1, "older", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
	_, err := agents[0].Client.WaitBinding(within(l, patience), ip, func(b lab.Binding) bool {
		// Within a second neither is newer, and a third node's view of both is not exact.
		return time.Since(b.FirstSeen) > 3*time.Second
	})
	l.Do(err)
	w := l.Watch(agents[1])
	newer := l.Pod(n2, "newer", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
	_, err = w.WaitConfirmed(ip, patience)
	l.Do(err)
	// The queried agent may know only one of them so far.
	advised := func(a *lab.Agent, want string, flags ...string) (c advised) {
		l.Helper()
		l.Eventually("who is newer and where packets go", func() error {
			if c = adviceOn(l, a, ip, flags...); c.nextHops() != want || c.newerNetns() != newer.Name {
				return fmt.Errorf("on %s packets go %q, advice %+v; want %q", a.Node.ShortName(), c.nextHops(), *c.Advice, want)
			}
			return nil
		})
		return c
	}
	own := map[*lab.Agent]string{agents[0]: older.Name, agents[1]: newer.Name}
	for a, pod := range own {
		advised(a, a.Node.ShortName()+": "+pod)
	}
	name := func(i int) string { return agents[i].Node.ShortName() }
	want := fmt.Sprintf("%s: node %s, %s: %s, %s: %s", name(2), name(0), name(0), older.Name, name(1), newer.Name)
	c := advised(agents[2], want, "--cluster")
	checkOutput(l, agents[2], []string{"explain", ip.String()},
		"from "+name(0)+" to "+older.Name+", from "+name(1)+" to "+newer.Name+".", "Remove the newer one, on node "+name(1)+": ip link")
	c.runFirstCommand(l, agents...)
}

// A real runtime reports when it made its pods, also to an agent that starts later. The commands have
// the newer pod's name, and the older one's sandbox.
func TestAdviceByName(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	k := newKube(l, map[string]any{"type": "ptp"})
	l.Do(k.Start(t.Context()))
	older := k.run("older", 1)[0]
	l.Do(k.WipeStore())
	newer := k.run("newer", 1)[0]
	if !slices.Equal(older.IPs, newer.IPs) {
		t.Fatalf("%v and %v: the store was not wiped", older.IPs, newer.IPs)
	}
	a := l.Agent(k.Node, "--cri-socket", k.Socket)
	ip := older.IPs[0]
	confirmed := func() (c advised) {
		l.Eventually("names", func() error {
			if c = adviceOn(l, a, ip); c.Advice.By != "created" {
				return fmt.Errorf("advice %+v on %+v", *c.Advice, c.Holders)
			}
			return nil
		})
		return c
	}
	c := confirmed()
	if pod := c.Holders[*c.Advice.Newer].Pod; pod.Name != "newer-0" || !c.Holders[0].FoundAtStart || !c.Holders[1].FoundAtStart {
		t.Errorf("advice %+v on %+v", *c.Advice, c.Holders)
	}
	// Of the routes that ptp makes for both the kernel has the one that it likes. The agent may
	// have seen the newer one first.
	other := c.Holders[1-*c.Advice.Newer]
	routes, err := k.Node.Netlink().RouteGet(ip.AsSlice())
	l.Do(err)
	dark := "shop/older-0"
	if device, err := k.Node.Netlink().LinkByIndex(routes[0].LinkIndex); err != nil || device.Attrs().Name == other.Interface {
		l.Do(err)
		dark = "shop/newer-0"
	}
	checkOutput(l, a, []string{"explain", ip.String()},
		"shop/newer-0 is the newer holder by its sandbox, made ", " after that of shop/older-0; who had the address first is not known.",
		dark+" gets no traffic from "+k.Node.ShortName()+".",
		"kubectl -n shop delete pod --field-selector metadata.name=newer-0,spec.nodeName="+k.Node.ShortName(),
		"or replace that one, too, on node "+k.Node.ShortName()+": crictl rmp -f "+older.ID[:13])
	// Another agent knows as much.
	l.Do(a.Kill())
	a = l.Successor(a)
	if again := confirmed(); again.newerNetns() != c.newerNetns() {
		t.Errorf("after a restart %s is newer, before it was %s", again.newerNetns(), c.newerNetns())
	}
}

// A sandbox without a process keeps its netns and its address: it is the one to remove, whichever is
// newer.
func TestAdviceStopped(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	k := newKube(l, map[string]any{"type": "bridge", "bridge": "cbr0", "isGateway": true})
	l.Do(k.Start(t.Context()))
	left := k.run("left", 1)[0]
	a := l.Agent(k.Node, "--cri-socket", k.Socket)
	l.Do(k.KillPod(t.Context(), left), k.WipeStore())
	runs := k.run("runs", 1)[0]
	ip := left.IPs[0]
	if !slices.Equal(left.IPs, runs.IPs) {
		t.Fatalf("%v and %v: the store was not wiped", left.IPs, runs.IPs)
	}
	l.Eventually("advice", func() error {
		c := adviceOn(l, a, ip)
		first, last := c.removal(0), c.removal(1)
		pod := c.Holders[first.Holder].Pod
		if pod == nil || pod.Name != "left-0" || !pod.Stopped || pod.Sandbox != left.ID[:13] || first.Because != "stopped" ||
			first.Command != "crictl rmp -f "+pod.Sandbox || first.On != k.Node.ShortName() || !strings.Contains(last.Command, "metadata.name=runs-0,spec.nodeName="+k.Node.ShortName()) {
			return fmt.Errorf("advice %+v on %+v", *c.Advice, c.Holders)
		}
		return nil
	})
	checkOutput(l, a, []string{"explain", ip.String()},
		"shop/left-0 is left over: the runtime says that its sandbox has stopped.",
		"Remove the one that is left over, on node "+k.Node.ShortName()+": crictl rmp -f "+left.ID[:13])
	l.Do(k.RemovePod(t.Context(), left)) // what crictl does
	ended(l, a, ip)
}
