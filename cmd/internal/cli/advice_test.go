package cli

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// newerBy is advice on a conflict of two pods, of which the second is the newer one.
func newerBy(by string, seconds float64, first, second string) *document.Advice {
	elder, newer := 0, 1
	return &document.Advice{
		Newer: &newer, Than: &elder, By: by, AfterSeconds: seconds,
		Remove: []document.Removal{{Holder: 1, Because: "newer", Command: second}, {Holder: 0, Command: first}},
	}
}

func toHolder(node string, n int, device string) document.Route {
	return document.Route{Node: node, To: "holder", Holder: &n, Device: device}
}

// twoPods is a confirmed conflict on two nodes with advice.
func twoPods(ip string) document.Conflict {
	c := between(ip, holder("n1", "web-0", ip, time.Hour), holder("n2", "web-1", ip, time.Minute))
	c.Advice = newerBy("created", 3540, "kubectl -n shop delete pod web-0", "kubectl -n shop delete pod web-1")
	c.Routes = []document.Route{toHolder("n1", 0, "vethweb-0")}
	return c
}

// only is a list of one conflict.
func only(c document.Conflict) document.Conflicts {
	return document.Conflicts{Conflicts: []document.Conflict{c}}
}

// noticesSwap fails the test unless the advice changes when the first two holders are exchanged: who reads it must never
// remove the other one.
func noticesSwap(t *testing.T, c document.Conflict) {
	t.Helper()
	p, before := printer(80)
	q, after := printer(80)
	p.Advice(only(c))
	c.Holders = slices.Clone(c.Holders)
	c.Holders[0], c.Holders[1] = c.Holders[1], c.Holders[0]
	q.Advice(only(c))
	if before.String() == after.String() {
		t.Errorf("the same advice with the holders exchanged: %s", before.String())
	}
}

