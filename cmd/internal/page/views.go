package page

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/document"
)

// conflictsData is what the page of conflicts shows.
type conflictsData struct {
	list[document.Conflict]
	Open            int  // that are no drills
	Many            bool // too many to say what to do about each
	All             int
	Tally           cli.Tally
	Asked, Answered int // nodes
	// Pairs, Advice and Coverage are sentences.
	Pairs, Advice, Coverage []cli.Line
}

func (h *handler) conflicts(ctx context.Context, r request) (any, string, error) {
	doc, err := h.source.Conflicts(ctx, document.Query{Cluster: true, All: r.All})
	if err != nil {
		return nil, "", err
	}
	document.Sanitize(&doc)
	d := conflictsData{
		All: len(doc.Conflicts), Tally: cli.Count(doc.Conflicts), Asked: doc.Asked, Answered: doc.Asked - len(doc.Missing),
		Coverage: cli.Lines(h.program, doc.Coverage, func(p *cli.Printer, c document.Coverage) { p.Coverage(c, "conflicts") }),
	}
	doc.Conflicts = slices.DeleteFunc(doc.Conflicts, func(c document.Conflict) bool { return !r.selectsConflict(c) })
	d.Pairs = cli.Lines(h.program, doc, (*cli.Printer).Pairs)
	d.list = cut(r, doc.Conflicts)
	text := (*cli.Printer).Advice
	if d.Many = cli.Count(doc.Conflicts).Open() > cli.MaxConflicts; d.Many {
		text = (*cli.Printer).ManyAdvice
	}
	d.Advice = advice(h.program, doc, text)
	if d.Open = d.Tally.Open(); d.Open == 0 {
		return d, "No conflict is open", nil
	}
	return d, cli.Plural(d.Open, "conflict is open", "conflicts are open"), nil
}

func (r request) selectsConflict(c document.Conflict) bool {
	return r.selects(c.IP.String(), c.Network, c.State.String(), c.Scope.String()) || r.selectsAddress(c.IP) ||
		slices.ContainsFunc(c.Holders, func(b document.Binding) bool { return r.selects(b.Node, cli.Who(b), b.Netns, b.Interface) })
}

// advice is what is to be done, without the title of its section.
func advice[T any](program string, doc T, text func(*cli.Printer, T)) []cli.Line {
	lines := cli.Lines(program, doc, text)
	if len(lines) == 0 {
		return nil
	}
	first := strings.TrimSpace(strings.TrimPrefix(lines[0].Text, "What to do:"))
	if first == "" {
		return lines[1:]
	}
	lines[0].Text = strings.ToUpper(first[:1]) + first[1:] // "wait" or "nothing"
	return lines
}

// explainData is what the page of an address shows.
type explainData struct {
	document.Explanation
	Stories []story
	Causes  []string
	// The rest are sentences.
	Unknown, Details, Coverage []cli.Line
}

// story is a story with the sentences about it.
type story struct {
	document.Story
	Nodes                    []string // of the bindings
	Verdict, Advice, Earlier []cli.Line
	Happened                 []event
}

// event is a note as people read it.
type event struct {
	document.Note
	Text string
}

func (h *handler) explain(ctx context.Context, r request) (any, string, error) {
	if !r.IP.IsValid() {
		return nil, "Address", nil
	}
	e, err := h.source.Explain(ctx, document.Query{IP: r.IP, Cluster: true})
	if err != nil {
		return nil, "", err
	}
	document.Sanitize(&e)
	d := explainData{
		Explanation: e, Causes: cli.Causes(e), Unknown: cli.Lines(h.program, e, (*cli.Printer).Unknown),
		Details:  slices.Concat(cli.Lines(h.program, e, (*cli.Printer).Configured), cli.Lines(h.program, e, (*cli.Printer).Books)),
		Coverage: cli.Lines(h.program, e.Coverage, func(p *cli.Printer, c document.Coverage) { p.Coverage(c, "stories") }),
	}
	for _, s := range e.Stories {
		one := story{Story: s, Verdict: cli.Lines(h.program, s, (*cli.Printer).Verdict), Advice: advice(h.program, s.Conflict, (*cli.Printer).StoryAdvice)}
		one.Earlier = cli.Lines(h.program, s, (*cli.Printer).Former)
		one.Nodes, _ = cli.NodesOf(s.Bindings)
		for n, text := range cli.Notes(s) {
			one.Happened = append(one.Happened, event{s.Notes[n], text})
		}
		d.Stories = append(d.Stories, one)
	}
	return d, e.IP.String(), nil
}

// nodesData is what the page of nodes shows.
type nodesData struct {
	list[document.Node]
	States   map[string]int // of agents
	Agents   int
	Reported bool // some nodes have interfaces and findings
	Problems []cli.Line
}

func (h *handler) nodes(ctx context.Context, r request) (any, string, error) {
	doc, err := h.source.Nodes(ctx, document.Query{})
	if err != nil {
		return nil, "", err
	}
	document.Sanitize(&doc)
	d := nodesData{States: make(map[string]int), Problems: cli.Lines(h.program, doc, (*cli.Printer).Problems)}
	for _, n := range doc.Nodes {
		if n.Role == "" {
			d.States[string(n.State)]++
			d.Agents++
		}
		d.Reported = d.Reported || !n.Reported.IsZero()
	}
	slices.SortStableFunc(doc.Nodes, func(a, b document.Node) int { return cmp.Compare(weight(b), weight(a)) })
	d.list = cut(r, slices.DeleteFunc(doc.Nodes, func(n document.Node) bool {
		return !r.selects(n.Name, string(n.State), string(n.Role), n.Address, n.Version, n.Boot)
	}))
	return d, cli.Plural(d.Agents, "node", "nodes"), nil
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
	All  int
	Text []cli.Line
}

func (h *handler) audit(ctx context.Context, r request) (any, string, error) {
	doc, err := h.source.Audit(ctx, document.Query{Cluster: true})
	if err != nil {
		return nil, "", err
	}
	document.Sanitize(&doc)
	d := auditData{All: len(doc.Findings)}
	doc.Findings = slices.DeleteFunc(doc.Findings, func(f document.Finding) bool {
		return !r.selectsAddress(f.IP) && !r.selects(f.IP.String(), f.Kind, f.Node, f.CNINetwork, f.Pod.String(), f.Netns, f.ReservedPod.String())
	})
	d.list = cut(r, doc.Findings)
	d.Text = cli.Lines(h.program, doc, (*cli.Printer).Repairs)
	if d.All == 0 {
		return d, cli.NoFinding(doc), nil
	}
	return d, cli.Plural(d.All, "audit finding", "audit findings"), nil
}
