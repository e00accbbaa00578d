package main

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/agent/api"
)

// What the books of this node say, and a cause only if its evidence was read.
func TestPrintBooks(t *testing.T) {
	yes, no := true, false
	reservation := func(sandbox string, pod *api.Pod) *api.Reservation {
		return &api.Reservation{Sandbox: sandbox, Pod: pod, Since: ago(time.Hour)}
	}
	for name, test := range map[string]struct {
		change func(e *api.Explanation, first, second *api.Binding)
		want   string
	}{
		"nothing is known": {func(*api.Explanation, *api.Binding, *api.Binding) {}, ""},
		"taken by hand": {func(e *api.Explanation, first, second *api.Binding) {
			first.Given, second.Given = &no, &yes
			e.Books = []api.Book{{Kind: "host-local", Network: "pods", Covers: true, Reservation: reservation("bbbb", second.Pod)}}
		}, `
Books of node n1:
  shop/web-0 was not given the address by any network plugin
  shop/web-1 was given the address by a network plugin
  host-local, network pods: reserved for shop/web-1 since 1999-12-31 23:00:00

Because:
  shop/web-0 took the address by hand: CNI's result of its sandbox does not have
    it.
`},
		"the store was wiped, and the address given out again": {func(e *api.Explanation, first, second *api.Binding) {
			first.Given, second.Given = &yes, &yes
			e.Books = []api.Book{{Kind: "host-local", Network: "pods", Covers: true, Reservation: reservation("bbbb", second.Pod)}}
		}, `
Books of node n1:
  shop/web-0 was given the address by a network plugin
  shop/web-1 was given the address by a network plugin
  host-local, network pods: reserved for shop/web-1 since 1999-12-31 23:00:00

Because:
  shop/web-0 lost its reservation: host-local (network pods) has reserved the
    address for shop/web-1.
`},
		"not reserved at all, one is of another node": {func(e *api.Explanation, first, second *api.Binding) {
			first.Given, second.Given, second.Node = &yes, &no, "n2"
			e.Books = []api.Book{{Kind: "host-local", Network: "pods", Covers: true}}
		}, `
Books of node n1:
  shop/web-0 was given the address by a network plugin
  host-local, network pods: not reserved, although it gives out this range

Because:
  shop/web-0 lost its reservation: host-local (network pods) has none for the
    address, and gives it out again.
`},
		"a book cannot be read": {func(e *api.Explanation, first, _ *api.Binding) {
			first.Given = &yes
			e.Books = []api.Book{{Kind: "host-local", Network: "pods", Covers: true, Error: "it is a pipe"}}
		}, `
Books of node n1:
  shop/web-0 was given the address by a network plugin
  host-local, network pods: problem: it is a pipe
`},
		"an ADD is under way": {func(e *api.Explanation, first, _ *api.Binding) {
			first.Given = &yes
			e.Books = []api.Book{{Kind: "host-local", Network: "pods", Covers: true, Reservation: reservation("", nil)}}
		}, `
Books of node n1:
  shop/web-0 was given the address by a network plugin
  host-local, network pods: reserved for a pod that is just being made since
    1999-12-31 23:00:00
`},
		"reserved in one of two networks that cover it": {func(e *api.Explanation, first, second *api.Binding) {
			first.Given, second.Node = &yes, "n2"
			e.Books = []api.Book{
				{Kind: "host-local", Network: "other", Covers: true},
				{Kind: "host-local", Network: "pods", Covers: true, Reservation: reservation("aaaa", first.Pod)},
			}
		}, `
Books of node n1:
  shop/web-0 was given the address by a network plugin
  host-local, network other: not reserved, although it gives out this range
  host-local, network pods: reserved for shop/web-0 since 1999-12-31 23:00:00
`},
		"no conflict": {func(e *api.Explanation, first, second *api.Binding) {
			first.Given, second.Given, e.Stories[0].Conflict = &no, &yes, nil
		}, `
Books of node n1:
  shop/web-0 was not given the address by any network plugin
  shop/web-1 was given the address by a network plugin
`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := between("10.0.0.1", holder("n1", "web-0", "10.0.0.1", time.Hour), holder("n1", "web-1", "10.0.0.1", time.Minute))
				e := api.Explanation{Node: "n1", IP: "10.0.0.1", Stories: []api.Story{{Bindings: c.Holders, Conflict: &c}}}
				c.Holders[0].Pod.Sandbox, c.Holders[1].Pod.Sandbox = "aaaa", "bbbb"
				test.change(&e, &c.Holders[0], &c.Holders[1])
				want := test.want
				if want != "" {
					want = "\n" + want
				}
				printed(t, func(out io.Writer) { printBooks(out, e) }, want)
			})
		})
	}
}
