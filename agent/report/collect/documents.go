package collect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/report/merge"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Bindings makes the document of bindings.
func (c *Collection) Bindings(q api.Query) api.Bindings {
	bindings, omitted := merge.Bindings(c.answers)
	document := api.Bindings{
		Node: c.Self.Name, Bindings: make([]api.Binding, 0, len(bindings)), Coverage: c.covered(omitted),
	}
	for _, b := range bindings {
		if b := api.NewBinding(b); q.SelectsBinding(b) {
			document.Bindings = append(document.Bindings, b)
		}
	}
	return document
}

// Conflicts makes the document of conflicts.
func (c *Collection) Conflicts(q api.Query) api.Conflicts {
	conflicts, omitted := merge.Conflicts(c.answers, c.Rules)
	document := api.Conflicts{
		Node: c.Self.Name, Conflicts: make([]api.Conflict, 0, len(conflicts)), Coverage: c.covered(omitted),
	}
	selected := conflicts[:0]
	for _, conflict := range conflicts {
		one := api.NewConflict(conflict)
		if !q.SelectsConflict(one) {
			continue // without advice, which is limited
		}
		c.advise(&one, conflict)
		document.Conflicts = append(document.Conflicts, one)
		selected = append(selected, conflict)
	}
	for _, pair := range merge.Pairs(selected) {
		document.Pairs = append(document.Pairs, pair.Pair)
	}
	return document
}

// Explanation makes the document about q.IP.
func (c *Collection) Explanation(q api.Query) api.Explanation {
	document := api.Explanation{
		Node: c.Self.Name, BootID: c.Self.Boot, IP: q.IP.String(), Stories: []api.Story{}, Configured: c.Configured, Coverage: c.covered(0),
		NeverCompared: neverCompared(q.IP),
	}
	for _, a := range c.answers {
		for _, b := range a.Document.Books {
			document.Books = append(document.Books, newBook(a.Member, b))
		}
	}
	for _, story := range merge.Stories(c.answers, c.Rules) {
		document.Stories = append(document.Stories, c.story(story))
	}
	return document
}

// neverCompared says what an address is that the observer passes over, as bpf/parse.h has it; empty for others.
func neverCompared(ip netip.Addr) string {
	switch {
	case ip.IsLoopback():
		return "loopback"
	case ip.IsLinkLocalUnicast():
		return "link-local"
	case ip.IsMulticast():
		return "multicast"
	case ip.IsUnspecified():
		return "unspecified"
	}
	return ""
}

// Audit makes the document of findings, without the books of the asking node. What is not checked counts: only here it is judged
// whether books and wire agree.
func (c *Collection) Audit(q api.Query) api.Audit {
	document := api.Audit{Node: c.Self.Name, BootID: c.Self.Boot, Findings: []api.Finding{}}
	omitted := 0
	var others []string // what was not checked on other nodes, and there
	where := make(map[string][]string)
	nowhere := false // an answer had nothing of what was asked for, and has not said why
	for _, a := range c.answers {
		omitted += a.Document.Omitted
		document.Checked = append(document.Checked, a.Document.Checked...)
		nowhere = nowhere || len(a.Document.Checked)+len(a.Document.Unchecked) == 0
		for _, text := range a.Document.Unchecked {
			if a.Member.NodeID() == c.Self.NodeID() {
				document.Unchecked = append(document.Unchecked, text)
				continue
			}
			if where[text] == nil {
				others = append(others, text)
			}
			where[text] = append(where[text], a.Member.Name)
		}
		for _, f := range a.Document.Findings {
			if f := NewFinding(a.Member, f); q.SelectsFinding(f) {
				document.Findings = append(document.Findings, f)
			}
		}
	}
	for _, text := range others {
		slices.Sort(where[text])
		on := "on node " + where[text][0]
		if n := len(where[text]); n > 1 {
			on = fmt.Sprintf("on %d nodes (%s)", n, detector.List(where[text]))
		}
		document.Unchecked = append(document.Unchecked, on+", "+text)
	}
	slices.SortStableFunc(document.Findings, func(x, y api.Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(cluster.FindingKinds, x.Kind), slices.Index(cluster.FindingKinds, y.Kind)), cmp.Compare(x.Node, y.Node))
	})
	slices.Sort(document.Checked)
	document.Checked = slices.Compact(document.Checked)
	document.Coverage = c.covered(omitted)
	switch {
	case len(document.Findings) > 0:
		document.Verdict = api.AuditFindings
	case len(document.Checked) == 0:
		document.Verdict = api.AuditNothing
		if nowhere {
			document.Unchecked = append(document.Unchecked, "what was asked for: it is in no book that dupip reads")
		}
	case len(document.Unchecked) > 0 || document.Partial:
		document.Verdict = api.AuditPartly
	default:
		document.Verdict = api.AuditAgrees
	}
	return document
}

