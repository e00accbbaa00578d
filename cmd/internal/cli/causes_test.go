package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dupip/dupip/agent/api"
)

// explanation is of a conflict of pods on these nodes, "name/boot".
func explanation(nodes []string, books ...api.Book) api.Explanation {
	var holders []api.Binding
	for n, node := range nodes {
		name, boot, _ := strings.Cut(node, "/")
		holders = append(holders, api.Binding{
			Node: name, BootID: boot, Evidence: "announced", Netns: fmt.Sprint("cni-", n),
			Pod: &api.Pod{Namespace: "shop", Name: fmt.Sprint("web-", n), Sandbox: fmt.Sprint("sandbox", n)},
		})
	}
	c := api.Conflict{Holders: holders}
	return api.Explanation{Stories: []api.Story{{Bindings: holders, Conflict: &c}}, Books: books}
}

// ranges are books of nodes that give out one range.
func ranges(nodes ...string) (list []api.Book) {
	for _, n := range nodes {
		name, boot, _ := strings.Cut(n, "/")
		list = append(list, api.Book{Node: name, BootID: boot, Kind: "host-local", Network: "pods", Range: "10.1.2.1-10.1.2.254"})
	}
	return list
}

// What makes two nodes share an address, as far as it was read.
func TestCausesBetweenNodes(t *testing.T) {
	const machines = "two machines are called n1: n1 (boot aaaa) and n1 (boot bbbb). One of them was replaced and still runs, or is a clone."
	for name, test := range map[string]struct {
		nodes []string
		books []api.Book
		want  string
	}{
		"two nodes, two ranges": {[]string{"n1/a", "n2/b"}, ranges("n1/a"), ""},
		"one range": {
			[]string{"n1/a", "n2/b"},
			ranges("n1/a", "n2/b"),
			"two nodes give out addresses of one range: n1 10.1.2.1-10.1.2.254 (host-local, network pods) and n2 10.1.2.1-10.1.2.254 (host-local, network pods). A range must be one node's.",
		},
		"the range of a node without holder": {[]string{"n1/a", "n2/b"}, ranges("n1/a", "n3/c"), ""},
		"one node with two networks":         {[]string{"n1/a", "n1/a"}, ranges("n1/a", "n1/a"), ""},
		"another boot of a node":             {[]string{"n1/a", "n2/b"}, ranges("n1/a", "n2/c"), ""},
		"two machines of one name":           {[]string{"n1/aaaa", "n1/bbbb"}, nil, machines},
		"two machines of one name, one range": {
			[]string{"n1/aaaa", "n1/bbbb"},
			ranges("n1/aaaa", "n1/bbbb"),
			machines + "\ntwo nodes give out addresses of one range: n1 (boot aaaa) 10.1.2.1-10.1.2.254 (host-local, network pods) and n1 (boot bbbb) 10.1.2.1-10.1.2.254 (host-local, network pods). A range must be one node's.",
		},
		"three holders on two machines": {[]string{"n1/aaaa", "n1/bbbb", "n1/bbbb"}, nil, machines},
	} {
		if got := strings.Join(Causes(explanation(test.nodes, test.books...)), "\n"); got != test.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, test.want)
		}
	}
}

// A store that has lost many reservations at once was wiped; a book counts for the holders of its own node.
func TestWipedStore(t *testing.T) {
	for unreserved, wiped := range map[int]bool{0: false, wipedStore - 1: false, wipedStore: true} {
		book := ranges("n1/a")[0]
		book.Unreserved = unreserved
		e := explanation([]string{"n1/a", "n2/b"}, book)
		for n := range e.Stories[0].Bindings {
			e.Stories[0].Bindings[n].Given = new(true)
		}
		text := strings.Join(Causes(e), "\n")
		if strings.Contains(text, "the store of host-local (network pods) on node n1 was wiped: 3 addresses of its pods have lost") != wiped ||
			!strings.Contains(text, "shop/web-0 on n1 lost its reservation: host-local (network pods) has none") || strings.Contains(text, "web-1") {
			t.Errorf("%d: %q", unreserved, text)
		}
		e.Books[0].Error = "it is a pipe"
		if causes := Causes(e); len(causes) != 0 {
			t.Errorf("a book that cannot be read: %q", causes)
		}
	}
}
