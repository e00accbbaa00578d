package cli

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/judge"
	"github.com/dupip/dupip/document/say"
)

func between(ip string, holders ...document.Binding) document.Conflict {
	return document.Conflict{
		ID: "5f3a9b21-1", Network: "default", IP: netip.MustParseAddr(ip), State: detector.Confirmed, Scope: detector.CrossNode,
		SecondSeen: ago(21300 * time.Millisecond), SuspectedAt: ago(21200 * time.Millisecond), ConfirmedAt: ago(20 * time.Second), Holders: holders,
	}
}

// judged is a conflict with a judgement in words.
func judged(c document.Conflict) document.Conflict {
	c.Judgement = judge.Of(c, judge.Context{Now: time.Now()})
	say.Fill(&c, nil)
	return c
}

// twoPods is a judged conflict of two pods that run, on two nodes. No plugin gave the second one the address.
func twoPods(ip string) document.Conflict {
	c := between(ip, holder("n1", "web-0", ip, time.Hour), holder("n2", "web-1", ip, time.Minute))
	for n, given := range []detector.Given{detector.GivenYes, detector.GivenNo} {
		b := &c.Holders[n]
		b.Given, b.Facts, b.Pod.UID = given, &document.Facts{Behind: document.BehindRunning}, fmt.Sprintf("%08d-2222-4333-8444-555555555555", n)
	}
	c.Routes = []document.Route{{Node: "n1", To: document.ToHolder, Holder: new(0), Device: "vethweb-0"}}
	return judged(c)
}

func TestPrintConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sameNode := []document.Conflict{between("10.0.0.1", holder("n1", "web-0", "10.0.0.1", time.Hour), holder("n1", "web-1", "10.0.0.1", time.Minute))}
		printed(t, func(p *Printer) { tables{Printer: p}.conflicts(sameNode) }, `
IP        STATE      SINCE  HOLDER      INTERFACE  FIRST SEEN
10.0.0.1  confirmed  20s    shop/web-0  vethweb-0  60m
                            shop/web-1  vethweb-1  60s
`)
		// Of several nodes that were asked, it may be any.
		printed(t, func(p *Printer) {
			p.Conflicts(document.Conflicts{Conflicts: sameNode, Coverage: document.Coverage{Asked: 3}})
		}, `
IP        STATE      SINCE  NODE  HOLDER      INTERFACE  FIRST SEEN
10.0.0.1  confirmed  20s    n1    shop/web-0  vethweb-0  60m
                            n1    shop/web-1  vethweb-1  60s

What to do:
"dupip explain IP" says what to do about 1 address, and why.
`)
		far := holder("n2", "web-1", "10.0.0.1", time.Minute)
		far.Unreachable = true
		crossNode := []document.Conflict{between("10.0.0.1", holder("n1", "web-0", "10.0.0.1", time.Hour), far)}
		printed(t, func(p *Printer) { tables{Printer: p}.conflicts(crossNode) }, `
IP        STATE      SINCE  NODE  HOLDER      INTERFACE  FIRST SEEN
10.0.0.1  confirmed  20s    n1    shop/web-0  vethweb-0  60m
                            n2 !  shop/web-1  vethweb-1  60s
! unreachable: the node does not answer, and its holders may be gone.
`)
		left := holder("n1", "web-1", "10.0.0.1", time.Minute)
		left.Evidence = detector.Configured
		weak := []document.Conflict{between("10.0.0.1", holder("n1", "web-0", "10.0.0.1", time.Hour), left)}
		printed(t, func(p *Printer) { tables{Printer: p}.conflicts(weak) }, `
IP        STATE      SINCE  HOLDER        INTERFACE  FIRST SEEN
10.0.0.1  confirmed  20s    shop/web-0    vethweb-0  60m
                            shop/web-1 ~  vethweb-1  60s
~ configured: its kernel has the address; it was not seen using it lately.
`)
	})
}

// A drill is marked, and nothing is to be done about it.
func TestPrintDrill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drill := between("192.0.2.7", holder("n1", "drill-0", "192.0.2.7", time.Minute), holder("n1", "drill-1", "192.0.2.7", time.Minute))
		drill.Drill = true
		printed(t, func(p *Printer) { p.Conflicts(document.Conflicts{Conflicts: []document.Conflict{drill}}) }, `
IP                 STATE      SINCE  HOLDER        INTERFACE    FIRST SEEN
192.0.2.7 (drill)  confirmed  20s    shop/drill-0  vethdrill-0  60s
                                     shop/drill-1  vethdrill-1  60s

What to do:
192.0.2.7: Nothing: it is a drill, which ends by itself.
`)
		many := manyConflicts(11)
		many.Conflicts = append(many.Conflicts, drill)
		p, out := printer(80)
		p.Conflicts(many)
		if !strings.Contains(out.String(), "12 conflicts: 9 confirmed, 2 suspected, 1 drill.") {
			t.Errorf("of 12 conflicts one is a drill:\n%s", out)
		}
		// The tenth that is none, with a drill, is not too many.
		many.Conflicts = many.Conflicts[1:]
		p, out = printer(80)
		p.Conflicts(many)
		if !strings.Contains(out.String(), "192.0.2.7 (drill)") {
			t.Errorf("ten conflicts and a drill:\n%s", out)
		}
		// Many drills must not hide a conflict, and the summary does not count their nodes and networks.
		drill.Holders[0].Node = "drilled"
		few := document.Conflicts{Conflicts: manyConflicts(2).Conflicts}
		for range 256 {
			few.Conflicts = append(few.Conflicts, drill)
			many.Conflicts = append(many.Conflicts, drill)
		}
		p, out = printer(80)
		p.Conflicts(few)
		if strings.Count(out.String(), "192.0.2.7 (drill)") != 1 || strings.Count(out.String(), "shop/drill-0") != 3 || !strings.Contains(out.String(), "\nand 253 more drills; -o wide has all\n") ||
			!strings.Contains(out.String(), "\n192.0.2.7: Nothing: it is a drill") {
			t.Errorf("two conflicts and 256 drills:\n%s", out)
		}
		p, out = printer(80)
		many.Conflicts = slices.Concat(manyConflicts(11).Conflicts, many.Conflicts[10:])
		p.Conflicts(many)
		if !strings.Contains(out.String(), "9 confirmed, 2 suspected, 257 drill.") || strings.Contains(out.String(), "drilled") {
			t.Errorf("many conflicts and drills:\n%s", out)
		}
	})
}

