// Package vip has real programs that move an address from node to node, and the agents of these nodes.
//
// tests/scenarios plays by hand what such programs do to addresses. tests/cluster has one that elects its leader at an API server.
package vip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// vips are the virtual addresses: of VRRP's IPv4 and of its IPv6.
var vips = lab.IPs("192.168.77.200", "fd00:77::200")

const (
	// foundWithin is how long after the take-over of the second node the agents of both know: --vip-overlap is 10 s.
	foundWithin = 20 * time.Second
	// quietFor is how long after the commands nothing may collide again.
	quietFor = 30 * time.Second
)

// nodes are nodes with agents and keepalived, the first one with the highest priority.
type nodes struct {
	*lab.T
	agents  []*lab.Agent
	watches []*lab.Watch
	daemons []*keepalived
	shells  *lab.Shells
}

// start starts nodes, agents with their defaults, and keepalived on each, and waits until the first node has the addresses.
func start(t *testing.T, vmac bool) *nodes {
	t.Helper()
	t.Parallel()
	n := &nodes{T: lab.NewT(t)}
	if vmac {
		if has, err := n.HasDevices(lab.Macvlan); err != nil || !has {
			t.Skip("this machine has no macvlan devices: ", err)
		}
	}
	n.agents = n.Cluster(3)
	n.shells = n.Shells(map[string]lab.Program{"journalctl": func([]string, string) (string, error) {
		var logs strings.Builder
		for _, k := range n.daemons {
			log, _ := k.journalctl(nil, "")
			logs.WriteString(log)
		}
		return logs.String(), nil
	}})
	n.Cleanup(func() {
		if n.Failed() {
			n.explain()
		}
	})
	for i, a := range n.agents {
		n.watches = append(n.watches, n.Watch(a))
		k := newKeepalived(n.T, a.Node, 150-50*i, vmac)
		n.daemons = append(n.daemons, k)
		n.shells.Add(a.Node.ShortName(), a.Node, map[string]lab.Program{"systemctl": k.systemctl, "journalctl": k.journalctl})
		k.start()
		n.Eventually("a first master", func() error { return n.has(0) })
	}
	n.only(0)
	return n
}

// explain prints what the agents know of the virtual addresses.
func (n *nodes) explain() {
	for _, a := range n.agents {
		for _, ip := range vips {
			out, err := a.CLI(context.WithoutCancel(n.Context()), "explain", ip.String())
			n.Logf("%s: %v\n%s", a.Node.ShortName(), err, out)
		}
	}
}

// has returns an error unless a node has all virtual addresses.
func (n *nodes) has(i int) error {
	had, err := holds(n.agents[i].Node)
	if err == nil && len(had) != len(vips) {
		err = fmt.Errorf("%s has %v", n.agents[i].Node.ShortName(), had)
	}
	return err
}

// only waits until one node has the virtual addresses, and no other has any.
func (n *nodes) only(want int) {
	n.Helper()
	n.Eventually("the addresses are on "+n.agents[want].Node.ShortName()+" only", func() error {
		err := n.has(want)
		for i, a := range n.agents {
			had, failed := holds(a.Node)
			if err = errors.Join(err, failed); i != want && len(had) > 0 {
				err = errors.Join(err, fmt.Errorf("%s has %v", a.Node.ShortName(), had))
			}
		}
		return err
	})
}

// holds returns which of the virtual addresses a node has.
func holds(n *lab.Node) (had []netip.Addr, err error) {
	all, err := lab.Dump(func() ([]netlink.Addr, error) { return n.Netlink().AddrList(nil, unix.AF_UNSPEC) })
	for _, a := range all {
		if ip, _ := netip.AddrFromSlice(a.IP); slices.Contains(vips, ip.Unmap()) {
			had = append(had, ip.Unmap())
		}
	}
	return had, err
}

// found waits until the agents of two nodes have confirmed the conflicts of all virtual addresses, and name who has made them. since is when the
// second one had them.
func (n *nodes) found(since time.Time, holders ...int) {
	n.Helper()
	var names []string
	for _, i := range holders {
		names = append(names, n.agents[i].Node.ShortName())
	}
	for _, ip := range vips {
		for _, i := range holders {
			e, err := n.watches[i].Wait(lab.Patience(foundWithin)-time.Since(since), func(e lab.Event) bool {
				return e.Type == "confirmed" && e.Conflict.IP == ip && e.Received.After(since)
			})
			n.Do(err)
			took := e.Received.Sub(since)
			n.Logf("%s: %v is confirmed %.1f s after the second node had it", n.agents[i].Node.ShortName(), ip, took.Seconds())
			var had []string
			for _, h := range e.Conflict.Holders {
				had = append(had, h.Node)
			}
			slices.Sort(had)
			if e.Conflict.Scope != "node-node" || !slices.Equal(had, names) || took > lab.Patience(foundWithin) {
				n.Errorf("%v after %v: it is %s of %v, want node-node of %v", ip, took, e.Conflict.Scope, had, names)
			}
		}
	}
}

// order waits for the judgement about an address, by keepalived, and for the same in what people are told.
func (n *nodes) order(i int, ip netip.Addr) lab.Judged {
	n.Helper()
	c := n.Judged(n.agents[i], ip, func(j *lab.Judgement) bool { return strings.Contains(j.Text, "eepalived probably gave it to them") })
	n.Eventually("keepalived in what people read", func() error {
		out, err := n.agents[2].CLI(n.Context(), "conflicts", "--cluster", "--ip", ip.String()) // that of a node which has it not
		if err == nil && !strings.Contains(out, "keepalived") {
			err = fmt.Errorf("it is:\n%s", out)
		}
		return err
	})
	return c
}

