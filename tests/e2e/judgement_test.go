package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// judged is a conflict with its judgement and where packets go, as `dupip conflicts -o json` has it.
type judged struct {
	lab.Judged
	Routes []struct {
		Node, To, ToNode, Device string
		Holder                   *int
	}
}

// judgedOn waits until an address is a confirmed conflict that is judged by all facts.
func judgedOn(t *lab.T, a *lab.Agent, ip netip.Addr, flags ...string) (c judged) {
	t.Helper()
	t.Eventually("the judgement", func() error {
		out, err := a.CLI(t.Context(), append([]string{"conflicts", "-o", "json", "--ip", ip.String()}, flags...)...)
		if err != nil {
			return err
		}
		var doc struct{ Conflicts []judged }
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			return err
		}
		if len(doc.Conflicts) != 1 || doc.Conflicts[0].State != "confirmed" || doc.Conflicts[0].Judgement == nil || doc.Conflicts[0].Judgement.Cause == "coming" {
			return fmt.Errorf("no conflict with a judgement: %s", out)
		}
		c = doc.Conflicts[0]
		return nil
	})
	return c
}

// verdicts is what is decided about the holders, in the order in which they have to go.
func (c judged) verdicts() string {
	var all []string
	for _, h := range c.Judgement.Holders {
		b := c.Holders[h.Holder]
		name := b.Netns
		if b.Pod != nil {
			name = b.Pod.Name
		}
		all = append(all, strings.TrimSpace(name+" "+h.Verdict+" "+h.Reason))
	}
	return strings.Join(all, ", ")
}

// undecided returns an error unless the facts do not decide: then no command removes anybody unasked.
func (c judged) undecided() error {
	j := c.Judgement
	if j.Cause != "unknown" || j.Confidence != "open" || j.Orders() || strings.Count(c.verdicts(), " open") != len(c.Holders) {
		return fmt.Errorf("it is decided: %+v on %+v", *j, c.Holders)
	}
	return nil
}

// ifReserved is the step for the answer that the address is reserved for a holder, which is named so.
func (c judged) ifReserved(holder string) lab.Step {
	i := slices.IndexFunc(c.Judgement.Steps, func(s lab.Step) bool { return s.If == "If it is reserved for "+holder+" only" })
	if i < 0 {
		return lab.Step{}
	}
	return c.Judgement.Steps[i]
}

// follow carries out the steps on their nodes, with the answer that the address is reserved for a holder, and waits for the end of the
// conflict.
func (c judged) follow(t *lab.T, holder string, agents ...*lab.Agent) {
	t.Helper()
	shells := t.Shells(nil)
	for _, a := range agents {
		shells.Add(a.Node.ShortName(), a.Node, nil)
	}
	answer := c.ifReserved(holder).If
	ran := t.Follow(c.Judgement.Steps, lab.Follower{Run: shells.Run, Answer: func(s lab.Step, _ []lab.Ran) bool { return s.If == answer }})
	t.Do(lab.Undone(ran))
	if !slices.ContainsFunc(ran, func(r lab.Ran) bool { return r.If != "" }) {
		t.Fatal(fmt.Errorf("no step is for the answer that %s stays: %+v", holder, c.Judgement.Steps))
	}
	for _, a := range agents {
		ended(t, a, c.IP)
	}
}

