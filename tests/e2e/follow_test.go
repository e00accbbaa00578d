package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// Each of these tests makes a situation in which an order about a conflict was once wrong, and carries out what dupip says now, to the
// letter. Then the conflict is over, who was given the address lives, and the same order hits nothing an hour later.

// obeyed is a node on which orders are carried out.
type obeyed struct {
	*booked
	kubernetes cri.Kubernetes
	shells     *lab.Shells
}

func obey(t *testing.T, o cri.Options) *obeyed {
	t.Helper()
	b := &obeyed{booked: newBookedBy(t, o)}
	b.kubernetes.AddNode(b.Runtime.Node.ShortName(), b.Runtime)
	b.shells = b.kubernetes.Shells(b.T, nil)
	return b
}

// follow carries out the first order about an address, after which these pods live, and returns it.
func (o *obeyed) follow(ip netip.Addr, answer func(lab.Step, []lab.Ran) bool, live ...*cri.Pod) lab.Judged {
	o.Helper()
	c, since := o.Ordered(o.agent, ip), time.Now()
	o.Do(lab.Undone(o.Follow(c.Judgement.Steps, lab.Follower{Run: o.shells.Run, Answer: answer})))
	o.Ended(since, o.alive(live...), []netip.Addr{ip}, o.agent.Client)
	o.reaches(live...)
	return c
}

// reaches fails unless the node reaches the pods.
func (o *obeyed) reaches(pods ...*cri.Pod) {
	o.Helper()
	for _, p := range pods {
		if err := o.Runtime.Node.Ping(p.IPs[0]); err != nil {
			o.Error(fmt.Errorf("%s lives, and its node does not reach it: %w", p.Name, err))
		}
	}
}

// alive returns an error unless the pods run, with the address that each was given.
func (o *obeyed) alive(pods ...*cri.Pod) func() error {
	return func() error {
		if err := o.kubernetes.Alive(o.Context(), pods...); err != nil {
			return err
		}
		for _, p := range pods {
			all, err := o.agent.Client.Bindings(o.Context(), p.IPs[0])
			if err != nil || !slices.ContainsFunc(all, func(b lab.Binding) bool { return b.Netns == p.NetnsName() }) {
				return errors.Join(fmt.Errorf("%s has not %v any more: there is %+v", p.Name, p.IPs[0], all), err)
			}
		}
		return nil
	}
}

// repeat carries out an order that is an hour old, whatever its conditions, and fails if one of these pods, or a successor, ends.
func (o *obeyed) repeat(c lab.Judged, live ...*cri.Pod) {
	o.Helper()
	before := len(o.kubernetes.Successors())
	for _, p := range live {
		_, err := o.agent.Client.WaitBinding(within(o.T, patience), p.IPs[0], func(b lab.Binding) bool { return b.Netns == p.NetnsName() })
		o.Do(err)
	}
	o.Follow(c.Judgement.Steps, lab.Follower{Run: o.shells.Run, Answer: func(lab.Step, []lab.Ran) bool { return true }})
	o.Do(o.alive(live...)())
	o.reaches(live...) // the agent may not have noticed yet that an interface is down or an address gone
	if after := len(o.kubernetes.Successors()); after != before {
		o.Error("the old order has hit a pod")
	}
}

// again makes a pod with the name of one that has ended, as a StatefulSet does.
func (o *obeyed) again(p *cri.Pod) *cri.Pod {
	o.Helper()
	p, err := o.RunPod(o.Context(), cri.PodOptions{Namespace: p.Namespace, Name: p.Name, UID: lab.NewUUID()})
	o.Do(err)
	return p
}

// free removes the reservation of an address, which host-local gives out next.
func (o *obeyed) free(ip netip.Addr) {
	o.Helper()
	file := o.reservation(ip)
	o.Do(os.Remove(file), os.WriteFile(filepath.Join(filepath.Dir(file), "last_reserved_ip.0"), []byte(ip.Prev().String()), 0o600))
}

// gets makes a pod that is given an address.
func (o *obeyed) gets(name string, ip netip.Addr) *cri.Pod {
	o.Helper()
	p := o.run(name)
	if p.IPs[0] != ip {
		o.Fatal(fmt.Errorf("%s was given %v instead of %v", name, p.IPs[0], ip))
	}
	return p
}

// The runtime has forgotten a sandbox, whose netns has no process, and still veth and address. The next pod gets the address.
func TestFollowForgotten(t *testing.T) {
	t.Parallel()
	o := obey(t, hostLocal("10.81.1.0/24"))
	forgotten := o.run("slurmdbd-old")
	o.Do(o.KillPod(t.Context(), forgotten), o.Forget(t.Context(), forgotten))
	o.free(forgotten.IPs[0])
	next := o.gets("slurmdbd-new", forgotten.IPs[0])
	c := o.follow(forgotten.IPs[0], nil, next)
	o.repeat(c, next, o.again(forgotten))
}