// ends waits until no agent has an open conflict of the virtual addresses.
func (n *nodes) ends() {
	n.Helper()
	began := time.Now()
	n.Eventually("the end of the conflicts", func() error {
		for _, a := range n.agents {
			if open, err := a.Client.Conflicts(n.Context(), false); err != nil || len(open) > 0 {
				return errors.Join(err, fmt.Errorf("at %s there are %+v", a.Node.ShortName(), open))
			}
		}
		return nil
	})
	n.Logf("they have ended after %.1f s", time.Since(began).Seconds())
}

// follow carries out, to the letter, what a node says about the virtual addresses: on the node that should not have them.
func (n *nodes) follow(asked, wrong int) {
	n.Helper()
	var all []lab.Judged
	for _, ip := range vips {
		all = append(all, n.order(asked, ip))
	}
	since := time.Now()
	for _, c := range all {
		n.carryOut(c, wrong)
	}
	n.Logf("carried out in %.1f s", time.Since(since).Seconds())
}

func (n *nodes) carryOut(c lab.Judged, wrong int) {
	n.Helper()
	name := n.agents[wrong].Node.ShortName()
	n.Do(lab.Undone(n.Follow(c.Judgement.Steps, lab.Follower{Run: n.shells.Run, Answer: func(s lab.Step, _ []lab.Ran) bool {
		if s.Node != name || !strings.Contains(s.If, name) {
			return false
		}
		had, err := holds(n.agents[wrong].Node)
		n.Do(err)
		return !strings.Contains(s.If, "still has it") || slices.Contains(had, c.IP)
	}})))
}

// quiet fails if anything is confirmed within quietFor, or was since.
func (n *nodes) quiet(since time.Time, window time.Duration) {
	n.Helper()
	until := time.Now().Add(window)
	for i, w := range n.watches {
		if e, err := w.Wait(max(0, time.Until(until)), func(e lab.Event) bool { return e.Type == "confirmed" && e.Received.After(since) }); err == nil {
			n.Errorf("at %s: %s", n.agents[i].Node.ShortName(), lab.FormatEvents([]lab.Event{e}))
		}
	}
	n.Eventually("no finding is left", func() error {
		for _, a := range n.agents {
			all, _, err := a.Client.Audit(n.Context())
			if err == nil && len(all) > 0 {
				err = fmt.Errorf("%s has %+v", a.Node.ShortName(), all)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Two of three nodes do not hear each other's VRRP.
func TestSplit(t *testing.T) {
	t.Parallel()
	for name, vmac := range map[string]bool{"on the uplink": false, "with VRRP's MAC": true} {
		t.Run(name, func(t *testing.T) {
			n := start(t, vmac)
			heal, since := n.split()
			n.found(since, 0, 1)
			n.order(0, vips[0])
			heal()
			n.only(0)
			n.ends()
			if vmac {
				return
			}
			// Again, and somebody reads on the second node what to do.
			heal, since = n.split()
			n.found(since, 0, 1)
			n.follow(1, 1)
			n.only(0)
			n.ends()
			n.quiet(time.Now(), quietFor)
			heal()
		})
	}
}

// split blocks VRRP between the first two nodes, and returns when both have the addresses.
func (n *nodes) split() (heal func(), since time.Time) {
	n.Helper()
	a, b, began := n.agents[0].Node, n.agents[1].Node, time.Now()
	heal = n.InjectFaults(lab.Fault{From: a, To: b, Protocol: vrrp}, lab.Fault{From: b, To: a, Protocol: vrrp})
	n.Eventually("a second master", func() error { return n.has(1) })
	n.Logf("a second master %.1f s after the split", time.Since(began).Seconds())
	return heal, time.Now()
}

// The master hangs, keeps its addresses, and another one takes over.
func TestFrozen(t *testing.T) {
	n := start(t, false)
	freeze := func() {
		n.Do(n.daemons[0].signal(unix.SIGSTOP))
		n.Eventually("a second master", func() error { return n.has(1) })
		n.found(time.Now(), 0, 1)
	}
	freeze()
	n.order(1, vips[1])
	n.Do(n.daemons[0].signal(unix.SIGCONT))
	n.only(0)
	n.ends()
	freeze()
	n.follow(0, 0)
	n.only(1)
	n.ends()
	n.quiet(time.Now(), quietFor)
}

// failovers are how often the addresses move, in CI and before a release.
func failovers() int {
	if testneeds.IsRelease() {
		return 20
	}
	return 4
}

// The addresses move in all orderly and disorderly ways, and nothing is confirmed.
func TestFailOver(t *testing.T) {
	t.Parallel()
	for name, vmac := range map[string]bool{"on the uplink": false, "with VRRP's MAC": true} {
		t.Run(name, func(t *testing.T) {
			if vmac {
				testneeds.Release(t)
			}
			n := start(t, vmac)
			began := time.Now()
			first := n.daemons[0]
			ways := []struct {
				name     string
				to, back func() // the second node
			}{
				{"the master is stopped, and started", func() { n.Do(first.stop()) }, first.start},
				{"the master is killed, and started", func() { n.Do(first.kill()) }, first.start},
				{"priorities change", func() { first.reload(60) }, func() { first.reload(150) }},
			}
			for i := 0; i < failovers(); i += 2 {
				way, since := ways[i/2%len(ways)], time.Now()
				way.to()
				n.Eventually("the next master", func() error { return n.has(1) })
				to := time.Since(since)
				way.back()
				n.only(0)
				n.Logf("%s: to the second node after %.1f s, and back after %.1f s", way.name, to.Seconds(), time.Since(since).Seconds())
			}
			n.quiet(began, 15*time.Second) // a conflict takes --vip-overlap
		})
	}
}
