package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// Without headers there are rows and nothing else, each whole, so that one holder after the other can be read.
func TestRowsOnly(t *testing.T) {
	missing := document.Coverage{Asked: 2, Missing: []string{"n3"}, Partial: true}
	c := between("10.0.0.1", holder("n1", "web-0", "10.0.0.1", time.Hour), holder("n2", "web-1", "10.0.0.1", time.Hour))
	c.Holders[0].Unreachable, c.Holders[1].Evidence = true, detector.Configured
	findings := auditCase{change: with(one("unreserved"), one("unheld"))}.doc()
	findings.Coverage = missing
	nodes := document.Nodes{Nodes: []document.Node{{Member: cluster.Member{Name: "n1", State: "alive"}}, {Member: cluster.Member{Name: "n3", State: "dead"}}}}
	nodes.Cluster.Problems = []string{"n4 is not reached"}
	for name, test := range map[string]struct {
		print func(p *Printer)
		rows  [][]string // what each has
	}{
		"conflicts": {
			func(p *Printer) {
				p.Conflicts(document.Conflicts{Conflicts: []document.Conflict{c}, Pairs: []document.Pair{{Nodes: []string{"n1", "n2"}, Addresses: 9}}, Coverage: missing})
			},
			[][]string{{"10.0.0.1 ", "confirmed", "shop/web-0"}, {"10.0.0.1 ", "confirmed", "shop/web-1"}},
		},
		"bindings":    {func(p *Printer) { p.Bindings(document.Bindings{Bindings: c.Holders, Coverage: missing}) }, [][]string{{"10.0.0.1 "}, {"10.0.0.1 "}}},
		"nodes":       {func(p *Printer) { p.Nodes(nodes) }, [][]string{{"n1 "}, {"n3 "}}},
		"audit":       {func(p *Printer) { p.Audit(findings) }, [][]string{{"10.1.2.5 "}, {"10.1.2.5 "}}},
		"no conflict": {func(p *Printer) { p.Conflicts(document.Conflicts{Coverage: missing}) }, nil},
		"no binding":  {func(p *Printer) { p.Bindings(document.Bindings{Coverage: missing}) }, nil},
		"no finding":  {func(p *Printer) { p.Audit(auditCase{change: with()}.doc()) }, nil},
		"selected":    {func(p *Printer) { p.Selected = true; p.Bindings(document.Bindings{}) }, nil},
	} {
		for _, wide := range []bool{false, true} {
			p, out := printer(0)
			p.NoHeaders, p.Wide = true, wide
			test.print(p)
			var lines []string
			for line := range strings.Lines(out.String()) {
				lines = append(lines, line)
			}
			if len(lines) != len(test.rows) {
				t.Errorf("%s, wide %t: %d rows, want %d:\n%s", name, wide, len(lines), len(test.rows), out)
				continue
			}
			for n, words := range test.rows {
				for _, word := range words {
					if !strings.Contains(lines[n], word) {
						t.Errorf("%s, wide %t: row %d has no %q:\n%s", name, wide, n, word, out)
					}
				}
			}
		}
	}
	p, out := printer(0)
	p.NoHeaders = true
	p.Conflicts(manyConflicts(30))
	if got := strings.Count(out.String(), "\n"); got != len(holdersOf(manyConflicts(30).Conflicts)) {
		t.Errorf("%d rows of 30 conflicts:\n%s", got, out)
	}
}

// What is cut first, in a line that is too short: columns, then addresses get lines of their own, nodes, and pods at last.
func TestNamesAreCutLast(t *testing.T) {
	const v6 = "fd5f:5801:f9ef:a93e:16d3:e3fc:a5ab:9d40"
	for _, test := range []struct {
		width         int
		ip, pod       string
		header, holds string // holds is what the line of the first holder has
	}{
		{120, v6, "payments-reconciliation-worker-x0", "IP NODE HOLDER EVIDENCE", "payments-worker-0.zone1 shop/payments-reconciliation-worker-x0"},
		{80, v6, "reconcile-ab-x0", "NODE HOLDER INTERFACE EVIDENCE LAST SEEN", "payments-worker-0 shop/reconcile-ab-x0"},
		{80, "10.0.0.1", "payments-reconciliation-worker-x0", "IP NODE HOLDER EVIDENCE", "payments-worker-0 shop/payments-reconciliation-worker-x0"},
		{80, "10.0.0.1", "payments-reconciliation-worker-6f4c9d7b58-with-x0", "NODE HOLDER", "payments-worker-0 shop/payments-reconciliation-worker-6f4c9d7b58-with-x0"},
		{60, "10.0.0.1", "payments-reconciliation-worker-6f4c9d7-x0", "NODE HOLDER", "paym…ker-0 shop/payments-reconciliation-worker-6f4c9d7-x0"},
		{60, v6, "payments-reconciliation-worker-6f4c9d7b58-with-x0", "NODE HOLDER", "pay…er-0 shop/payments-reconcili…orker-6f4c9d7b58-with-x0"},
	} {
		p, out := printer(test.width)
		pods := []document.Binding{holder("payments-worker-0.zone1", test.pod, test.ip, time.Hour), holder("payments-worker-1.zone1", test.pod, test.ip, time.Hour)}
		p.Bindings(document.Bindings{Bindings: pods})
		header, _, _ := strings.Cut(out.String(), "\n")
		if header = strings.Join(strings.Fields(header), " "); header != test.header || !strings.Contains(strings.Join(strings.Fields(out.String()), " "), test.holds) {
			t.Errorf("in %d columns, want %q and %q:\n%s", test.width, test.header, test.holds, out)
		}
	}
}
