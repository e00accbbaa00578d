package judge

import (
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// TestBooked: what a reporter knows decides what the agents leave open, if book and API server agree.
func TestBooked(t *testing.T) {
	listed := func(b document.Binding, pod string) document.Binding {
		return changed(b, func(b *document.Binding) { b.Listing = &document.Listing{Pod: pod} })
	}
	onDeleted := func(b document.Binding) document.Binding {
		return changed(b, func(b *document.Binding) {
			b.Listing = &document.Listing{Pod: document.PodUnlisted, NodeDeleted: now.Add(-time.Hour)}
		})
	}
	old, young := listed(holder("n4", "old", 60), document.PodListed), listed(holder("n2", "young", 5), document.PodListed)
	orphan, leftOver := onDeleted(old), listed(old, document.PodUnlisted)
	silent := changed(orphan, func(b *document.Binding) { b.Unreachable = true })
	namesake := changed(young, func(b *document.Binding) { b.Pod.Name = "old" })
	unread, bare := holder("n2", "young", 5), old
	bare.Facts = nil
	calico := func(pod, sandbox string) []document.Book {
		b := document.Book{Kind: "calico", CNINetwork: "default-pool", Covers: true}
		if pod != "" {
			b.Reservation = &document.Reservation{Pod: &document.Pod{Namespace: "shop", Name: pod}, Sandbox: sandbox, Node: "n1"}
		}
		return []document.Book{b}
	}
	azure := func(node, uid string) []document.Book {
		return []document.Book{{Kind: "azure", Covers: true, Reservation: &document.Reservation{Node: node}, OwnerUID: uid}}
	}
	const shared, ofBoth = document.CauseSharedRange, "open, open"
	const lost, deleted, unlisted, unknown = document.CauseLost, document.CauseDeleted, document.CauseUnlisted, document.CauseUnknown
	for name, c := range map[string]struct {
		a, b            document.Binding
		books           []document.Book
		cause, verdicts string
	}{
		"the incident":                        {old, young, calico("young", "sandbox-young"), lost, "remove not-reserved, keep reserved"},
		"without the sandbox in the book":     {old, young, calico("young", ""), lost, "remove not-reserved, keep reserved"},
		"the elder has it":                    {old, young, calico("old", "sandbox-old"), lost, "keep reserved, remove not-reserved"},
		"by its sandbox, whatever the name":   {old, namesake, calico("old", "sandbox-young"), lost, "remove not-reserved, keep reserved"},
		"two of the name, without a sandbox":  {old, namesake, calico("old", ""), unknown, "open, open"},
		"a third one's":                       {old, young, calico("third", "sandbox-third"), unknown, "open, open"},
		"nobody's":                            {old, young, calico("", ""), unknown, "open, open"},
		"the API server is not read":          {holder("n4", "old", 60), unread, calico("young", "sandbox-young"), unknown, "open, open"},
		"the book is not read":                {leftOver, young, nil, unknown, "open, open"},
		"not told by its node":                {bare, young, calico("young", "sandbox-young"), unknown, "open, open"},
		"not known who was given it":          {given(old, detector.GivenUnknown), young, calico("young", "sandbox-young"), unknown, "open, open"},
		"its owner is not listed":             {old, listed(young, document.PodUnlisted), calico("young", "sandbox-young"), unknown, "open, open"},
		"deleted, and still running":          {leftOver, young, calico("young", "sandbox-young"), unlisted, "remove unlisted, keep reserved"},
		"deleted, and reserved for nobody":    {leftOver, young, calico("", ""), unknown, "open, open"},
		"the Node is deleted":                 {orphan, young, calico("young", "sandbox-young"), deleted, "remove unlisted, keep reserved"},
		"and the book has it for the orphan":  {orphan, young, calico("old", "sandbox-old"), unknown, "open, open"},
		"and its agent does not answer":       {silent, young, calico("young", "sandbox-young"), deleted, "open, open"},
		"and nobody is listed":                {orphan, onDeleted(young), calico("", ""), unknown, "open, open"},
		"the book of a node has it, too":      {old, young, append(calico("young", "sandbox-young"), book("n4", "")), unknown, "open, open"},
		"the book of a node without a holder": {old, young, append(calico("young", "sandbox-young"), book("n7", "")), lost, "remove not-reserved, keep reserved"},
		"an object of an earlier node":        {old, young, azure("n2", "uid"), shared, ofBoth},
		"of the other one":                    {old, young, azure("n4", "uid"), shared, ofBoth},
		"of a third one":                      {old, young, azure("n7", "uid"), unknown, ofBoth},
		"of the node itself":                  {old, young, azure("n2", ""), unknown, ofBoth},
		"and both are on that node":           {old, listed(holder("n4", "young", 5), document.PodListed), azure("n4", "uid"), unknown, ofBoth},
	} {
		conflict := document.Conflict{
			Network: "default", IP: at, State: detector.Confirmed, ConfirmedAt: now.Add(-4 * time.Minute), Holders: []document.Binding{c.a, c.b}, Books: c.books,
		}
		j := Of(conflict, ctx)
		if got := verdicts(j); got != c.verdicts || j.Cause != c.cause {
			t.Errorf("%s: %s, %s; want %s, %s", name, j.Cause, got, c.cause, c.verdicts)
		}
		if c.cause == deleted && (len(j.Nodes) != 1 || j.Nodes[0] != old.NodeID()) {
			t.Errorf("%s: about %q", name, j.Nodes)
		}
		if c.cause == shared && len(j.Nodes) != 2 {
			t.Errorf("%s: about %q", name, j.Nodes)
		}
	}
}
