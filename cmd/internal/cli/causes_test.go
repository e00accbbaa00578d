package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// explanation is of a conflict of pods on these nodes, "name/boot".
func explanation(nodes []string, books ...document.Book) document.Explanation {
	var holders []document.Binding
	for n, node := range nodes {
		name, boot, _ := strings.Cut(node, "/")
		holders = append(holders, document.Binding{
			Holder: document.Holder{
				Node: name, BootID: boot, Netns: fmt.Sprint("cni-", n),
				Pod: &document.Pod{Namespace: "shop", Name: fmt.Sprint("web-", n), Sandbox: fmt.Sprint("sandbox", n)},
			}, Evidence: detector.Announced,
		})
	}
	c := document.Conflict{Holders: holders}
	return document.Explanation{Stories: []document.Story{{Bindings: holders, Conflict: &c}}, Books: books}
}

// ranges are books of nodes that give out one range.
func ranges(nodes ...string) (list []document.Book) {
	for _, n := range nodes {
		name, boot, _ := strings.Cut(n, "/")
		list = append(list, document.Book{Node: name, BootID: boot, Kind: "host-local", CNINetwork: "pods", Range: "10.1.2.1-10.1.2.254"})
	}
	return list
}

// What makes two nodes share an address, as far as it was read.
func TestCausesBetweenNodes(t *testing.T) {
	const machines = "two machines are called n1: n1 (boot aaaa) and n1 (boot bbbb). One of them was probably replaced and still runs, or is a clone."
	for name, test := range map[string]struct {
		nodes []string
		books []document.Book
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
			e.Stories[0].Bindings[n].Given = detector.GivenYes
		}
		text := strings.Join(Causes(e), "\n")
		if strings.Contains(text, "the store of host-local (network pods) on node n1 was probably wiped: 3 addresses of its pods have no reservation") != wiped ||
			!strings.Contains(text, "shop/web-0 on n1 lost its reservation: host-local (network pods) has none") || strings.Contains(text, "web-1") {
			t.Errorf("%d: %q", unreserved, text)
		}
		e.Books[0].Error = "it is a pipe"
		if causes := Causes(e); len(causes) != 0 {
			t.Errorf("a book that cannot be read: %q", causes)
		}
	}
}

// When it is over, the books say something else, and the cause is what they said when the conflict was confirmed.
func TestCausesOfThePast(t *testing.T) {
	nodes := []string{"n1/a", "n2/b"}
	then := ranges(nodes...)
	then[0].Reservation = &document.Reservation{Sandbox: "other", Pod: &document.Pod{Namespace: "shop", Name: "new"}}
	now := ranges("n1/a")
	e := explanation(nodes, now...)
	c := e.Stories[0].Conflict
	c.State, c.Books = detector.Resolved, then
	e.Stories[0].Bindings = nil
	c.Holders[0].Given, c.Holders[1].Given = detector.GivenYes, detector.GivenYes
	want := "two nodes give out addresses of one range: n1 10.1.2.1-10.1.2.254 (host-local, network pods) and n2 10.1.2.1-10.1.2.254 (host-local, network pods). A range must be one node's.\n" +
		"shop/web-0 on n1 lost its reservation: host-local (network pods) has reserved the address for shop/new.\n" +
		"shop/web-1 on n2 lost its reservation: host-local (network pods) had none for the address."
	if got := strings.Join(Causes(e), "\n"); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	c.Books = nil
	if got := Causes(e); len(got) != 0 {
		t.Errorf("nothing was read then: %q", got)
	}
}

// Why duplicate address detection failed is not known: the sentence says who has the address now, or had it.
func TestDetectionFailed(t *testing.T) {
	const failed = "cni-9: duplicate address detection failed in its kernel, which does not use the address. "
	const unseen = failed + "Another holder was not seen: perhaps the pod's own packet came back (a hairpin port, a loop), or one has the " +
		"address that dupip does not observe."
	one := func(node, netns string, evidence detector.Evidence) document.Binding {
		return document.Binding{Holder: document.Holder{Node: node, Netns: netns, Interface: "veth1"}, Evidence: evidence}
	}
	gone := func(node, netns string) document.Binding { return one(node, netns, detector.Announced) }
	for name, test := range map[string]struct {
		network          string
		bindings, former []document.Binding
		want             string
	}{
		"nobody":              {"default", nil, nil, unseen},
		"in another network":  {"blue", []document.Binding{one("n1", "cni-1", detector.Announced)}, []document.Binding{gone("n1", "cni-2")}, unseen},
		"only forwarded":      {"default", []document.Binding{one("n1", "cni-1", detector.Forwarded)}, []document.Binding{gone("n1", "cni-1")}, unseen},
		"one now":             {"default", []document.Binding{one("n1", "cni-1", detector.Announced)}, []document.Binding{gone("n1", "cni-1"), gone("n1", "cni-2")}, failed + "Now cni-1 has the address."},
		"the node":            {"default", []document.Binding{one("n1", "host", detector.Host)}, nil, failed + "Now node n1 has the address."},
		"two now":             {"default", []document.Binding{one("n1", "cni-1", detector.Data), one("n2", "cni-2", detector.Announced)}, nil, failed + "Now cni-1 on n1 and cni-2 on n2 have the address."},
		"itself":              {"default", []document.Binding{one("n1", "cni-9", detector.Announced)}, nil, failed + "Now the pod itself, by its interface veth1, has the address."},
		"one before":          {"default", nil, []document.Binding{gone("n1", "cni-1"), gone("n1", "")}, failed + "cni-1 was seen with the address, and has it no more."},
		"itself before":       {"default", nil, []document.Binding{gone("n1", "cni-9")}, unseen},
		"two before":          {"default", nil, []document.Binding{gone("n2", "cni-1"), gone("n1", "cni-1")}, failed + "cni-1 and cni-1 on n2 were seen with the address, and have it no more."},
		"a namesake of a pod": {"default", nil, []document.Binding{gone("n2", "cni-9")}, failed + "cni-9 on n2 was seen with the address, and has it no more."},
	} {
		e := document.Explanation{
			Node: "n1", Stories: []document.Story{{Network: test.network, Bindings: test.bindings, Former: test.former}},
			Configured: []document.Configured{{Network: "default", Netns: "cni-9", Lost: true}},
		}
		if got := Causes(e); len(got) != 1 || got[0] != test.want {
			t.Errorf("%s:\n%q, want\n%q", name, got, test.want)
		}
	}
}