// nextHops are the next hops of the routes, in the order of the document.
func (c judged) nextHops() string {
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

// Of two routed pods the newer has the route, as with the ptp plugin, and the older gets no packets. Nobody knows who was given the
// address: the text says which one is newer, but that does not decide.
func TestJudgementRouted(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	ips := []netip.Addr{n.RoutedIPv4(5), n.RoutedIPv6(5)}
	older := l.Pod(n, "older", lab.PodOptions{Style: lab.Routed, Addrs: ips})
	a := l.Agent(n)
	_, err := a.Client.WaitBinding(within(l, patience), ips[1], func(b lab.Binding) bool {
		return time.Since(b.FirstSeen) > 2*time.Second // within a second neither is newer
	})
	l.Do(err)
	w := l.Watch(a)
	newer := l.Pod(n, "newer", lab.PodOptions{Style: lab.Routed, Addrs: ips})
	for _, ip := range ips {
		_, err := w.WaitConfirmed(ip, patience)
		l.Do(err)
		c := judgedOn(l, a, ip)
		l.Do(c.undecided())
		if !c.Holders[0].FoundAtStart || c.Holders[1].FoundAtStart {
			t.Errorf("holders %+v", c.Holders)
		}
		if want := n.ShortName() + ": " + newer.Name; c.nextHops() != want {
			t.Errorf("packets to %v go %q, want %q", ip, c.nextHops(), want)
		}
		for stays, goes := range map[*lab.Pod]*lab.Pod{older: newer, newer: older} {
			if s := c.ifReserved("netns " + stays.Name); !strings.Contains(s.Command, goes.Name) || strings.Contains(s.Command, stays.Name) || s.Node != n.ShortName() {
				t.Errorf("if %s stays: %+v", stays.Name, s)
			}
		}
	}
	dark := older.Name + " gets no traffic from " + n.ShortName() + "."
	last := "netns " + newer.Name + " came last, first seen "
	for _, args := range [][]string{{"conflicts"}, {"conflicts", "-o", "wide"}, {"explain", ips[1].String()}} {
		checkOutput(l, a, args, dark, last, "but age alone does not decide.",
			"If it is reserved for netns "+older.Name+" only: Take the address from netns "+newer.Name, "ip addr flush to "+ips[1].String())
	}
	judgedOn(l, a, ips[0]).follow(l, "netns "+older.Name, a)
	l.Do(n.Ping(ips[0]))
}

// On a bridge the node's own neighbour entry decides who gets its packets; the pods' packets do not
// change that. Without an entry the receiver is unknown, and the query leaves no entry behind.
func TestJudgementBridged(t *testing.T) {
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
		c := judgedOn(l, a, ip)
		l.Do(c.undecided())
		// They were there before the agent.
		if strings.Contains(c.Judgement.Text, "came last") || c.nextHops() != n.ShortName()+": unknown" {
			t.Errorf("packets go %q, %s", c.nextHops(), c.Judgement.Text)
		}
	}
	checkOutput(l, a, []string{"conflicts"}, "has no neighbour entry", "It is not known which of netns ")
	// The bridge has learned the MAC from the last frame.
	l.Do(n.Ping(ip))
	l.Eventually("lead to the newer", func() error {
		if err := newer.Ping(n.IPv4(1)); err != nil {
			return err
		}
		c := judgedOn(l, a, ip)
		if want := n.ShortName() + ": " + newer.Name; c.nextHops() != want {
			return fmt.Errorf("packets go %q, want %q", c.nextHops(), want)
		}
		return c.undecided()
	})
	checkOutput(l, a, []string{"conflicts"}, "Packets to it go from "+n.ShortName()+" itself to netns "+newer.Name)
}

// Each of two nodes reports its own route, whichever agent is queried.
func TestJudgementAcrossNodes(t *testing.T) {
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
	name := func(i int) string { return agents[i].Node.ShortName() }
	last := fmt.Sprintf("netns %s on %s came last, first seen ", newer.Name, name(1))
	// The queried agent may know only one of them so far.
	judged := func(a *lab.Agent, want string, flags ...string) (c judged) {
		l.Helper()
		l.Eventually("who is newer and where packets go", func() error {
			if c = judgedOn(l, a, ip, flags...); c.nextHops() != want || !strings.Contains(c.Judgement.Text, last) {
				return fmt.Errorf("on %s packets go %q, %+v; want %q", a.Node.ShortName(), c.nextHops(), *c.Judgement, want)
			}
			return c.undecided()
		})
		return c
	}
	own := map[*lab.Agent]string{agents[0]: older.Name, agents[1]: newer.Name}
	for a, pod := range own {
		judged(a, a.Node.ShortName()+": "+pod)
	}
	want := fmt.Sprintf("%s: node %s, %s: %s, %s: %s", name(2), name(0), name(0), older.Name, name(1), newer.Name)
	c := judged(agents[2], want, "--cluster")
	olderOn := fmt.Sprintf("netns %s on %s", older.Name, name(0))
	checkOutput(l, agents[2], []string{"explain", ip.String()},
		"from "+name(0)+" to netns "+older.Name, "from "+name(1)+" to netns "+newer.Name, "If it is reserved for "+olderOn+" only: Take the address from netns "+newer.Name)
	c.follow(l, olderOn, agents...)
}

// A real runtime reports the pods that it made, also to an agent that starts later. Both were given the address, and no book is read: no
// order comes unasked, and each answer has the command for the other pod. An agent that reads the book decides.
func TestJudgementByName(t *testing.T) {
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
	named := func() (c judged) {
		l.Eventually("names", func() error {
			c = judgedOn(l, a, ip)
			for stays, goes := range map[*cri.Pod]*cri.Pod{older: newer, newer: older} {
				s := c.ifReserved(fmt.Sprintf("shop/%s (sandbox %s)", stays.Name, stays.ID[:13]))
				if !strings.Contains(s.Command, `"uid":"`+goes.UID+`"`) || !strings.Contains(s.Command, "kubectl delete --raw /api/v1/namespaces/shop/pods/"+goes.Name+" ") {
					return fmt.Errorf("if %s stays: %+v; %+v on %+v", stays.Name, s, *c.Judgement, c.Holders)
				}
			}
			return c.undecided()
		})
		return c
	}
	c := named()
	if !c.Holders[0].FoundAtStart || !c.Holders[1].FoundAtStart {
		t.Errorf("holders %+v", c.Holders)
	}
	// Of the routes that ptp makes for both the kernel has the one that it likes. The agent may
	// have seen the newer one first.
	routes, err := k.Node.Netlink().RouteGet(ip.AsSlice())
	l.Do(err)
	device, err := k.Node.Netlink().LinkByIndex(routes[0].LinkIndex)
	l.Do(err)
	dark := "shop/older-0"
	if slices.ContainsFunc(c.Holders, func(b lab.Binding) bool { return b.Interface == device.Attrs().Name && b.Pod.Name == "older-0" }) {
		dark = "shop/newer-0"
	}
	checkOutput(l, a, []string{"explain", ip.String()}, "were each given the address by the network plugin of their node.", dark+" gets no traffic from "+k.Node.ShortName()+".")
	// Another agent knows as much.
	l.Do(a.Kill())
	a = l.Successor(a)
	named()
	l.Do(a.Kill())
	a = l.Successor(a, "--cni-conf-dir", k.ConfDir())
	l.Eventually("the book", func() error {
		c = judgedOn(l, a, ip)
		first := c.Judgement.Steps[0]
		if c.verdicts() != "older-0 remove not-reserved, newer-0 keep reserved" || c.Judgement.Cause != "reservation-lost" || c.Judgement.Confidence != "certain" ||
			!c.Judgement.Orders() || !strings.Contains(first.Command, `"uid":"`+older.UID+`"`) || !strings.Contains(first.Command, "/pods/older-0 ") {
			return fmt.Errorf("%s: %+v", c.verdicts(), *c.Judgement)
		}
		return nil
	})
}