// Evidence makes the document of what the holders of q.IP sent.
func (c *Collection) Evidence(q api.Query) api.Evidence {
	document := api.Evidence{Node: c.Self.Name, IP: q.IP.String(), Captures: []api.Capture{}}
	omitted := 0
	for _, a := range c.answers {
		omitted += a.Document.Omitted
		for _, text := range a.Document.Unchecked {
			document.Unchecked = append(document.Unchecked, "on node "+a.Member.Name+", "+text)
		}
		for _, v := range a.Document.Captures {
			if v.Key.IP != q.IP { // not what was asked for
				omitted++
				continue
			}
			document.Captures = append(document.Captures, newCapture(a.Member, v))
		}
	}
	slices.Sort(document.Unchecked)
	slices.SortStableFunc(document.Captures, func(x, y api.Capture) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Node, y.Node))
	})
	document.Coverage = c.covered(omitted)
	return document
}

// newCapture makes the document of what a holder on a node sent.
func newCapture(node cluster.Member, v cluster.Capture) api.Capture {
	document := api.Capture{
		Node: node.Name, BootID: node.Boot, Conflict: v.Conflict, Network: v.Key.Network, IP: v.Key.IP.String(), Since: v.Since.Round(0),
		Until: v.Until.Round(0), Interface: v.Holder.InterfaceName, Netns: v.Holder.NetnsName, MAC: v.Holder.MAC.String(),
		Pod: api.NewPod(v.Holder.Pod), Lost: v.Lost, Frames: make([]api.Frame, 0, len(v.Frames)),
	}
	for _, f := range v.Frames {
		document.Frames = append(document.Frames, api.Frame{At: f.At.Round(0), Length: f.Length, Data: f.Data})
	}
	return document
}

// Status returns the status of the node with that name, as its agent made it.
func (c *Collection) Status(node string) (document api.Status, err error) {
	// Of namesakes, the first one that answered.
	n := slices.IndexFunc(c.answers, func(a cluster.Answer) bool { return len(a.Document.Status) > 0 })
	if n < 0 {
		return document, fmt.Errorf("node %s does not send its status: \"dupip nodes\" shows whether its agent runs, and its version", node)
	}
	if err = json.Unmarshal(c.answers[n].Document.Status, &document); err != nil {
		return document, fmt.Errorf("node %s: the status that it sent cannot be read: %w", node, err)
	}
	document.Node, document.BootID = c.answers[n].Member.Name, c.answers[n].Member.Boot
	return document, nil
}

// NewFinding makes the document of a finding on a node.
func NewFinding(node cluster.Member, f cluster.Finding) api.Finding {
	return api.Finding{
		Node: node.Name, BootID: node.Boot, Kind: f.Kind, IP: f.IP.String(), Network: f.Network, Book: f.Book, Store: f.Store, Since: f.Since.Round(0),
		Interface: f.Interface, Netns: f.Netns, Pod: api.NewPod(f.Pod), Sandbox: f.Sandbox, Given: api.NewGiven(f.Given),
		ReservedFor: f.ReservedFor, ReservedPod: api.NewPod(f.ReservedPod),
	}
}

// newBook makes the document of what a book of a node says of an address.
func newBook(node cluster.Member, b cluster.Book) api.Book {
	document := api.Book{
		Node: node.Name, BootID: node.Boot, Kind: b.Kind, Network: b.Network, Covers: b.First.IsValid(), Unreserved: b.Unreserved, Error: b.Error,
	}
	if b.First.IsValid() {
		document.Range = b.First.String() + "-" + b.Last.String()
	}
	if b.Reserved {
		document.Reservation = &api.Reservation{Sandbox: b.Sandbox, Pod: api.NewPod(b.Pod), Since: b.Since.Round(0)}
	}
	return document
}
