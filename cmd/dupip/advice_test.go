package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/agent/api"
)

// newerBy is advice on a conflict of two pods, of which the second is the newer one.
func newerBy(by string, seconds float64, first, second string) *api.Advice {
	elder, newer := 0, 1
	return &api.Advice{
		Newer: &newer, Than: &elder, By: by, AfterSeconds: seconds,
		Remove: []api.Removal{{Holder: 1, Because: "newer", Command: second}, {Holder: 0, Command: first}},
	}
}

func toHolder(node string, n int, device string) api.Route {
	return api.Route{Node: node, To: "holder", Holder: &n, Device: device}
}

// twoPods is a confirmed conflict on two nodes with advice.
func twoPods(ip string) api.Conflict {
	c := between(ip, holder("n1", "web-0", ip, time.Hour), holder("n2", "web-1", ip, time.Minute))
	c.Advice = newerBy("created", 3540, "kubectl -n shop delete pod web-0", "kubectl -n shop delete pod web-1")
	c.Routes = []api.Route{toHolder("n1", 0, "vethweb-0")}
	return c
}

func TestPrintAdvice(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(c *api.Conflict)
		want   string
	}{
		{"newer, and dark", func(*api.Conflict) {}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  Packets to it go from n1 to shop/web-0. shop/web-1 gets no traffic from n1.
  Remove the newer one:
    kubectl -n shop delete pod web-1
`},
		{"each node leads to its own", func(c *api.Conflict) {
			c.Routes = append(c.Routes, toHolder("n2", 1, "vethweb-1"))
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  Packets to it go from n1 to shop/web-0, from n2 to shop/web-1. Remove the
  newer one:
    kubectl -n shop delete pod web-1
`},
		{"all lead to one", func(c *api.Conflict) {
			c.Routes = append(c.Routes, api.Route{Node: "n2", To: "node", ToNode: "n1"}, toHolder("n3", 0, "vethweb-0"))
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  Packets to it go from n1 and n3 to shop/web-0, from n2 to node n1. shop/web-1
  gets no traffic from n1, n2 and n3. Remove the newer one:
    kubectl -n shop delete pod web-1
`},
		{"over a bridge", func(c *api.Conflict) {
			c.Holders[1].Node = "n1"
			c.Routes[0].Device = "cni0"
		}, `
10.0.0.1: shop/web-1 is the newer holder: made 59m after shop/web-0. Packets to
  it go from n1 itself to shop/web-0 by cni0. shop/web-1 gets no traffic from n1
  itself. Remove the newer one:
    kubectl -n shop delete pod web-1
`},
		{"over a bridge to the one that is to go", func(c *api.Conflict) {
			c.Holders[1].Node = "n1"
			c.Routes = []api.Route{toHolder("n1", 1, "cni0")}
			c.Advice.Remove[0].Then = []api.Flush{{Command: "ip neigh flush to 10.0.0.1 dev cni0", On: "n1", Device: "cni0"}}
		}, `
10.0.0.1: shop/web-1 is the newer holder: made 59m after shop/web-0. Packets to
  it go from n1 itself to shop/web-1 by cni0. shop/web-0 gets no traffic from n1
  itself. Remove the newer one:
    kubectl -n shop delete pod web-1
  Then, on node n1, which like the pods there goes on sending to the removed one
  for a while:
    ip neigh flush to 10.0.0.1 dev cni0
`},
		{"no neighbour entry", func(c *api.Conflict) {
			c.Routes = []api.Route{{Node: "n1", To: "unknown", Device: "cni0"}}
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  Packets to it go from n1 into cni0, which has no neighbour entry for it now.
  Remove the newer one:
    kubectl -n shop delete pod web-1
`},
		{"off the node, nowhere, into something", func(c *api.Conflict) {
			c.Routes = []api.Route{{Node: "n1", To: "away", Device: "eth0", Gateway: "192.0.2.1"}, {Node: "n2", To: "nowhere"}, {Node: "n3", To: "device", Device: "ovn0"}}
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  Packets to it go from n1 off the node by eth0 via 192.0.2.1, from n2 nowhere,
  for lack of a route, from n3 into ovn0. Remove the newer one:
    kubectl -n shop delete pod web-1
`},
		{"no pods", func(c *api.Conflict) {
			c.Holders[0].Pod, c.Holders[1].Pod = nil, nil
			c.Routes = nil
			c.Advice = newerBy("firstSeen", 12, "ip link set dev vetha down", "ip link set dev vethb down")
			c.Advice.Remove[0].On, c.Advice.Remove[1].On = "n2", "n1"
		}, `
10.0.0.1: cni-web-1 on n2 is the newer holder: first seen 12s after cni-web-0 on
  n1. Remove the newer one, on node n2:
    ip link set dev vethb down
`},
		{"only the sandboxes tell", func(c *api.Conflict) {
			c.Routes = nil
			c.Holders[0].FoundAtStart, c.Holders[1].FoundAtStart = true, true
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder by its sandbox, made 59m after
  that of shop/web-0 on n1; who had the address first is not known. Remove the
  newer one:
    kubectl -n shop delete pod web-1
`},
		{"the elder was there before", func(c *api.Conflict) {
			c.Routes = nil
			c.Holders[0].FoundAtStart = true
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  Remove the newer one:
    kubectl -n shop delete pod web-1
`},
		{"not known", func(c *api.Conflict) {
			c.Routes = nil
			c.Holders[0].FoundAtStart, c.Holders[1].FoundAtStart = true, true
			c.Advice = &api.Advice{Unknown: "found-at-start", Remove: []api.Removal{{Holder: 0, Command: "kubectl -n shop delete pod web-0"}, {Holder: 1}}}
		}, `
10.0.0.1: Which is newer is not known: they were there before their agents.
  Remove one of them:
    kubectl -n shop delete pod web-0
    No command: shop/web-1 on n2 has no name that is fit for one.
`},
		{"not known, and one is dark", func(c *api.Conflict) {
			c.Holders[1].Node, c.Holders[1].FoundAtStart = "n1", true
			c.Advice = &api.Advice{Unknown: "found-at-start", Remove: []api.Removal{{Holder: 1, Because: "dark", Command: "kubectl -n shop delete pod web-1"}, {Holder: 0}}}
		}, `
10.0.0.1: Which is newer is not known: shop/web-1 was there before its agent.
  Packets to it go from n1 to shop/web-0. shop/web-1 gets no traffic from n1.
  Remove the one without traffic:
    kubectl -n shop delete pod web-1
`},
		{"both have stopped", func(c *api.Conflict) {
			c.Routes = nil
			c.Advice.Remove[0].Because, c.Advice.Remove[1].Because = "stopped", "stopped"
		}, `
10.0.0.1: 2 of 2 holders are left over: the runtime says that their sandboxes
  have stopped. Remove them:
    kubectl -n shop delete pod web-1
    kubectl -n shop delete pod web-0
`},
		{"the newer has stopped", func(c *api.Conflict) {
			c.Routes = nil
			c.Advice.Remove[0].Because, c.Advice.Remove[0].Command, c.Advice.Remove[0].On = "stopped", "crictl rmp -f 0123456789abc", "n2"
		}, `
10.0.0.1: shop/web-1 on n2 is left over: the runtime says that its sandbox has
  stopped. Remove the one that is left over, on node n2:
    crictl rmp -f 0123456789abc
`},
		{"another-order", func(c *api.Conflict) {
			c.Routes = nil
			c.Advice = &api.Advice{Unknown: "another-order", Remove: []api.Removal{{Holder: 0, Command: "a"}, {Holder: 1, Command: "b"}}}
		}, `
10.0.0.1: Which is newer is not known: their sandboxes were made in another
  order than they were seen with the address. Remove one of them:
    a
    b
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := twoPods("10.0.0.1")
				test.change(&c)
				printed(t, func(out io.Writer) { printAdvice(out, api.Conflicts{Conflicts: []api.Conflict{c}}) },
					"\n\nWhat to do:"+test.want+`IPAM may give an address out again while its other holder has it: replace that
  one, too, or repair IPAM. "dupip explain IP" has the commands.
`)
			})
		})
	}
}

