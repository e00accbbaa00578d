package cli

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// What the books of the nodes say; the judgement says what that means.
func TestPrintBooks(t *testing.T) {
	reservation := func(sandbox string, pod *document.Pod) *document.Reservation {
		return &document.Reservation{Sandbox: sandbox, Pod: pod, Since: ago(time.Hour)}
	}
	for name, test := range map[string]struct {
		change func(e *document.Explanation, first, second *document.Binding)
		want   string
	}{
		"nothing is known": {func(*document.Explanation, *document.Binding, *document.Binding) {}, ""},
		"taken by hand": {func(e *document.Explanation, first, second *document.Binding) {
			first.Given, second.Given = detector.GivenNo, detector.GivenYes
			e.Books = []document.Book{{Node: "n1", Kind: "host-local", CNINetwork: "pods", Range: "10.0.0.1-10.0.0.254", Reservation: reservation("bbbb", second.Pod)}}
		}, `
Books of node n1:
  shop/web-0 was not given the address by any network plugin
  shop/web-1 was given the address by a network plugin
  host-local, network pods: reserved for shop/web-1 since 1999-12-31 23:00:00
`},
		"the store was wiped, and the address given out again": {func(e *document.Explanation, first, second *document.Binding) {
			first.Given, second.Given = detector.GivenYes, detector.GivenYes
			e.Books = []document.Book{{Node: "n1", Kind: "host-local", CNINetwork: "pods", Range: "10.0.0.1-10.0.0.254", Reservation: reservation("bbbb", second.Pod)}}
		}, `
Books of node n1:
  shop/web-0 was given the address by a network plugin
  shop/web-1 was given the address by a network plugin
  host-local, network pods: reserved for shop/web-1 since 1999-12-31 23:00:00
`},
		"not reserved at all, one is of another node": {func(e *document.Explanation, first, second *document.Binding) {
			first.Given, second.Given, second.Node = detector.GivenYes, detector.GivenNo, "n2"
			e.Books = []document.Book{{Node: "n1", Kind: "host-local", CNINetwork: "pods", Range: "10.0.0.1-10.0.0.254"}}
		}, `
Books of node n1:
  shop/web-0 was given the address by a network plugin
  host-local, network pods: not reserved, although it gives out
    10.0.0.1-10.0.0.254

Books of node n2:
  shop/web-1 was not given the address by any network plugin
`},
		"two nodes have one range": {func(e *document.Explanation, first, second *document.Binding) {
			second.Node = "n2"
			first.Given, second.Given = detector.GivenYes, detector.GivenYes
			for n, b := range []*document.Binding{first, second} {
				e.Books = append(e.Books, document.Book{
					Node: b.Node, Kind: "host-local", CNINetwork: "pods", Range: "10.0.0.1-10.0.0.254", Reservation: reservation([]string{"aaaa", "bbbb"}[n], b.Pod),
				})
			}
			// The range of a node without a holder is no cause.
			e.Books = append(e.Books, document.Book{Node: "n3", Kind: "host-local", CNINetwork: "pods", Range: "10.0.0.1-10.0.0.254"})
		}, `
Books of node n1:
  shop/web-0 was given the address by a network plugin
  host-local, network pods: reserved for shop/web-0 since 1999-12-31 23:00:00

Books of node n2:
  shop/web-1 was given the address by a network plugin
  host-local, network pods: reserved for shop/web-1 since 1999-12-31 23:00:00

Books of node n3:
  host-local, network pods: not reserved, although it gives out
    10.0.0.1-10.0.0.254
`},
		"the holders' nodes have one name and one range": {func(e *document.Explanation, first, second *document.Binding) {
			first.Given, second.Given = detector.GivenYes, detector.GivenYes
			first.BootID, second.BootID = "aaaaaaaa-1", "cccccccc-2"
			for n, b := range []*document.Binding{first, second} {
				e.Books = append(e.Books, document.Book{
					Node: "n1", BootID: b.BootID, Kind: "host-local", CNINetwork: "pods", Range: "10.0.0.1-10.0.0.254",
					Reservation: reservation([]string{"aaaa", "bbbb"}[n], b.Pod),
				})
			}
		}, `
Books of node n1 (boot aaaaaaaa):
  shop/web-0 was given the address by a network plugin
  host-local, network pods: reserved for shop/web-0 since 1999-12-31 23:00:00

Books of node n1 (boot cccccccc):
  shop/web-1 was given the address by a network plugin
  host-local, network pods: reserved for shop/web-1 since 1999-12-31 23:00:00
`},
		"a book cannot be read": {func(e *document.Explanation, first, _ *document.Binding) {
			first.Given = detector.GivenYes
			e.Books = []document.Book{{Node: "n1", Kind: "host-local", CNINetwork: "pods", Range: "10.0.0.1-10.0.0.254", Error: "it is a pipe"}}
		}, `
Books of node n1:
  shop/web-0 was given the address by a network plugin
  host-local, network pods: problem: it is a pipe
`},
		"an ADD is under way": {func(e *document.Explanation, first, _ *document.Binding) {
			first.Given = detector.GivenYes
			e.Books = []document.Book{{Node: "n1", Kind: "host-local", CNINetwork: "pods", Range: "10.0.0.1-10.0.0.254", Reservation: reservation("", nil)}}
		}, `
Books of node n1:
  shop/web-0 was given the address by a network plugin
  host-local, network pods: reserved for a pod that is just being made since
    1999-12-31 23:00:00
`},
		"reserved in one of two networks that cover it": {func(e *document.Explanation, first, second *document.Binding) {
			first.Given, second.Node = detector.GivenYes, "n2"
			e.Books = []document.Book{
				{Node: "n1", Kind: "host-local", CNINetwork: "other", Range: "10.0.0.1-10.0.0.9"},
				{Node: "n1", Kind: "host-local", CNINetwork: "pods", Range: "10.0.0.1-10.0.0.254", Reservation: reservation("aaaa", first.Pod)},
			}
		}, `
Books of node n1:
  shop/web-0 was given the address by a network plugin
  host-local, network other: not reserved, although it gives out
    10.0.0.1-10.0.0.9
  host-local, network pods: reserved for shop/web-0 since 1999-12-31 23:00:00
`},
		"no conflict": {func(e *document.Explanation, first, second *document.Binding) {
			first.Given, second.Given, e.Stories[0].Conflict = detector.GivenNo, detector.GivenYes, nil
		}, `
Books of node n1:
  shop/web-0 was not given the address by any network plugin
  shop/web-1 was given the address by a network plugin
`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := between("10.0.0.1", holder("n1", "web-0", "10.0.0.1", time.Hour), holder("n1", "web-1", "10.0.0.1", time.Minute))
				e := document.Explanation{Node: "n1", IP: netip.MustParseAddr("10.0.0.1"), Stories: []document.Story{{Bindings: c.Holders, Conflict: &c}}}
				c.Holders[0].Pod.Sandbox, c.Holders[1].Pod.Sandbox = "aaaa", "bbbb"
				test.change(&e, &c.Holders[0], &c.Holders[1])
				want := test.want
				if want != "" {
					want = "\n" + want
				}
				printed(t, func(p *Printer) { stories{p}.records(say.OnRecord(e)) }, want)
			})
		})
	}
}
