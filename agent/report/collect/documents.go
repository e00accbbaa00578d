package collect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/judge"
	"github.com/dupip/dupip/document/merge"
	"github.com/dupip/dupip/document/say"
)

// Bindings makes the document of bindings.
func (c *Collection) Bindings(q document.Query) document.Bindings {
	bindings, omitted := merge.Bindings(c.answers)
	doc := document.Bindings{Node: c.Self.Name, Bindings: []document.Binding{}, Coverage: c.covered(omitted)}
	for _, b := range bindings {
		if q.SelectsBinding(b) {
			doc.Bindings = append(doc.Bindings, b)
		}
	}
	return doc
}

// Conflicts makes the document of conflicts.
func (c *Collection) Conflicts(q document.Query) document.Conflicts {
	conflicts, omitted := merge.Conflicts(c.answers, c.Rules)
	doc := document.Conflicts{Node: c.Self.Name, Conflicts: []document.Conflict{}, Coverage: c.covered(omitted)}
	for _, conflict := range conflicts {
		if q.SelectsConflict(conflict) {
			c.judge(&conflict) // only these: judgements are limited
			doc.Conflicts = append(doc.Conflicts, conflict)
		}
	}
	for _, pair := range merge.Pairs(doc.Conflicts) {
		doc.Pairs = append(doc.Pairs, pair.Pair)
	}
	return doc
}

// Explanation makes the document about q.IP.
func (c *Collection) Explanation(q document.Query) document.Explanation {
	doc := document.Explanation{
		Node: c.Self.Name, BootID: c.Self.Boot, IP: q.IP, Configured: c.Configured, Coverage: c.covered(0),
		NeverCompared: neverCompared(q.IP), Stories: merge.Stories(c.answers, c.Rules),
	}
	for _, a := range c.answers {
		doc.Books = append(doc.Books, a.Books...)
	}
	if c.Books != nil {
		doc.Books = append(doc.Books, c.Books.Of(q.IP)...)
	}
	for _, a := range c.answers {
		for _, f := range a.Findings {
			if about := f.Kind == document.Diverted || f.Kind == document.Misrouted; about && f.IP == q.IP && !c.diverted(f) {
				doc.Findings = append(doc.Findings, f)
			}
		}
		for _, r := range a.Routes {
			if r.Ends, r.Policy = false, false; len(doc.Routes) < merge.MaxRoutes {
				doc.Routes = append(doc.Routes, r)
			}
		}
	}
	for i := range doc.Stories {
		if conflict := doc.Stories[i].Conflict; conflict != nil {
			if conflict.State == detector.Confirmed {
				doc.Routes = nil
			}
			c.addRoutes(conflict)
			c.judge(conflict)
		}
	}
	return doc
}

// addRoutes adds the routes of the nodes that have no holder.
func (c *Collection) addRoutes(conflict *document.Conflict) {
	if conflict.Network != config.DefaultNetwork || conflict.State != detector.Confirmed {
		return
	}
	for _, a := range slices.SortedFunc(slices.Values(c.answers), func(x, y document.Answer) int { return cmp.Compare(x.NodeID(), y.NodeID()) }) {
		isKnown := a.Self || slices.ContainsFunc(conflict.Routes, func(r document.Route) bool { return r.NodeID() == a.NodeID() })
		if isKnown || len(conflict.Routes)+len(a.Routes) > merge.MaxRoutes {
			continue
		}
		for _, r := range a.Routes {
			r.Ends, r.Policy = false, false
			conflict.Routes = append(slices.Clip(conflict.Routes), r)
		}
	}
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
func (c *Collection) Audit(q document.Query) document.Audit {
	doc := document.Audit{Node: c.Self.Name, BootID: c.Self.Boot, Findings: []document.Finding{}}
	omitted := 0
	var others []string // what was not checked on other nodes, and there
	where := make(map[string][]string)
	answers := c.answers
	hasBook := false // Self reads the book of an IPAM for all nodes
	if c.Books != nil {
		if own := c.Books.Findings(); len(own.Checked)+len(own.Unchecked) > 0 {
			own.Self = true
			hasBook = slices.ContainsFunc(own.Checked, func(book string) bool { return book != document.Kubernetes })
			answers = append(slices.Clip(answers), own)
		}
	}
	nowhere := false // an answer had nothing of what was asked for, and has not said why
	for _, a := range answers {
		omitted += a.Omitted
		doc.Checked = append(doc.Checked, a.Checked...)
		if a.NoBook != "" && !hasBook {
			a.Unchecked = append([]string{a.NoBook}, a.Unchecked...)
		}
		nowhere = nowhere || len(a.Checked)+len(a.Unchecked) == 0 && a.NoBook == ""
		for _, text := range a.Unchecked {
			if a.Self {
				doc.Unchecked = append(doc.Unchecked, text)
				continue
			}
			if where[text] == nil {
				others = append(others, text)
			}
			where[text] = append(where[text], a.Node)
		}
		for _, f := range a.Findings {
			if q.SelectsFinding(f) && !c.diverted(f) {
				doc.Findings = append(doc.Findings, f)
			}
		}
	}
	for _, text := range others {
		slices.Sort(where[text])
		on := "on node " + where[text][0]
		if n := len(where[text]); n > 1 {
			on = fmt.Sprintf("on %d nodes (%s)", n, detector.List(where[text]))
		}
		doc.Unchecked = append(doc.Unchecked, on+", "+text)
	}
	slices.SortStableFunc(doc.Findings, func(x, y document.Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(document.FindingKinds, x.Kind), slices.Index(document.FindingKinds, y.Kind)), cmp.Compare(x.Node, y.Node))
	})
	slices.Sort(doc.Checked)
	doc.Checked = slices.Compact(doc.Checked)
	doc.Coverage = c.covered(omitted)
	switch {
	case len(doc.Findings) > 0:
		doc.Verdict = document.AuditFindings
	case len(doc.Checked) == 0:
		doc.Verdict = document.AuditNothing
		if nowhere {
			doc.Unchecked = append(doc.Unchecked, "what was asked for: it is in no book that dupip reads")
		}
	case len(doc.Unchecked) > 0 || doc.Partial:
		doc.Verdict = document.AuditPartly
	default:
		doc.Verdict = document.AuditAgrees
	}
	return doc
}