// Of these nothing is to be given out again.
func TestPrintAdviceOnOtherConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		only := func(c api.Conflict) api.Conflicts { return api.Conflicts{Conflicts: []api.Conflict{c}} }
		none := only(twoPods("10.0.0.1"))
		none.Conflicts[0].State = "resolved"
		printed(t, func(out io.Writer) { printAdvice(out, none) }, "")
		printed(t, func(out io.Writer) { printAdvice(out, api.Conflicts{}) }, "")

		suspected := twoPods("10.0.0.1")
		suspected.State, suspected.Advice = "suspected", nil
		printed(t, func(out io.Writer) { printAdvice(out, only(suspected)) }, `

What to do:
10.0.0.1: suspected, not confirmed. Wait.
`)
		self := twoPods("10.0.0.1")
		self.Holders[0] = api.Binding{IP: "10.0.0.1", Network: "default", Node: "n1", Interface: "eth0", Netns: "host", Evidence: "host"}
		self.Advice = &api.Advice{Unknown: "host", Remove: []api.Removal{{Holder: 1, Because: "pod", Command: "kubectl -n shop delete pod web-1"}, {Holder: 0}}}
		self.Routes = []api.Route{toHolder("n1", 0, ""), {Node: "n2", To: "node", ToNode: "n1"}}
		printed(t, func(out io.Writer) { printAdvice(out, only(self)) }, `

What to do:
10.0.0.1: It is an address of node n1 itself. Packets to it go from n1 to
  itself, from n2 to node n1. shop/web-1 gets no traffic from n1 and n2. Remove
  the pod:
    kubectl -n shop delete pod web-1
`)
		// The one that runs has the address by the books.
		over := twoPods("10.0.0.1")
		over.Routes = nil
		over.Advice.Remove = []api.Removal{
			{Holder: 0, Because: "stopped", Command: "crictl rmp -f 0123456789abc", On: "n1"}, {Holder: 1, Because: "newer", Command: "kubectl"},
		}
		printed(t, func(out io.Writer) { printAdvice(out, only(over)) }, `

What to do:
10.0.0.1: shop/web-0 on n1 is left over: the runtime says that its sandbox has
  stopped. Remove the one that is left over, on node n1:
    crictl rmp -f 0123456789abc
`)
		// Of one that does not answer nobody knows whether it lives.
		lost := twoPods("10.0.0.1")
		lost.Advice = &api.Advice{Unknown: "unreachable", Held: []int{0}}
		printed(t, func(out io.Writer) { printAdvice(out, only(lost)) }, `

What to do:
10.0.0.1: n1 does not answer: wait until it does or its holders are forgotten (5
  minutes).
`)
		three := lost
		three.Holders = append(slices.Clone(lost.Holders), holder("n3", "web-2", "10.0.0.1", time.Second))
		three.Advice = &api.Advice{Unknown: "unreachable", Held: []int{0, 2}}
		printed(t, func(out io.Writer) { printStoryAdvice(out, &three) }, `

What to do:
  n1 and n3 do not answer: wait until they do or their holders are forgotten (5
  minutes).
`)
		clone := twoPods("10.0.0.1")
		clone.Holders[0].Boot, clone.Holders[1].Boot = "02345678-aaaa", "12345678-aaaa"
		clone.Holders[1].Node, clone.Holders[1].Pod = "n1", clone.Holders[0].Pod
		left := clone.Holders[0]
		left.Node, left.Pod = "n4", &api.Pod{Namespace: "shop", Name: "web-0", UID: left.Pod.UID, Stopped: true}
		clone.Holders = append(clone.Holders, left, holder("n3", "web-2", "10.0.0.1", time.Second))
		clone.Advice = &api.Advice{Unknown: "two-nodes", Held: []int{0, 1}}
		printed(t, func(out io.Writer) { printAdvice(out, only(clone)) }, `

What to do:
10.0.0.1: n1 (boot 02345678) and n1 (boot 12345678) run the same pod: one is a
  clone, or a machine that was replaced and still runs. Shut down the one that
  should not run; "dupip nodes" has their addresses.
`)
		printed(t, func(out io.Writer) { printStoryAdvice(out, &clone) }, `

What to do:
  n1 (boot 02345678) and n1 (boot 12345678) run the same pod: one is a clone, or
  a machine that was replaced and still runs. Shut down the one that should not
  run; "dupip nodes" has their addresses.
`)
		// A pod that was replaced, on a node of which there are two.
		twice := twoPods("10.0.0.1")
		for n := range twice.Holders {
			b := &twice.Holders[n]
			b.Node, b.Boot = "n1", fmt.Sprint(n, "2345678-aaaa")
			b.Pod = &api.Pod{Namespace: "shop", Name: "web-0", UID: fmt.Sprint(n)}
		}
		twice.Advice.Remove = []api.Removal{
			{Holder: 0, Because: "replaced", Command: "ip link set dev vethweb-0 down", On: "n1 (boot 02345678)", Address: "10.9.0.1"},
			{Holder: 1, Because: "newer", Command: "ip link set dev vethweb-1 down", On: "n1 (boot 12345678)"},
		}
		twice.Routes = nil
		printed(t, func(out io.Writer) { printAdvice(out, only(twice)) }, `

What to do:
10.0.0.1: shop/web-0 on n1 (boot 02345678) is left over: its pod's name belongs
  to a later sandbox. Remove the one that is left over, on node n1 (boot
  02345678, 10.9.0.1):
    ip link set dev vethweb-0 down
n1 (boot 02345678) and n1 (boot 12345678) are nodes of one name: a machine that
  was replaced and still runs, or some made from one image. Shut down the one
  that should not run; "dupip nodes" has their addresses.
`)
		printed(t, func(out io.Writer) { printConflicts(out, []api.Conflict{twice}, false, false) }, `
IP        STATE      SINCE  NODE         HOLDER      INTERFACE  SEEN
10.0.0.1  confirmed  20s    n1/02345678  shop/web-0  vethweb-0  60m
                            n1/12345678  shop/web-0  vethweb-1  60s
`)
	})
}