// Names and addresses of any length leave room on a line of 80 columns.
func TestLongNamesFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ip = "fd5f:5801:f9ef:a93e:16d3:e3fc:a5ab:9d40"
		var holders []document.Binding
		for n := range 3 {
			holders = append(holders, holder(fmt.Sprintf("ip-10-0-1-%d.eu-central-1.compute.internal", n), fmt.Sprintf("payments-reconciliation-worker-6f4c9d7b58-x%d", n), ip, time.Hour))
		}
		holders[1].Unreachable = true
		p, out := printer(80)
		tables{Printer: p}.conflicts([]document.Conflict{between(ip, holders...)})
		tables{Printer: p}.bindings(holders)
		if strings.Count(out.String(), ip) != 2 || strings.Count(out.String(), "ip-10-0-1-2") != 2 || strings.Contains(out.String(), "…") {
			t.Errorf("addresses, nodes and pods are not whole:\n%s", out.String())
		}
		p, narrow := printer(60)
		for i := range holders {
			holders[i].Node = "node"
		}
		tables{Printer: p}.bindings(holders)
		if strings.Count(narrow.String(), "payments-reconciliation-worker-6f4c9d7b58-x") != 3 || strings.Count(narrow.String(), ip) != 1 {
			t.Errorf("in 60 columns:\n%s", narrow)
		}
		p, _ = printer(80)
		p.Out = out
		nodes := document.Nodes{}
		for _, b := range holders {
			nodes.Nodes = append(nodes.Nodes, document.Node{Member: cluster.Member{Name: b.Node, State: "suspect", Since: ago(time.Minute), Heard: ago(time.Minute), Unacked: 1000, Address: "[" + ip + "]:7951"}})
		}
		p.Nodes(nodes)
		fits(t, out.String())
	})
}

func TestPrintPairs(t *testing.T) {
	example := func(ips ...string) (list []document.Address) {
		for _, ip := range ips {
			list = append(list, document.Address{Network: "default", IP: netip.MustParseAddr(ip)})
		}
		return list
	}
	doc := document.Conflicts{
		Conflicts: []document.Conflict{{Holders: []document.Binding{{Holder: document.Holder{Node: "n1"}}, {Holder: document.Holder{Node: "n2"}}}}, {Holders: []document.Binding{{Holder: document.Holder{Node: "n1"}}, {Holder: document.Holder{Node: "n3"}}}}},
		Pairs: []document.Pair{
			{Nodes: []string{"n1", "n2"}, Addresses: 14, Examples: example("10.0.0.1", "10.0.0.2", "10.0.0.3")},
			{Nodes: []string{"n1", "n3"}, Addresses: 2, Examples: example("10.0.0.4", "10.0.0.5")}, // in the table
			{Nodes: []string{"n8", "n9"}, Addresses: 1, Examples: []document.Address{{Network: "storage", IP: netip.MustParseAddr("10.9.0.1")}}},
			{Nodes: nil, Addresses: 1},
		},
	}
	printed(t, func(p *Printer) { tables{Printer: p}.pairs(doc, MaxPairs) }, `
n1 and n2 share 14 addresses (10.0.0.1, 10.0.0.2, 10.0.0.3, ...)
n8 and n9 share 1 address (10.9.0.1 (storage))

`)
	doc.Pairs = nil
	for n := range 30 {
		doc.Pairs = append(doc.Pairs, document.Pair{Nodes: []string{fmt.Sprint("a", n), fmt.Sprint("b", n)}, Addresses: 40 - n, Examples: example("10.0.0.1")})
	}
	p, out := printer(80)
	tables{Printer: p}.pairs(doc, MaxPairs)
	if lines := strings.Count(out.String(), "\n"); lines != MaxPairs+2 || !strings.Contains(out.String(), "20 more pairs") {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
	printed(t, func(p *Printer) { tables{Printer: p}.pairs(document.Conflicts{}, MaxPairs) }, "")
}
