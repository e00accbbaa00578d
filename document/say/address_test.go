package say

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// What the books of the nodes say, with and without a conflict; the judgement says what that means.
func TestOnRecord(t *testing.T) {
	since := " since " + noon.Local().Format("2006-01-02 15:04:05")
	const (
		was0 = "shop/web-0 was given the address by a network plugin"
		was1 = "shop/web-1 was given the address by a network plugin"
		not0 = "shop/web-0 was not given the address by any network plugin"
		not1 = "shop/web-1 was not given the address by any network plugin"
		pods = "host-local, network pods: "
		free = pods + "not reserved, although it gives out 10.0.0.1-10.0.0.254"
	)
	of := func(letter, reservedFor string, changes ...func(*document.Book)) document.Book {
		b := book(letter, reservedFor, 0)
		if b.Reservation != nil {
			b.Reservation.Since = noon
		}
		for _, change := range changes {
			change(&b)
		}
		return b
	}
	on := func(name string) func(*document.Book) { return func(b *document.Book) { b.Node = name } }
	for name, test := range map[string]struct {
		first, second document.Binding
		books         []document.Book
		want          []Records
	}{
		"nothing is known": {holder("web-0"), holder("web-1"), nil, nil},
		"taken by hand": {
			holder("web-0", given(no)), holder("web-1", given(yes)),
			[]document.Book{of("a", "web-1")},
			[]Records{{"Books of node n1:", []string{not0, was1, pods + "reserved for shop/web-1" + since}}},
		},
		"the store was wiped, and the address given out again": {
			holder("web-0", given(yes)), holder("web-1", given(yes)),
			[]document.Book{of("a", "web-1")},
			[]Records{{"Books of node n1:", []string{was0, was1, pods + "reserved for shop/web-1" + since}}},
		},
		"not reserved at all, one is of another node": {
			holder("web-0", given(yes)), holder("web-1", given(no), node("b")),
			[]document.Book{of("a", "")},
			[]Records{{"Books of node n1:", []string{was0, free}}, {"Books of node n2:", []string{not1}}},
		},
		"two nodes have one range, and a third one without a holder": {
			holder("web-0", given(yes)), holder("web-1", given(yes), node("b")),
			[]document.Book{of("a", "web-0"), of("b", "web-1"), of("a", "", on("n3"))},
			[]Records{
				{"Books of node n1:", []string{was0, pods + "reserved for shop/web-0" + since}},
				{"Books of node n2:", []string{was1, pods + "reserved for shop/web-1" + since}},
				{"Books of node n3:", []string{free}},
			},
		},
		"the holders' nodes have one name and one range": {
			holder("web-0", given(yes)), holder("web-1", given(yes), node("b"), func(b *document.Binding) { b.Node = "n1" }),
			[]document.Book{of("a", "web-0"), of("b", "web-1", on("n1"))},
			[]Records{
				{"Books of node n1 (boot aaaaaaaa):", []string{was0, pods + "reserved for shop/web-0" + since}},
				{"Books of node n1 (boot bbbbbbbb):", []string{was1, pods + "reserved for shop/web-1" + since}},
			},
		},
		"a book cannot be read": {
			holder("web-0", given(yes)), holder("web-1"),
			[]document.Book{of("a", "", func(b *document.Book) { b.Error = "it is a pipe" })},
			[]Records{{"Books of node n1:", []string{was0, pods + "problem: it is a pipe"}}},
		},
		"an ADD is under way": {
			holder("web-0", given(yes)), holder("web-1"),
			[]document.Book{of("a", "", func(b *document.Book) { b.Reservation = &document.Reservation{Since: noon} })},
			[]Records{{"Books of node n1:", []string{was0, pods + "reserved for a pod that is just being made" + since}}},
		},
		"reserved in one of two networks that cover it": {
			holder("web-0", given(yes)), holder("web-1", node("b")),
			[]document.Book{of("a", "", func(b *document.Book) { b.CNINetwork, b.Range = "other", "10.0.0.1-10.0.0.9" }), of("a", "web-0")},
			[]Records{{"Books of node n1:", []string{
				was0, "host-local, network other: not reserved, although it gives out 10.0.0.1-10.0.0.9", pods + "reserved for shop/web-0" + since,
			}}},
		},
		"no book is known": {
			holder("web-0", given(no)), holder("web-1", given(yes)), nil, []Records{{"Books of node n1:", []string{not0, was1}}},
		},
	} {
		holders := []document.Binding{test.first, test.second}
		for _, conflict := range []*document.Conflict{nil, {Holders: holders}} {
			got := OnRecord(document.Explanation{Node: "n1", IP: ip, Stories: []document.Story{{Bindings: holders, Conflict: conflict}}, Books: test.books})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s, with a conflict: %t (-want +got)\n%s", name, conflict != nil, diff)
			}
		}
	}
}

// Only of a confirmed conflict it is a question whether several are meant to have the address.
func TestMeant(t *testing.T) {
	for name, test := range map[string]struct {
		c    *document.Conflict
		want bool
	}{
		"no conflict": {nil, false},
		"confirmed":   {&document.Conflict{State: detector.Confirmed}, true},
		"suspected":   {&document.Conflict{State: detector.Suspected}, false},
		"over":        {&document.Conflict{State: detector.Resolved}, false},
		"a drill":     {&document.Conflict{State: detector.Confirmed, Drill: true}, false},
	} {
		if got := Meant(test.c); (got != "") != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestUnseen(t *testing.T) {
	for want, e := range map[string]document.Explanation{
		"":                                  {IP: ip, Node: "n1", Stories: []document.Story{{}}},
		"10.0.0.5 was not seen on node n1.": {IP: ip, Node: "n1", BootID: "b", Coverage: document.Coverage{Asked: 1}},
		"10.0.0.5 was not seen on the one node that answered.":                                         {IP: ip, Coverage: document.Coverage{Asked: 2, Missing: []string{"n2"}}},
		"10.0.0.5 was not seen on any of 3 nodes.":                                                     {IP: ip, Node: "n1", BootID: "b", Coverage: document.Coverage{Asked: 4, Missing: []string{"n2"}}},
		"10.0.0.5 is never compared: loopback addresses are no pod's own. Many may have the same one.": {IP: ip, Node: "n1", NeverCompared: "loopback"},
	} {
		if got := Unseen(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestIsConfiguredOnly(t *testing.T) {
	for _, test := range []struct {
		b    document.Binding
		want bool
	}{
		{document.Binding{Evidence: detector.Configured}, true},
		{document.Binding{Evidence: detector.Configured, Gone: true}, false},
		{document.Binding{Evidence: detector.Announced}, false},
	} {
		if got := IsConfiguredOnly(test.b); got != test.want {
			t.Errorf("%+v: %t", test.b, got)
		}
	}
}