// Of many conflicts each has a line, as long as there are few; whole ranges have one for all.
func TestPrintAdviceOnMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var document api.Conflicts
		for n := range 5 {
			document.Conflicts = append(document.Conflicts, twoPods(fmt.Sprint("10.0.0.", 8+n)))
		}
		document.Conflicts[1].Advice.Remove[0].On = "n2"
		document.Conflicts[2].Advice = &api.Advice{Unknown: "together", Remove: []api.Removal{{Holder: 0, Command: "a"}, {Holder: 1, Command: "b"}}}
		document.Conflicts[3].Advice = nil
		const caution = `IPAM may give an address out again while its other holder has it: replace that
  one, too, or repair IPAM. "dupip explain IP" has the commands.
`
		printed(t, func(out io.Writer) { printAdvice(out, document) }, `

What to do:
Remove these first:
  10.0.0.8, 10.0.0.12  kubectl -n shop delete pod web-1
  10.0.0.9             on node n2: kubectl -n shop delete pod web-1
"dupip explain IP" for 1 address more and for 1 address of which it is not known
  which holder is newer.
`+caution)
		lost := api.Conflicts{Conflicts: slices.Clone(document.Conflicts)}
		for _, n := range []int{1, 4} {
			lost.Conflicts[n].Advice = &api.Advice{Unknown: "unreachable", Held: []int{1}}
		}
		printed(t, func(out io.Writer) { printAdvice(out, lost) }, `

What to do:
Remove these first:
  10.0.0.8  kubectl -n shop delete pod web-1
10.0.0.9, 10.0.0.12: n2 does not answer: wait until it does or its holders are
  forgotten (5 minutes).
"dupip explain IP" for 1 address more and for 1 address of which it is not known
  which holder is newer.
`+caution)
		dual := api.Conflicts{Conflicts: slices.Clone(document.Conflicts)}
		for n := range dual.Conflicts {
			// Pods 8, 9 and 12 have a second address, and are found over a bridge.
			c := dual.Conflicts[n]
			if c.Advice != nil && c.Advice.Newer != nil {
				advice := *c.Advice
				advice.Remove = slices.Clone(advice.Remove)
				advice.Remove[0].Command += fmt.Sprint("-", n)
				advice.Remove[0].Then = []api.Flush{{Command: "ip neigh flush to " + c.IP + " dev cni0", On: "n2", Device: "cni0"}}
				dual.Conflicts[n].Advice, c.Advice = &advice, &advice
			}
			c.IP = fmt.Sprint("fd5f:5801:f9ef:a93e::", 8+n)
			if c.Advice != nil && c.Advice.Newer != nil {
				advice := *c.Advice
				advice.Remove = slices.Clone(advice.Remove)
				advice.Remove[0].Then = []api.Flush{{Command: "ip neigh flush to " + c.IP + " dev cni0", On: "n2", Device: "cni0"}}
				c.Advice = &advice
			}
			dual.Conflicts = append(dual.Conflicts, c)
		}
		printed(t, func(out io.Writer) { printAdvice(out, dual) }, `

What to do:
Remove these first:
  10.0.0.8, fd5f:5801:f9ef:a93e::8    kubectl -n shop delete pod web-1-0
  10.0.0.9, fd5f:5801:f9ef:a93e::9, on node n2:
      kubectl -n shop delete pod web-1-1
  10.0.0.12, fd5f:5801:f9ef:a93e::12  kubectl -n shop delete pod web-1-4
Then, because nodes and pods on a bridge send to the removed ones for a while:
  on node n2: ip neigh flush to 10.0.0.8 dev cni0
  on node n2: ip neigh flush to 10.0.0.9 dev cni0
  on node n2: ip neigh flush to 10.0.0.12 dev cni0
  on node n2: ip neigh flush to fd5f:5801:f9ef:a93e::8 dev cni0
  and 2 more: "dupip explain IP" has them.
"dupip explain IP" for 2 addresses more and for 2 addresses of which it is not
  known which holder is newer.
`+caution)
		for n := range 250 {
			c := twoPods(fmt.Sprintf("10.1.%d.%d", n/200, n%200))
			if n > 0 {
				c.Advice.Remove[0].Command += fmt.Sprint("-", n)
			}
			document.Conflicts = append(document.Conflicts, c)
			c.State = "suspected"
			document.Conflicts = append(document.Conflicts, c)
		}
		var out bytes.Buffer
		printAdvice(&out, document)
		fits(t, out.String())
		if lines := strings.Count(out.String(), "\n"); lines != 4+maxCommands+4 || !strings.Contains(out.String(), "for 242 addresses more") || !strings.Contains(out.String(), "250 addresses are suspected") {
			t.Errorf("%d lines:\n%s", lines, out.String())
		}
		document.Pairs = []api.Pair{{Nodes: []string{"n1", "n2"}, Addresses: 255}}
		document.Conflicts = document.Conflicts[:6]
		for n := range document.Conflicts[:5] {
			document.Conflicts[n].Holders[1].Node = "n2"
		}
		document.Conflicts[5].Holders[1].Node = "n3"
		printed(t, func(out io.Writer) { printAdvice(out, document) }, `

What to do:
n1 and n2 share a range: probably one pod CIDR was given out twice, or one node
  is a clone. Compare their .spec.podCIDR, and drain one.
10.1.0.0: shop/web-1 on n3 is the newer holder: made 59m after shop/web-0 on n1.
  Packets to it go from n1 to shop/web-0. shop/web-1 gets no traffic from n1.
  Remove the newer one:
    kubectl -n shop delete pod web-1
`+caution)
		many := []api.Pair{{Nodes: []string{"n1", "n2"}, Addresses: 9}, {Nodes: []string{"n2", "n3"}, Addresses: 9}}
		printed(t, func(out io.Writer) { printAdvice(out, api.Conflicts{Pairs: many}) }, `

What to do:
n1, n2 and n3 share ranges: probably one pod CIDR was given out more than once,
  or nodes were cloned. Compare their .spec.podCIDR, and drain those that have
  another's.
`)
		clones := []api.Pair{{Nodes: []string{"n1 (boot 02345678)", "n1 (boot 12345678)"}, Addresses: 9}}
		printed(t, func(out io.Writer) { printAdvice(out, api.Conflicts{Pairs: clones}) }, `

What to do:
n1 (boot 02345678) and n1 (boot 12345678) share a range: a node and its clone,
  or one that was replaced and still runs. Shut one down; "dupip nodes" has
  their addresses.
`)
	})
}