// DEL fails for ever, so that the netns of a stopped sandbox stays.
func TestFollowStuck(t *testing.T) {
	t.Parallel()
	options := hostLocal("10.81.2.0/24")
	options.Plugins = append(options.Plugins, map[string]any{"type": "stuck"})
	options.Scripts = map[string]string{"stuck": `[ "$CNI_COMMAND" = DEL ] && echo '{"cniVersion":"1.0.0","code":100,"msg":"stuck"}' && exit 1
exec "$(dirname "$0")/tuning"
`}
	o := obey(t, options)
	left := o.run("left")
	o.Do(o.KillPod(t.Context(), left))
	o.free(left.IPs[0])
	runs := o.gets("runs", left.IPs[0])
	c := o.follow(left.IPs[0], lab.Failed, runs)
	o.repeat(c, runs, o.again(left))
}

// A pod is given an address and has it reserved. 4 s later another interface of the node gets it with a lifetime, as by DHCP.
func TestFollowLifetime(t *testing.T) {
	t.Parallel()
	o := obey(t, hostLocal("10.81.3.0/24"))
	n := o.Runtime.Node
	o.Do(n.AddSegment("eth1"))
	pod := o.run("web")
	ip := pod.IPs[0]
	add := fmt.Sprintf("ip addr add %v/24 dev eth1", ip)
	_, err := o.agent.Client.WaitBinding(within(o.T, patience), ip, func(b lab.Binding) bool {
		return time.Since(b.FirstSeen) > 4*time.Second // by the agent, which may see it late
	})
	o.Do(err, runCommand(n, add+" valid_lft 3600 preferred_lft 3600"))
	c := o.follow(ip, nil, pod)
	// It is configured for good by somebody else by now.
	o.Do(runCommand(n, add))
	o.repeat(c, pod)
	o.Do(runCommand(n, fmt.Sprintf("ip addr del %v/24 dev eth1", ip)))
}

// A pod that was given an address flushes it and has the next one instead, which is then given to another pod.
func TestFollowTaken(t *testing.T) {
	t.Parallel()
	o := obey(t, hostLocal("10.81.4.0/24"))
	taker := o.run("taker")
	ip := taker.IPs[0].Next()
	o.Do(runCommand(o.Runtime.Node, "nsenter --net="+taker.Netns+" ip addr flush dev eth0"), addAddress(taker, ip))
	_, err := o.agent.Client.WaitBinding(within(o.T, patience), ip, func(b lab.Binding) bool { return b.Pod != nil && b.Pod.Name == "taker" })
	o.Do(err)
	victim := o.gets("victim", ip)
	c := o.follow(ip, nil, victim)
	o.repeat(c, victim, o.again(taker))
}

// The reservation of a running pod moves to a newcomer.
func TestFollowLostReservation(t *testing.T) {
	t.Parallel()
	o := obey(t, hostLocal("10.81.5.0/24"))
	web := o.run("web")
	o.free(web.IPs[0])
	cart := o.gets("cart", web.IPs[0])
	c := o.follow(web.IPs[0], nil, cart)
	o.repeat(c, cart, o.again(web))
}

// Two network namespaces that are no pods have one address. Who has to go, only people know.
func TestFollowNoPods(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	shells := l.Shells(nil)
	shells.Add(n.ShortName(), n, nil)
	ip := n.IPv4(5)
	stays := l.Pod(n, "stays", lab.PodOptions{Addrs: lab.IPs(ip.String())})
	goes := l.Pod(n, "goes", lab.PodOptions{Addrs: lab.IPs(ip.String())})
	c := l.Judged(a, ip, func(j *lab.Judgement) bool { return j.Cause == "unknown" })
	if c.Judgement.Orders() {
		t.Errorf("an order: %+v", c.Judgement)
	}
	has := func(p *lab.Pod) error {
		return p.Exec(func() error {
			all, err := net.InterfaceAddrs()
			if err == nil && !slices.ContainsFunc(all, func(a net.Addr) bool { return strings.HasPrefix(a.String(), ip.String()+"/") }) {
				err = fmt.Errorf("%s has %v", p.ShortName(), all)
			}
			return err
		})
	}
	f := lab.Follower{Run: shells.Run, Answer: func(s lab.Step, _ []lab.Ran) bool {
		return strings.HasSuffix(s.If, " "+stays.Name+" only")
	}}
	since := time.Now()
	l.Do(lab.Undone(l.Follow(c.Judgement.Steps, f)))
	l.Ended(since, func() error { return has(stays) }, []netip.Addr{ip}, a.Client)

	// Its netns has the path of the one that is gone. Both were there at a time, so their inodes differ.
	later := l.Pod(n, "later", lab.PodOptions{Addrs: lab.IPs(ip.String())})
	l.Do(goes.Delete(), stays.Delete(), os.WriteFile(goes.Path(), nil, 0o600), unix.Mount(later.Path(), goes.Path(), "", unix.MS_BIND, ""))
	t.Cleanup(func() { _, _ = unix.Unmount(goes.Path(), unix.MNT_DETACH), os.Remove(goes.Path()) })
	l.Follow(c.Judgement.Steps, f)
	l.Do(has(later), n.Ping(ip))
}