// A sandbox without a process keeps its netns and its address: it is the one to remove. The node keeps sending to its MAC on the bridge
// after it is gone; a step makes it find the other pod.
func TestJudgementStopped(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	k := newKube(l, map[string]any{"type": "bridge", "bridge": "cbr0", "isGateway": true})
	l.Do(k.Start(t.Context()))
	left := k.run("left", 1)[0]
	var mac net.HardwareAddr
	l.Do(withEth0(left, func(_ *netlink.Handle, eth0 netlink.Link) error {
		mac = eth0.Attrs().HardwareAddr
		return nil
	}))
	a := l.Agent(k.Node, "--cri-socket", k.Socket)
	l.Do(k.KillPod(t.Context(), left), k.WipeStore())
	runs := k.run("runs", 1)[0]
	if !slices.Equal(left.IPs, runs.IPs) {
		t.Fatalf("%v and %v: the store was not wiped", left.IPs, runs.IPs)
	}
	bridge, err := k.Node.Netlink().LinkByName("cbr0")
	l.Do(err)
	stale := func(ip netip.Addr) error {
		return k.Node.Netlink().NeighSet(&netlink.Neigh{LinkIndex: bridge.Attrs().Index, IP: ip.AsSlice(), HardwareAddr: mac, State: netlink.NUD_REACHABLE})
	}
	var kubernetes cri.Kubernetes
	kubernetes.AddNode(k.Node.ShortName(), k.Runtime)
	shells := kubernetes.Shells(l, nil)
	var removal lab.Step
	var flushes []lab.Step
	for _, ip := range left.IPs {
		l.Eventually("the judgement", func() error {
			// The pods' answers to the agent may change the entry again.
			if err := stale(ip); err != nil {
				return err
			}
			c := judgedOn(l, a, ip)
			if steps := c.Judgement.Steps; c.verdicts() != "left-0 remove stopped, runs-0 keep last" || c.Judgement.Cause != "left-over" || c.Judgement.Confidence != "certain" || len(steps) != 3 {
				return fmt.Errorf("%s: %+v on %+v, packets go %q", c.verdicts(), *c.Judgement, c.Holders, c.nextHops())
			}
			removal = c.Judgement.Steps[0]
			if want := "crictl rmp -f " + left.ID[:13]; removal.Command != want || removal.Node != k.Node.ShortName() || removal.If != "" {
				return fmt.Errorf("first %+v, want %q", removal, want)
			}
			if s := c.Judgement.Steps[1]; s.If != "If that fails" || !strings.Contains(s.Command, "ip netns del "+left.NetnsName()) {
				return fmt.Errorf("then %+v", s)
			}
			flush := c.Judgement.Steps[2]
			if want := fmt.Sprintf("ip neigh flush to %v dev cbr0", ip); flush.Command != want || flush.Node != k.Node.ShortName() || flush.If != "" {
				return fmt.Errorf("last %+v, want %q", flush, want)
			}
			flushes = append(flushes, flush)
			return nil
		})
		checkOutput(l, a, []string{"explain", ip.String()},
			"shop/left-0 is left over: the runtime says that its sandbox has stopped, and no process runs in it.", "Remove shop/left-0, which is left over", removal.Command)
	}
	_, err = shells.Run(removal)
	l.Do(err)
	for i, ip := range left.IPs {
		l.Do(stale(ip))
		_, err := shells.Run(flushes[i])
		l.Do(err)
		known, err := k.Node.Netlink().NeighList(bridge.Attrs().Index, netlink.FAMILY_ALL)
		l.Do(err)
		if slices.ContainsFunc(known, func(e netlink.Neigh) bool { return e.IP.Equal(ip.AsSlice()) && slices.Equal(e.HardwareAddr, mac) }) {
			t.Errorf("the node still sends packets for %v to the one that was removed: %v", ip, known)
		}
		l.Do(k.Node.Ping(ip))
		ended(l, a, ip)
	}
	l.Do(kubernetes.Alive(t.Context(), runs))
}