func TestPrintStoryAdvice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := twoPods("10.0.0.1")
		printed(t, func(out io.Writer) { printStoryAdvice(out, &c) }, `

What to do:
  shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1. Packets
  to it go from n1 to shop/web-0. shop/web-1 gets no traffic from n1. Remove the
  newer one:
    kubectl -n shop delete pod web-1
  IPAM may give the address out again while shop/web-0 on n1 has it: repair
  IPAM, or replace that one, too:
    kubectl -n shop delete pod web-0
`)
		third := holder("n3", "web-2", "10.0.0.1", time.Second)
		three := c
		three.Holders = append(three.Holders[:2:2], third)
		newer, than := 2, 1
		three.Advice = &api.Advice{Newer: &newer, Than: &than, By: "firstSeen", AfterSeconds: 59, Remove: []api.Removal{
			{Holder: 2, Because: "newer", Command: "c"}, {Holder: 1, Command: "b"}, {Holder: 0, Command: "a"},
		}}
		three.Routes = nil
		printed(t, func(out io.Writer) { printStoryAdvice(out, &three) }, `

What to do:
  shop/web-2 on n3 is the newest of 3 holders: first seen 59s after shop/web-1
  on n2. Remove all but one, the newest first:
    c
    b
  IPAM may give the address out again while shop/web-0 on n1 has it: repair
  IPAM, or replace that one, too:
    a
`)
		three.Advice = &api.Advice{Unknown: "together", Remove: three.Advice.Remove}
		three.Advice.Remove[0].Because = ""
		printed(t, func(out io.Writer) { printStoryAdvice(out, &three) }, `

What to do:
  Which is newer is not known: they came within a second. Remove all but one of
  them:
    c
    b
    a
  IPAM may give the address out again while the other has it: replace that one,
  too, or repair IPAM.
`)
		c.State = "suspected"
		printed(t, func(out io.Writer) { printStoryAdvice(out, &c) }, `

What to do: wait. It is suspected, not confirmed.
`)
		c.State = "resolved"
		printed(t, func(out io.Writer) { printStoryAdvice(out, &c) }, "")
		printed(t, func(out io.Writer) { printStoryAdvice(out, nil) }, "")
	})
}