func TestPrintAdvice(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(c *document.Conflict)
		want   string
	}{
		{"newer, and dark", func(*document.Conflict) {}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  Packets to it go from n1 to shop/web-0. shop/web-1 gets no traffic from n1.
  Remove the newer one:
    kubectl -n shop delete pod web-1
`},
		{"each node leads to its own", func(c *document.Conflict) {
			c.Routes = append(c.Routes, toHolder("n2", 1, "vethweb-1"))
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  Packets to it go from n1 to shop/web-0, from n2 to shop/web-1. Remove the
  newer one:
    kubectl -n shop delete pod web-1
`},
		{"all lead to one", func(c *document.Conflict) {
			c.Routes = append(c.Routes, document.Route{Node: "n2", To: "node", ToNode: "n1"}, toHolder("n3", 0, "vethweb-0"))
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  Packets to it go from n1 and n3 to shop/web-0, from n2 to node n1. shop/web-1
  gets no traffic from n1, n2 and n3. Remove the newer one:
    kubectl -n shop delete pod web-1
`},
		{"over a bridge", func(c *document.Conflict) {
			c.Holders[1].Node = "n1"
			c.Routes[0].Device = "cni0"
		}, `
10.0.0.1: shop/web-1 is the newer holder: made 59m after shop/web-0. Packets to
  it go from n1 itself to shop/web-0 by cni0. shop/web-1 gets no traffic from n1
  itself. Remove the newer one:
    kubectl -n shop delete pod web-1
`},
		{"over a bridge to the one that is to go", func(c *document.Conflict) {
			c.Holders[1].Node = "n1"
			c.Routes = []document.Route{toHolder("n1", 1, "cni0")}
			c.Advice.Remove[0].Then = []document.Flush{{Command: "ip neigh flush to 10.0.0.1 dev cni0", On: "n1", Device: "cni0"}}
		}, `
10.0.0.1: shop/web-1 is the newer holder: made 59m after shop/web-0. Packets to
  it go from n1 itself to shop/web-1 by cni0. shop/web-0 gets no traffic from n1
  itself. Remove the newer one:
    kubectl -n shop delete pod web-1
  Then, on node n1, which like the pods there goes on sending to the removed one
  for a while:
    ip neigh flush to 10.0.0.1 dev cni0
`},
		{"no neighbour entry", func(c *document.Conflict) {
			c.Routes = []document.Route{{Node: "n1", To: "unknown", Device: "cni0"}}
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  Packets to it go from n1 into cni0, which has no neighbour entry for it now.
  Remove the newer one:
    kubectl -n shop delete pod web-1
`},
		{"off the node, nowhere, into something", func(c *document.Conflict) {
			c.Routes = []document.Route{{Node: "n1", To: "away", Device: "eth0", Gateway: netip.MustParseAddr("192.0.2.1")}, {Node: "n2", To: "nowhere"}, {Node: "n3", To: "device", Device: "ovn0"}}
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  Packets to it go from n1 off the node by eth0 via 192.0.2.1, from n2 nowhere,
  for lack of a route, from n3 into ovn0. Remove the newer one:
    kubectl -n shop delete pod web-1
`},
		{"no pods", func(c *document.Conflict) {
			c.Holders[0].Pod, c.Holders[1].Pod = nil, nil
			c.Routes = nil
			c.Advice = newerBy("firstSeen", 12, "ip link set dev vetha down", "ip link set dev vethb down")
			c.Advice.Remove[0].On, c.Advice.Remove[1].On = "n2", "n1"
		}, `
10.0.0.1: cni-web-1 on n2 is the newer holder: first seen 12s after cni-web-0 on
  n1. Remove the newer one, on node n2:
    ip link set dev vethb down
`},
		{"only the sandboxes tell", func(c *document.Conflict) {
			c.Routes = nil
			c.Holders[0].FoundAtStart, c.Holders[1].FoundAtStart = true, true
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder by its sandbox, made 59m after
  that of shop/web-0 on n1; who had the address first is not known. Remove the
  newer one:
    kubectl -n shop delete pod web-1
`},
		{"the elder was there before", func(c *document.Conflict) {
			c.Routes = nil
			c.Holders[0].FoundAtStart = true
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  Remove the newer one:
    kubectl -n shop delete pod web-1
`},
		{"not known", func(c *document.Conflict) {
			c.Routes = nil
			c.Holders[0].FoundAtStart, c.Holders[1].FoundAtStart = true, true
			c.Advice = &document.Advice{Unknown: "found-at-start", Remove: []document.Removal{{Holder: 0, Command: "kubectl -n shop delete pod web-0"}, {Holder: 1}}}
		}, `
10.0.0.1: It is not known which is newer: they were there before their agents.
  Remove one of them:
    kubectl -n shop delete pod web-0
    No command: shop/web-1 on n2 has no name that is fit for one.
`},
		{"not known, and one is dark", func(c *document.Conflict) {
			c.Holders[1].Node, c.Holders[1].FoundAtStart = "n1", true
			c.Advice = &document.Advice{Unknown: "found-at-start", Remove: []document.Removal{{Holder: 1, Because: "dark", Command: "kubectl -n shop delete pod web-1"}, {Holder: 0}}}
		}, `
10.0.0.1: It is not known which is newer: shop/web-1 was there before its agent.
  Packets to it go from n1 to shop/web-0. shop/web-1 gets no traffic from n1.
  Remove the one without traffic:
    kubectl -n shop delete pod web-1
`},
		{"both have stopped", func(c *document.Conflict) {
			c.Routes = nil
			c.Advice.Remove[0].Because, c.Advice.Remove[1].Because = "stopped", "stopped"
		}, `
10.0.0.1: 2 of 2 holders are left over: the runtime says that their sandboxes
  have stopped. Remove them:
    kubectl -n shop delete pod web-1
    kubectl -n shop delete pod web-0
`},
		{"the newer has stopped", func(c *document.Conflict) {
			c.Routes = nil
			c.Advice.Remove[0].Because, c.Advice.Remove[0].Command, c.Advice.Remove[0].On = "stopped", "crictl rmp -f 0123456789abc", "n2"
		}, `
10.0.0.1: shop/web-1 on n2 is left over: the runtime says that its sandbox has
  stopped. Remove the one that is left over, on node n2:
    crictl rmp -f 0123456789abc
`},
		{"another-order", func(c *document.Conflict) {
			c.Routes = nil
			c.Advice = &document.Advice{Unknown: "another-order", Remove: []document.Removal{{Holder: 0, Command: "a"}, {Holder: 1, Command: "b"}}}
		}, `
10.0.0.1: It is not known which is newer: their sandboxes were made in another
  order than they were seen with the address. Remove one of them:
    a
    b
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := twoPods("10.0.0.1")
				test.change(&c)
				printed(t, func(p *Printer) { p.Advice(document.Conflicts{Conflicts: []document.Conflict{c}}) },
					"\n\nWhat to do:"+test.want+`IPAM may give an address out again while its other holder has it: replace that
  one, too, or repair IPAM. "dupip explain IP" has the commands.
`)
				if name := test.name; name != "both have stopped" && name != "another-order" { // these treat all holders alike
					noticesSwap(t, c)
				}
			})
		})
	}
}

