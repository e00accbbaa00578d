package say

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// TestWordsOfBooks has the words of what a reporter knows, and of Azure CNS.
func TestWordsOfBooks(t *testing.T) {
	listed := func(pod string) change {
		return func(b *document.Binding) { b.Listing = &document.Listing{Pod: pod} }
	}
	lost := func(a, b document.Binding, books ...document.Book) document.Conflict {
		c := judged(document.CauseLost, likely, "0 remove not-reserved, 1 keep reserved", a, b)
		c.Books = books
		return c
	}
	reservation := func(pod, node string) *document.Reservation {
		return &document.Reservation{Pod: &document.Pod{Namespace: "shop", Name: pod}, Node: node, Until: noon}
	}
	calico := document.Book{Kind: "calico", CNINetwork: "pool", Covers: true, Reservation: reservation("db-11", "n2")}
	misbooked, freed := calico, calico
	misbooked.Former, freed.Former = reservation("web-0", "n3"), reservation("web-0", "n1")
	cns := func(sandbox string, pod *document.Pod, unreserved int) document.Book {
		return document.Book{
			Node: "n1", BootID: boot("a"), Kind: "azure-cns", CNINetwork: "azure", Unreserved: unreserved, Reservation: &document.Reservation{Sandbox: sandbox, Pod: pod},
		}
	}
	old, young, far := holder("web-0", given(yes)), holder("web-11", given(yes), later(9)), holder("db-11", given(yes), node("b"), later(9))
	deleted := judged(document.CauseDeleted, likely, "0 remove unlisted, 1 keep reserved", holder("web-0", given(yes), func(b *document.Binding) {
		b.Listing = &document.Listing{Pod: document.PodUnlisted, NodeDeleted: noon.Add(-time.Minute)}
	}), far)
	deleted.Judgement.Nodes, deleted.Books = []string{old.NodeID()}, []document.Book{calico}
	earlier := func(node string) []document.Book {
		return []document.Book{{Kind: "azure", Covers: true, Reservation: &document.Reservation{Node: node}, OwnerUID: "0e1f2a3b-4c5d-4e6f-8a9b-0c1d2e3f4a5b"}}
	}
	replaced := judged(document.CauseNamesakes, open, bothOpen, holder("web-0", listed(document.PodUnlisted)),
		holder("db-11", listed(document.PodListed), func(b *document.Binding) { b.BootID = boot("b") }))
	replaced.Judgement.Nodes, replaced.Books = []string{"n1/" + boot("a"), "n1/" + boot("b")}, earlier("n1")
	shared := judged(document.CauseSharedRange, open, bothOpen, old, far)
	shared.Judgement.Nodes, shared.Books = []string{old.NodeID(), far.NodeID()}, earlier("n2")
	several := cns("", nil, 0)
	several.Reservation.Sandboxes = []string{"0123456789abc", young.Pod.Sandbox}
	all := []situation{
		{"booked for another node", lost(old, far, misbooked)},
		{"freed while it ran", lost(old, far, freed)},
		{"not reserved any more", lost(old, far, calico)},
		{"a deleted Node", deleted},
		{"Azure CNS has freed the address", lost(old, young, cns(young.Pod.Sandbox, young.Pod, 1))},
		{"Azure CNS has it for a dead sandbox, too", lost(old, young, several)},
		{"Azure CNS has it for both", with(judged(document.CauseUnknown, open, bothOpen, old, young), func(c *document.Conflict) { c.Books = []document.Book{several} })},
		{"Azure CNS has freed several addresses", lost(old, young, cns(young.Pod.Sandbox, young.Pod, 8))},
		{"Azure CNS has freed several addresses of a node whose name is not safe for a shell", with(lost(old, young, cns(young.Pod.Sandbox, young.Pod, 8)), func(c *document.Conflict) {
			c.Books[0].Node = "n1;reboot"
			for n := range c.Holders {
				c.Holders[n].Node = "n1;reboot"
			}
		})},
		{"a node was replaced, and its machine runs", replaced},
		{"the addresses of an earlier node are another one's", shared},
		{"over: the addresses of an earlier node were another one's", with(shared, func(c *document.Conflict) { c.Judgement, c.State = new(*c.Judgement), detector.Resolved })},
	}
	var out strings.Builder
	for _, s := range all {
		Fill(&s.c, at)
		j := s.c.Judgement
		fmt.Fprintf(&out, "## %s\nshort: %s\ntext: %s\n%s\n", s.name, j.Short, j.Text, strings.Join(each(j.Steps, lines), ""))
	}
	golden(t, "testdata/books.txt", out.String())
}