// Where some commands are for nodes, it is said of each, on a line of its own: people paste lines,
// and nodes name themselves.
func TestCommandsOfSeveralNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := twoPods("10.0.0.1")
		c.Routes = nil
		c.Advice = &api.Advice{Unknown: "together", Remove: []api.Removal{
			{Holder: 0, Command: "ip link set dev veth0 down", On: strings.Repeat("long-", 20) + "n1;reboot"}, {Holder: 1, Command: "kubectl -n shop delete pod web-1"},
		}}
		var out bytes.Buffer
		printStoryAdvice(&out, &c)
		fits(t, out.String())
		_, got, _ := strings.Cut(out.String(), "Remove one of them:\n")
		got, _, _ = strings.Cut(got, "  IPAM")
		if want := clip("  on node "+c.Advice.Remove[0].On+":", screen) + "\n    ip link set dev veth0 down\n  anywhere:\n    kubectl -n shop delete pod web-1\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		for n := range 4 {
			more := c
			more.IP = fmt.Sprint("fd5f:5801:f9ef:a93e:16d3:e3fc:a5ab:9d4", n)
			more.Advice = newerBy("created", 9, "a", "ip link set dev veth0 down")
			more.Advice.Remove[0].On = []string{"n1", strings.Repeat("long-", 4) + "n1", strings.Repeat("long-", 20) + "n1", ""}[n]
			more.Advice.Remove[0].Then = []api.Flush{{Command: "ip neigh flush to 10.0.0.1 dev cni0", Device: "cni0", On: more.Advice.Remove[0].On}}
			conflicts := []api.Conflict{more, more, more, more}
			out.Reset()
			printAdvice(&out, api.Conflicts{Conflicts: conflicts})
			fits(t, out.String())
			if strings.Count(out.String(), "ip link set dev veth0 down\n") != 1 || strings.Count(out.String(), "ip neigh flush to 10.0.0.1 dev cni0\n") != 1 {
				t.Errorf("commands are not whole:\n%s", out.String())
			}
		}
	})
}

// Commands are whole, whatever the names are, and the shell takes them as they stand.
func TestLongCommands(t *testing.T) {
	long := strings.Repeat("payments-", 7) + "worker-0"
	for command, want := range map[string]string{
		"kubectl -n shop delete pod " + long:                   "    kubectl -n shop delete pod \\\n      " + long + "\n",
		"kubectl -n shop delete pod web-0":                     "    kubectl -n shop delete pod web-0\n",
		"kubectl -n " + long[:40] + " delete pod " + long[:30]: "    kubectl -n " + long[:40] + " delete pod \\\n      " + long[:30] + "\n",
	} {
		printed(t, func(out io.Writer) { printCommand(out, "    ", command) }, want)
	}
}

// A reason that this version does not know is no node that does not answer.
func TestHeldForAnotherReason(t *testing.T) {
	c := api.Conflict{Holders: []api.Binding{{Node: "n1"}, {Node: "n2"}}, Advice: &api.Advice{Unknown: "of tomorrow"}}
	if got, want := hold(c), "Nothing is to be removed now."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