// The address of these conflicts is not given out again.
func TestPrintAdviceOnOtherConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := only(twoPods("10.0.0.1"))
		none.Conflicts[0].State = detector.Resolved
		printed(t, func(p *Printer) { p.Advice(none) }, "")
		printed(t, func(p *Printer) { p.Advice(document.Conflicts{}) }, "")

		suspected := twoPods("10.0.0.1")
		suspected.State, suspected.Pending, suspected.Advice = detector.Suspected, "being verified", nil
		printed(t, func(p *Printer) { p.Advice(only(suspected)) }, `

What to do:
10.0.0.1: wait. Suspected, not confirmed: being verified.
`)
		self := twoPods("10.0.0.1")
		self.Holders[0] = document.Binding{IP: netip.MustParseAddr("10.0.0.1"), Network: "default", Holder: document.Holder{Node: "n1", Interface: "eth0", Netns: "host"}, Evidence: detector.Host}
		self.Advice = &document.Advice{Unknown: "host", Remove: []document.Removal{{Holder: 1, Because: "pod", Command: "kubectl -n shop delete pod web-1"}, {Holder: 0}}}
		self.Routes = []document.Route{toHolder("n1", 0, ""), {Node: "n2", To: "node", ToNode: "n1"}}
		printed(t, func(p *Printer) { p.Advice(only(self)) }, `

What to do:
10.0.0.1: It is an address of node n1 itself. Packets to it go from n1 to
  itself, from n2 to node n1. shop/web-1 gets no traffic from n1 and n2. Remove
  the pod:
    kubectl -n shop delete pod web-1
`)
		// By the books the running pod has the address.
		over := twoPods("10.0.0.1")
		over.Routes = nil
		over.Advice.Remove = []document.Removal{
			{Holder: 0, Because: "stopped", Command: "crictl rmp -f 0123456789abc", On: "n1"}, {Holder: 1, Because: "newer", Command: "kubectl"},
		}
		printed(t, func(p *Printer) { p.Advice(only(over)) }, `

What to do:
10.0.0.1: shop/web-0 on n1 is left over: the runtime says that its sandbox has
  stopped. Remove the one that is left over, on node n1:
    crictl rmp -f 0123456789abc
`)
		// A pod that was replaced, on one of two nodes with one name.
		twice := twoPods("10.0.0.1")
		for n := range twice.Holders {
			b := &twice.Holders[n]
			b.Node, b.BootID = "n1", fmt.Sprint(n, "2345678-aaaa")
			b.Pod = &document.Pod{Namespace: "shop", Name: "web-0", UID: fmt.Sprint(n)}
		}
		twice.Advice.Remove = []document.Removal{
			{Holder: 0, Because: "replaced", Command: "ip link set dev vethweb-0 down", On: "n1 (boot 02345678)", Address: "10.9.0.1"},
			{Holder: 1, Because: "newer", Command: "ip link set dev vethweb-1 down", On: "n1 (boot 12345678)"},
		}
		twice.Routes = nil
		printed(t, func(p *Printer) { p.Advice(only(twice)) }, `

What to do:
10.0.0.1: shop/web-0 on n1 (boot 02345678) is left over: its pod's name belongs
  to a later sandbox. Remove the one that is left over, on node n1 (boot
  02345678, 10.9.0.1):
    ip link set dev vethweb-0 down
n1 (boot 02345678) and n1 (boot 12345678) are nodes of one name: probably a
  machine that was replaced and still runs, or some made from one image. Shut
  down the one that should not run; "dupip nodes" has their addresses.
`)
		printed(t, func(p *Printer) { p.conflicts([]document.Conflict{twice}) }, `
IP        STATE      SINCE  NODE         HOLDER      INTERFACE  FIRST SEEN
10.0.0.1  confirmed  20s    n1/02345678  shop/web-0  vethweb-0  60m
                            n1/12345678  shop/web-0  vethweb-1  60s
`)
	})
}

