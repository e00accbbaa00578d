package merge

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// to is the route of a node to a holder of its record, sent is a record with routes.
func to(node string, holder int) document.Route {
	return document.Route{Node: node, BootID: "b", To: document.ToHolder, Holder: &holder, Device: "veth"}
}

func sent(c document.Conflict, routes ...document.Route) document.Conflict {
	c.Routes = routes
	return c
}

// paths has one line per route: the node, where to, and the holder.
func paths(c document.Conflict) (lines []string) {
	for _, r := range c.Routes {
		line := r.NodeID() + " " + r.To
		if r.Holder != nil {
			b := c.Holders[*r.Holder]
			line += fmt.Sprintf(" %s:%d", b.Node, b.NetnsCookie)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestRoutes(t *testing.T) {
	const confirmed, resolved = detector.Confirmed, detector.Resolved
	a, b, c := on("n1", 1, 10), on("n2", 2, 20), on("n3", 3, 30)
	over := document.Route{Node: "n2", BootID: "b", To: document.ToNode, ToNode: "n1", ToBootID: "b"}
	asks := from("n9", sent(conflict("x-1", confirmed, 25, 0, b, a), to("n9", 0)))
	asks.Self = true
	earlier := from("n1", sent(conflict("x-1", confirmed, 21, 0, a, b), to("n1", 0)))
	earlier.BootID, earlier.Conflicts[0].Routes[0].BootID = "a", "a"
	for _, test := range []struct {
		name    string
		answers []document.Answer
		want    []string
	}{
		{
			"the asking node's comes first, and the indexes are those of the joined holders",
			[]document.Answer{
				from("n2", sent(conflict("x-1", confirmed, 20, 0, b, a), over)), asks,
				from("n1", sent(conflict("x-1", confirmed, 21, 0, c, b, a), to("n1", 2))),
			},
			[]string{"n9/b holder n2:2", "n1/b holder n1:1", "n2/b node"},
		},
		{
			"ordered by the name of the node, not by the order of the answers",
			[]document.Answer{
				from("n3", sent(conflict("x-1", confirmed, 20, 0, c, b), to("n3", 0))),
				from("n2", sent(conflict("x-1", confirmed, 21, 0, a, b), to("n2", 1))),
				from("n1", sent(conflict("x-1", confirmed, 22, 0, a, b), to("n1", 1))),
			},
			[]string{"n1/b holder n2:2", "n2/b holder n2:2", "n3/b holder n3:3"},
		},
		{
			"a node without a route has none",
			[]document.Answer{from("n1", conflict("x-1", confirmed, 20, 0, a, b)), from("n2", sent(conflict("x-1", confirmed, 20, 0, a, b), over))},
			[]string{"n2/b node"},
		},
		{
			"a boot that has no holder any more has none",
			[]document.Answer{earlier, from("n2", sent(conflict("x-1", confirmed, 20, 0, a, b), over))},
			[]string{"n2/b node"},
		},
		{
			"one for each node",
			[]document.Answer{
				from("n1", sent(conflict("x-1", confirmed, 20, 0, a, b), to("n1", 0), to("n1", 1)), sent(conflict("x-2", confirmed, 30, 0, a, c), to("n1", 1))),
			},
			[]string{"n1/b holder n1:1"},
		},
		{
			"not of a node for which it has ended",
			[]document.Answer{
				from("n1", sent(conflict("x-1", confirmed, 20, 0, a, b), to("n1", 1))),
				from("n2", sent(conflict("x-1", resolved, 20, 30, a, b), to("n2", 0))),
			},
			[]string{"n1/b holder n2:2"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			permuted(test.answers, func(answers []document.Answer) {
				got, _ := Conflicts(answers, rules)
				if len(got) != 1 {
					t.Fatal(summary(got))
				}
				if diff := cmp.Diff(test.want, paths(got[0])); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
	if n := *asks.Conflicts[0].Routes[0].Holder; n != 0 {
		t.Errorf("the answer has holder %d now", n)
	}
}

// There are 16 routes at most, and that of the asking node is one of them.
func TestManyRoutes(t *testing.T) {
	var answers []document.Answer
	for n := range 2 * MaxRoutes {
		node := fmt.Sprintf("n%02d", n)
		answers = append(answers, from(node, sent(conflict("x-1", detector.Confirmed, 20, 0, on(node, uint64(n+1), 1)), to(node, 0))))
	}
	answers[20].Self = true
	slices.Reverse(answers)
	got, _ := Conflicts(answers, rules)
	lines := paths(got[0])
	if len(lines) != MaxRoutes || lines[0] != "n20/b holder n20:21" || lines[1] != "n00/b holder n00:1" || lines[15] != "n14/b holder n14:15" {
		t.Errorf("%q", lines)
	}
}

// A route to a holder that is not among the joined ones, because there are too many, leads to a device.
func TestRouteToNoHolder(t *testing.T) {
	var crowd []document.Binding
	for n := range maxHolders {
		crowd = append(crowd, on("n2", uint64(n+1), n+1))
	}
	asks := from("n1", conflict("x-1", detector.Confirmed, 20, 0, crowd...))
	asks.Self = true
	other := from("n2", sent(conflict("x-1", detector.Confirmed, 20, 0, on("n2", 1, 1), on("n2", 9999, 1)), to("n2", 1)))
	got, _ := Conflicts([]document.Answer{other, asks}, rules)
	want := []document.Route{{Node: "n2", BootID: "b", To: document.ToDevice, Device: "veth"}}
	if diff := cmp.Diff(want, got[0].Routes, compareAll); diff != "" || len(got[0].Holders) != maxHolders {
		t.Errorf("%d holders, (-want +got):\n%s", len(got[0].Holders), diff)
	}
}

// Whether it is a drill depends on what all nodes know of the holders, not on what one of them says.
func TestDrill(t *testing.T) {
	const yes, no, unknown = detector.GivenYes, detector.GivenNo, detector.GivenUnknown
	drillIP := netip.MustParseAddr("192.0.2.7")
	drill := func(said bool, scope detector.Scope, holders ...document.Binding) document.Conflict {
		c := conflict("x-1", detector.Confirmed, 20, 0, holders...)
		c.IP, c.Drill, c.Scope = drillIP, said, scope
		return c
	}
	given := func(node string, g detector.Given) document.Binding {
		b := on(node, 1, 10)
		b.IP, b.Given = drillIP, g
		return b
	}
	var many []document.Binding // as much as one answer may have
	for n := range document.MaxHolders {
		b := given("n1", no)
		b.NetnsCookie = uint64(n + 1)
		many = append(many, b)
	}
	const cross, host = detector.CrossNode, detector.PodHost
	for _, test := range []struct {
		name   string
		n1, n2 document.Conflict
		want   bool
	}{
		{"for both", drill(true, cross, given("n1", no), given("n2", no)), drill(true, cross, given("n1", no), given("n2", no)), true},
		{"another node has given it", drill(true, cross, given("n1", no), given("n2", unknown)), drill(false, cross, given("n1", no), given("n2", yes)), false},
		{"the holder's node knows that nobody gave it", drill(false, cross, given("n1", no), given("n2", yes)), drill(true, cross, given("n1", no), given("n2", no)), true},
		{"another node has it", drill(true, cross, given("n1", no)), drill(false, host, given("n1", no), given("n2", no)), false},
		{"many holders, and another node has given it", drill(true, cross, many...), drill(false, cross, many[0], given("n2", yes)), false},
		{"many holders", drill(false, cross, append(many[1:], given("n2", yes))...), drill(true, cross, many[0], given("n2", no)), true},
	} {
		permuted([]document.Answer{from("n1", test.n1), from("n2", test.n2)}, func(answers []document.Answer) {
			if got, _ := Conflicts(answers, rules); len(got) != 1 || got[0].Drill != test.want {
				t.Errorf("%s: %+v", test.name, got)
			}
		})
	}
}
