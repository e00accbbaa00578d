package cli

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// given sets whether the two holders were given the address.
func given(c *document.Conflict, first, second bool) {
	is := map[bool]detector.Given{true: detector.GivenYes, false: detector.GivenNo}
	c.Holders[0].Given, c.Holders[1].Given = is[first], is[second]
}

// Who was given the address decides before age; and what has gone is in no command.
func TestAdviceByBooks(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(c *document.Conflict)
		want   string
	}{
		{"the elder took it by hand", func(c *document.Conflict) {
			c.Routes = nil
			given(c, false, true)
			c.Advice.Remove = []document.Removal{{Holder: 0, Because: "not-given", Command: "kubectl -n shop delete pod web-0"}, {Holder: 1, Because: "newer"}}
		}, `
10.0.0.1: shop/web-0 on n1 was not given the address by any network plugin, and
  shop/web-1 on n2 was: it was probably taken by hand. Remove the one that was
  not given it:
    kubectl -n shop delete pod web-0
`},
		{"given to both, by two nodes", func(c *document.Conflict) {
			c.Routes = nil
			given(c, true, true)
			c.Advice.GivenByNodes = true
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  Each was given the address by its own node. Remove one of them:
  to end shop/web-1 (given the address according to n2); IPAM decides which
    address a successor gets:
    kubectl -n shop delete pod web-1
  to end shop/web-0 (given the address according to n1); IPAM decides which
    address a successor gets:
    kubectl -n shop delete pod web-0
IPAM may give an address out again while its other holder has it: replace that
  one, too, or repair IPAM. "dupip explain IP" has the commands.
`},
		{"given to the newer one, of the other it is not known", func(c *document.Conflict) {
			c.Routes = nil
			given(c, true, true)
			c.Holders[0].Given, c.Advice.GivenByNodes = detector.GivenUnknown, true
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  It was given the address by its node; who was given it of the others is not
  known. Remove one of them:
  to end shop/web-1 (given the address according to n2); IPAM decides which
    address a successor gets:
    kubectl -n shop delete pod web-1
  to end shop/web-0; IPAM decides which address a successor gets:
    kubectl -n shop delete pod web-0
IPAM may give an address out again while its other holder has it: replace that
  one, too, or repair IPAM. "dupip explain IP" has the commands.
`},
		{"given to the elder one, of the other it is not known", func(c *document.Conflict) {
			c.Routes = nil
			given(c, true, true)
			c.Holders[1].Given = detector.GivenUnknown
		}, `
10.0.0.1: shop/web-1 on n2 is the newer holder: made 59m after shop/web-0 on n1.
  It is not known who was given the address. Remove the newer one:
    kubectl -n shop delete pod web-1
IPAM may give an address out again while its other holder has it: replace that
  one, too, or repair IPAM. "dupip explain IP" has the commands.
`},
		{"one of three took it, of the others neither is known to be right", func(c *document.Conflict) {
			c.Routes = nil
			c.Holders = append(c.Holders, holder("n3", "web-2", "10.0.0.1", time.Second))
			given(c, false, true)
			c.Advice.GivenByNodes = true
			c.Advice.Remove = []document.Removal{{Holder: 0, Because: "not-given", Command: "kubectl -n shop delete pod web-0"}, {Holder: 2, Because: "newer"}, {Holder: 1}}
		}, `
10.0.0.1: shop/web-0 on n1 was not given the address by any network plugin, and
  shop/web-1 on n2 was: it was probably taken by hand. Remove the one that was
  not given it:
    kubectl -n shop delete pod web-0
`},
		{"the nodes had lost each other", func(c *document.Conflict) {
			c.Routes = nil
			c.Advice = &document.Advice{
				Unknown: "away", Away: &document.Away{Elder: 0, Newer: 1, Nodes: []string{"n1", "n2"}, From: ago(20 * time.Minute), Until: ago(5 * time.Minute)},
				Remove: []document.Removal{{Holder: 1, Command: "kubectl -n shop delete pod web-1"}, {Holder: 0, Command: "kubectl -n shop delete pod web-0"}},
			}
		}, `
10.0.0.1: n1 and n2 could not reach each other from 23:40:00 to 23:55:00, and
  shop/web-1 on n2 came meanwhile. If n1 was given up, shop/web-0 on n1 is left
  over from before and shop/web-1 on n2 is right, although newer: "kubectl get
  pods -A -o wide" has those that should be there. Remove one of them:
    kubectl -n shop delete pod web-1
    kubectl -n shop delete pod web-0
IPAM may give an address out again while its other holder has it: replace that
  one, too, or repair IPAM. "dupip explain IP" has the commands.
`},
		{"one has gone", func(c *document.Conflict) {
			c.Holders[0].Gone = true
			c.Advice = &document.Advice{Unknown: "gone", Held: []int{0}, Remove: []document.Removal{}}
		}, `
10.0.0.1: Wait: shop/web-0 on n1 has gone, or did not answer lately. Nothing is
  to be removed.
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := twoPods("10.0.0.1")
				test.change(&c)
				printed(t, func(p *Printer) { p.Advice(only(c)) }, "\n\nWhat to do:"+test.want)
				noticesSwap(t, c)
			})
		})
	}
}