func TestPrintStoryAdvice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := twoPods("10.0.0.1")
		printed(t, func(p *Printer) { p.StoryAdvice(&c) }, `

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
		three.Advice = &document.Advice{Newer: &newer, Than: &than, By: "firstSeen", AfterSeconds: 59, Remove: []document.Removal{
			{Holder: 2, Because: "newer", Command: "c"}, {Holder: 1, Command: "b"}, {Holder: 0, Command: "a"},
		}}
		three.Routes = nil
		printed(t, func(p *Printer) { p.StoryAdvice(&three) }, `

What to do:
  shop/web-2 on n3 is the newest of 3 holders: first seen 59s after shop/web-1
  on n2. Remove all but one, the newest first:
    c
    b
  IPAM may give the address out again while shop/web-0 on n1 has it: repair
  IPAM, or replace that one, too:
    a
`)
		three.Advice = &document.Advice{Unknown: "together", Remove: three.Advice.Remove}
		three.Advice.Remove[0].Because = ""
		printed(t, func(p *Printer) { p.StoryAdvice(&three) }, `

What to do:
  It is not known which is newer: they came within a second. Remove all but one
  of them:
    c
    b
    a
  IPAM may give the address out again while the other has it: replace that one,
  too, or repair IPAM.
`)
		c.State, c.Pending = detector.Suspected, "being verified"
		printed(t, func(p *Printer) { p.StoryAdvice(&c) }, `

What to do: wait. It is suspected, not confirmed: being verified.
`)
		c.State = detector.Resolved
		printed(t, func(p *Printer) { p.StoryAdvice(&c) }, "")
		printed(t, func(p *Printer) { p.StoryAdvice(nil) }, "")
	})
}

// If some commands are for nodes, the node of each has a line of its own: people paste lines, and
// nodes choose their names.
func TestCommandsOfSeveralNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := twoPods("10.0.0.1")
		c.Routes = nil
		c.Advice = &document.Advice{Unknown: "together", Remove: []document.Removal{
			{Holder: 0, Command: "ip link set dev veth0 down", On: strings.Repeat("long-", 20) + "n1;reboot"}, {Holder: 1, Command: "kubectl -n shop delete pod web-1"},
		}}
		p, out := printer(80)
		p.StoryAdvice(&c)
		fits(t, out.String())
		_, got, _ := strings.Cut(out.String(), "Remove one of them:\n")
		got, _, _ = strings.Cut(got, "  IPAM")
		if want := clip("  on node "+c.Advice.Remove[0].On+":", 80) + "\n    ip link set dev veth0 down\n  anywhere:\n    kubectl -n shop delete pod web-1\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		for n := range 4 {
			more := c
			more.IP = netip.MustParseAddr(fmt.Sprint("fd5f:5801:f9ef:a93e:16d3:e3fc:a5ab:9d4", n))
			more.Advice = newerBy("created", 9, "a", "ip link set dev veth0 down")
			more.Advice.Remove[0].On = []string{"n1", strings.Repeat("long-", 4) + "n1", strings.Repeat("long-", 20) + "n1", ""}[n]
			more.Advice.Remove[0].Then = []document.Flush{{Command: "ip neigh flush to 10.0.0.1 dev cni0", Device: "cni0", On: more.Advice.Remove[0].On}}
			conflicts := []document.Conflict{more, more, more, more}
			out.Reset()
			p.Advice(document.Conflicts{Conflicts: conflicts})
			fits(t, out.String())
			if strings.Count(out.String(), "ip link set dev veth0 down\n") != 1 || strings.Count(out.String(), "ip neigh flush to 10.0.0.1 dev cni0\n") != 1 {
				t.Errorf("commands are not whole:\n%s", out.String())
			}
		}
	})
}

// Commands are complete, with names of any length, and can be pasted into a shell.
func TestLongCommands(t *testing.T) {
	long := strings.Repeat("payments-", 7) + "worker-0"
	for command, want := range map[string]string{
		"kubectl -n shop delete pod " + long:                   "    kubectl -n shop delete pod \\\n      " + long + "\n",
		"kubectl -n shop delete pod web-0":                     "    kubectl -n shop delete pod web-0\n",
		"kubectl -n " + long[:40] + " delete pod " + long[:30]: "    kubectl -n " + long[:40] + " delete pod \\\n      " + long[:30] + "\n",
	} {
		printed(t, func(p *Printer) { p.command("    ", command) }, want)
	}
}

// A command that continues in other lines does the same as the whole one.
func TestBrokenCommandRuns(t *testing.T) {
	store, sandbox := filepath.Join(t.TempDir(), "host-local"), strings.Repeat("0123456789abcdef", 4)
	_, command := Repair(document.Finding{Kind: "unreserved", IP: netip.MustParseAddr("10.0.0.1"), Sandbox: sandbox, Store: store, Book: "host-local", Holder: document.Holder{Given: detector.GivenYes}})
	p, out := printer(60)
	p.command("    ", command)
	if strings.Count(out.String(), " \\\n") < 3 {
		t.Errorf("the command is not broken:\n%s", out)
	}
	if result, err := exec.Command("bash", "-c", out.String()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, result, out)
	}
	if got, err := os.ReadFile(filepath.Join(store, "10.0.0.1")); string(got) != sandbox+"\r\neth0" || err != nil {
		t.Errorf("reserved for %q, %v", got, err)
	}
}
