package cli

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// Up to maxCommands conflicts have a line each; a whole range has one line.
func TestPrintAdviceOnMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var doc document.Conflicts
		for n := range 5 {
			doc.Conflicts = append(doc.Conflicts, twoPods(fmt.Sprint("10.0.0.", 8+n)))
		}
		doc.Conflicts[1].Advice.Remove[0].On = "n2"
		doc.Conflicts[2].Advice = &document.Advice{Unknown: "together", Remove: []document.Removal{{Holder: 0, Command: "a"}, {Holder: 1, Command: "b"}}}
		doc.Conflicts[3].Advice = nil
		const caution = `IPAM may give an address out again while its other holder has it: replace that
  one, too, or repair IPAM. "dupip explain IP" has the commands.
`
		printed(t, func(p *Printer) { p.Advice(doc) }, `

What to do:
Remove these first:
  10.0.0.8, 10.0.0.12  kubectl -n shop delete pod web-1
  10.0.0.9             on node n2: kubectl -n shop delete pod web-1
"dupip explain IP" for 1 address more and for 1 address of which it is not known
  which holder is right.
`+caution)
		lost := document.Conflicts{Conflicts: slices.Clone(doc.Conflicts)}
		for _, n := range []int{1, 4} {
			lost.Conflicts[n].Advice = &document.Advice{Unknown: "unreachable", Held: []int{1}}
		}
		printed(t, func(p *Printer) { p.Advice(lost) }, `

What to do:
Remove these first:
  10.0.0.8  kubectl -n shop delete pod web-1
10.0.0.9, 10.0.0.12: n2 does not answer: wait until it does or its holders are
  forgotten (5 minutes).
"dupip explain IP" for 1 address more and for 1 address of which it is not known
  which holder is right.
`+caution)
		dual := document.Conflicts{Conflicts: slices.Clone(doc.Conflicts)}
		for n := range dual.Conflicts {
			// Pods 8, 9 and 12 have a second address, and packets reach them over a bridge.
			c := dual.Conflicts[n]
			if c.Advice != nil && c.Advice.Newer != nil {
				advice := *c.Advice
				advice.Remove = slices.Clone(advice.Remove)
				advice.Remove[0].Command += fmt.Sprint("-", n)
				advice.Remove[0].Then = []document.Flush{{Command: "ip neigh flush to " + c.IP.String() + " dev cni0", On: "n2", Device: "cni0"}}
				dual.Conflicts[n].Advice, c.Advice = &advice, &advice
			}
			c.IP = netip.MustParseAddr(fmt.Sprint("fd5f:5801:f9ef:a93e::", 8+n))
			if c.Advice != nil && c.Advice.Newer != nil {
				advice := *c.Advice
				advice.Remove = slices.Clone(advice.Remove)
				advice.Remove[0].Then = []document.Flush{{Command: "ip neigh flush to " + c.IP.String() + " dev cni0", On: "n2", Device: "cni0"}}
				c.Advice = &advice
			}
			dual.Conflicts = append(dual.Conflicts, c)
		}
		printed(t, func(p *Printer) { p.Advice(dual) }, `

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
  known which holder is right.
`+caution)
		for n := range 250 {
			c := twoPods(fmt.Sprintf("10.1.%d.%d", n/200, n%200))
			if n > 0 {
				c.Advice.Remove[0].Command += fmt.Sprint("-", n)
			}
			doc.Conflicts = append(doc.Conflicts, c)
			c.State = detector.Suspected
			doc.Conflicts = append(doc.Conflicts, c)
		}
		p, out := printer(80)
		p.Advice(doc)
		fits(t, out.String())
		if lines := strings.Count(out.String(), "\n"); lines != 4+maxCommands+5 || !strings.Contains(out.String(), "for 242 addresses more") || !strings.Contains(out.String(), "and 242 more: wait") {
			t.Errorf("%d lines:\n%s", lines, out.String())
		}
		doc.Pairs = []document.Pair{{Nodes: []string{"n1", "n2"}, Addresses: 255}}
		doc.Conflicts = doc.Conflicts[:6]
		for n := range doc.Conflicts[:5] {
			doc.Conflicts[n].Holders[1].Node = "n2"
		}
		doc.Conflicts[5].Holders[1].Node = "n3"
		printed(t, func(p *Printer) { p.Advice(doc) }, `

What to do:
n1 and n2 share a range: probably one pod CIDR was given out twice, or one node
  is a clone. Compare their .spec.podCIDR, and drain one:
    kubectl drain NODE --ignore-daemonsets --delete-emptydir-data
10.1.0.0: shop/web-1 on n3 is the newer holder: made 59m after shop/web-0 on n1.
  Packets to it go from n1 to shop/web-0. shop/web-1 gets no traffic from n1.
  Remove the newer one:
    kubectl -n shop delete pod web-1
`+caution)
		many := []document.Pair{{Nodes: []string{"n1", "n2"}, Addresses: 9}, {Nodes: []string{"n2", "n3"}, Addresses: 9}}
		printed(t, func(p *Printer) { p.Advice(document.Conflicts{Pairs: many}) }, `

What to do:
n1, n2 and n3 share ranges: probably one pod CIDR was given out more than once,
  or nodes were cloned. Compare their .spec.podCIDR, and drain those that have
  another's:
    kubectl drain NODE --ignore-daemonsets --delete-emptydir-data
`)
		clones := []document.Pair{{Nodes: []string{"n1 (boot 02345678)", "n1 (boot 12345678)"}, Addresses: 9}}
		printed(t, func(p *Printer) { p.Advice(document.Conflicts{Pairs: clones}) }, `

What to do:
n1 (boot 02345678) and n1 (boot 12345678) share a range: probably a node and its
  clone, or one that was replaced and still runs. Shut one down; "dupip nodes"
  has their addresses.
`)
	})
}
