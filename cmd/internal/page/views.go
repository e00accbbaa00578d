package page

import (
	"cmp"
	"slices"

	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// conflictsData is what the page of conflicts shows.
type conflictsData struct {
	list[document.Conflict]
	Doc   document.Conflicts // those that were asked for
	Many  bool               // too many to say what to do about each
	All   int
	Tally cli.Tally // of all
}

func conflicts(r request, doc document.Conflicts) (any, string) {
	d := conflictsData{Doc: doc, All: len(doc.Conflicts), Tally: cli.Count(doc.Conflicts)}
	d.Doc.Conflicts = slices.DeleteFunc(doc.Conflicts, func(c document.Conflict) bool { return !r.selectsConflict(c) })
	d.list = cut(r, d.Doc.Conflicts)
	d.Many = cli.Count(d.Doc.Conflicts).Open() > cli.MaxConflicts
	if d.Tally.Open() == 0 {
		return d, "No conflict is open"
	}
	return d, say.Plural(d.Tally.Open(), "conflict is open", "conflicts are open")
}

func (r request) selectsConflict(c document.Conflict) bool {
	return r.selects(c.IP.String(), c.Network, c.State.String(), c.Scope.String()) || r.selectsAddress(c.IP) ||
		slices.ContainsFunc(c.Holders, func(b document.Binding) bool { return r.selects(b.Node, say.Who(b), b.Netns, b.Interface) })
}

func explain(r request, e document.Explanation) (any, string) {
	if !r.IP.IsValid() {
		return nil, "Address"
	}
	return e, e.IP.String()
}

// nodesData is what the page of nodes shows.
type nodesData struct {
	list[document.Node]
	Doc      document.Nodes
	States   map[string]int // of agents
	Reported bool           // some nodes have interfaces and findings
}

func nodes(r request, doc document.Nodes) (any, string) {
	d := nodesData{Doc: doc, States: make(map[string]int)}
	agents := 0
	for _, n := range doc.Nodes {
		if n.Role == "" {
			d.States[string(n.State)]++
			agents++
		}
		d.Reported = d.Reported || !n.Reported.IsZero()
	}
	slices.SortStableFunc(doc.Nodes, func(a, b document.Node) int { return cmp.Compare(weight(b), weight(a)) })
	d.Doc.Nodes = slices.DeleteFunc(doc.Nodes, func(n document.Node) bool {
		return !r.selects(n.Name, string(n.State), string(n.Role), n.Address, n.Version, n.Boot)
	})
	d.list = cut(r, d.Doc.Nodes)
	return d, say.Plural(agents, "node", "nodes")
}

// weight orders nodes: those with problems come first, reporters last.
func weight(n document.Node) (w int) {
	switch {
	case n.Role != "":
		w = -1
	case n.State == "dead" || n.Namesake:
		w = 8
	case n.State == "suspect":
		w = 4
	}
	if n.Interfaces["failed"]+n.Interfaces["shadowed"] > 0 {
		w += 2
	}
	if len(n.Findings) > 0 || n.Unacked > 0 {
		w++
	}
	return w
}

// auditData is what the page of findings shows.
type auditData struct {
	list[document.Finding]
	Doc document.Audit // with the findings that were asked for
	All int
}

func audit(r request, doc document.Audit) (any, string) {
	d := auditData{Doc: doc, All: len(doc.Findings)}
	d.Doc.Findings = slices.DeleteFunc(doc.Findings, func(f document.Finding) bool {
		return !r.selectsAddress(f.IP) && !r.selects(f.IP.String(), f.Kind, f.Node, f.CNINetwork, f.Pod.String(), f.Netns, f.ReservedPod.String())
	})
	d.list = cut(r, d.Doc.Findings)
	if d.All == 0 {
		return d, say.NoFinding(d.Doc)
	}
	return d, say.Plural(d.All, "audit finding", "audit findings")
}