// diverted reports whether a finding follows packets to a node that says itself that it diverts them.
func (c *Collection) diverted(f document.Finding) bool {
	return f.Kind == document.Misrouted && slices.ContainsFunc(c.answers, func(a document.Answer) bool {
		return (a.NodeID() == f.NodeID() || slices.Contains(f.Through, a.Node)) && slices.ContainsFunc(a.Findings, func(o document.Finding) bool {
			return o.Kind == document.Diverted && o.IP == f.IP
		})
	})
}

// Captures makes the document of what the holders of q.IP sent.
func (c *Collection) Captures(q document.Query) document.Captures {
	doc := document.Captures{Node: c.Self.Name, IP: q.IP, Captures: []document.Capture{}}
	omitted := 0
	for _, a := range c.answers {
		omitted += a.Omitted
		for _, text := range a.Unchecked {
			doc.Unchecked = append(doc.Unchecked, "on node "+a.Node+", "+text)
		}
		for _, v := range a.Captures {
			if v.IP == q.IP {
				doc.Captures = append(doc.Captures, v)
			} else { // not what was asked for
				omitted++
			}
		}
	}
	slices.Sort(doc.Unchecked)
	slices.SortStableFunc(doc.Captures, func(x, y document.Capture) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Node, y.Node))
	})
	doc.Coverage = c.covered(omitted)
	return doc
}

// Status returns the status of the node with that name, as its agent made it.
func (c *Collection) Status(node string) (document.Status, error) {
	for _, a := range c.answers { // of namesakes, the first one that answered
		if a.Status != nil {
			return *a.Status, nil
		}
	}
	return document.Status{}, fmt.Errorf("node %s does not send its status: \"dupip nodes\" shows whether its agent runs, and its version", node)
}

// judge adds the judgement to a conflict, and the route of the asking node to one that is confirmed, unless it is a drill: then it has no
// routes, either.
func (c *Collection) judge(conflict *document.Conflict) {
	if conflict.State == detector.Suspected || conflict.Drill || c.judged == MaxRouted {
		conflict.Routes = nil
		return
	}
	c.judged++
	if conflict.State == detector.Resolved {
		conflict.Routes = nil
	} else if c.Route != nil {
		if own, ok := c.Route(*conflict); ok {
			conflict.Routes = append([]document.Route{own}, conflict.Routes[:min(len(conflict.Routes), merge.MaxRoutes-1)]...)
		}
	}
	if c.Books != nil && conflict.State != detector.Resolved {
		c.Books.About(conflict)
	}
	ctx := c.around
	ctx.Now, ctx.Away = time.Now(), c.awayFrom(conflict)
	conflict.Judgement = judge.Of(*conflict, ctx)
	say.Fill(conflict, c.addresses)
}

// awayFrom returns when nodes were cut off, by NodeID: as Self saw it, which may have started later, and as the nodes with holders did. Each
// may know of another time.
func (c *Collection) awayFrom(conflict *document.Conflict) map[string][]judge.Away {
	all, asked := make(map[string][]judge.Away), make(map[string]bool)
	for id, away := range c.around.Away {
		all[id] = slices.Clone(away)
	}
	for _, b := range conflict.Holders {
		by := b.NodeID()
		if asked[by] {
			continue
		}
		asked[by] = true
		for _, a := range c.away[by] {
			id := cluster.NodeID(a.Node, a.BootID)
			all[id] = append(all[id], judge.Away{From: a.From, Until: a.Until})
		}
	}
	return all
}
