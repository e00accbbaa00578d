package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// Summary prints how the agents of a cluster are doing: how many of which kind, and where what is not as it should be. The
// conflicts are those of all nodes, each once: nodes count all that they are in. The error says why they are not known.
func (p *Printer) Summary(doc document.Nodes, conflicts document.Conflicts, unknown error) {
	document.Sanitize(&conflicts)
	agents, versions := make(group), make(group)
	interfaces, findings, audits := make(group), make(group), make(group)
	var silent []string
	for _, n := range doc.Nodes {
		if n.Role != "" {
			continue
		}
		agents.add(string(n.State), 1, n.Name)
		if n.State == "dead" || n.State == "left" {
			continue
		}
		versions.add(n.Version, 1, n.Name)
		if n.Reported.IsZero() {
			silent = append(silent, n.Name)
		}
		for state, count := range n.Interfaces {
			interfaces.add(state, count, n.Name)
		}
		for kind, count := range n.Findings {
			if !strings.HasPrefix(kind, "conflict ") {
				findings.add(kind, count, n.Name)
			}
		}
		switch n.Audit {
		case "":
		case document.AuditFindings:
			audits.add("with findings", 1, n.Name)
		default:
			audits.add(n.Audit, 1, n.Name)
		}
	}
	for _, c := range conflicts.Conflicts {
		if c.Drill {
			continue
		}
		nodes := slices.Sorted(slices.Values(each(c.Holders, func(b document.Binding) string { return b.Node })))
		findings.add("conflict "+c.State.String(), 1, nodes...)
	}
	p.Entry(12, "Agents", agents.text("alive"))
	p.Entry(12, "Versions", versions.text(versions.largest()))
	p.Entry(12, "Interfaces", interfaces.text("attached"))
	p.Entry(12, "Findings", findings.text(""))
	p.Entry(12, "Audits", audits.text(document.AuditAgrees))
	if len(silent) > 0 {
		p.Entry(12, "Unknown", "interfaces and findings of "+say.List(silent))
	}
	if unknown != nil {
		p.Entry(12, "Unknown", "conflicts: "+detector.Printable(unknown.Error()))
	}
	p.Coverage(conflicts.Coverage, "conflicts")
	p.problems(doc)
}

// group counts things by their kind, and has the nodes that have them.
type group map[string]kindCount

type kindCount struct {
	count int
	nodes []string
}

func (g group) add(kind string, count int, nodes ...string) {
	if count == 0 {
		return
	}
	k := g[kind]
	k.count += count
	for _, node := range nodes {
		if !slices.Contains(k.nodes, node) {
			k.nodes = append(k.nodes, node)
		}
	}
	g[kind] = k
}

// largest is the kind of most things.
func (g group) largest() (kind string) {
	for _, k := range slices.Sorted(maps.Keys(g)) {
		if kind == "" || g[k].count > g[kind].count {
			kind = k
		}
	}
	return kind
}

// text lists the kinds, with the nodes of all but the usual one.
func (g group) text(usual string) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(g)) {
		part := fmt.Sprintf("%d %s", g[kind].count, kind)
		if strings.Contains(kind, " ") { // "unreserved address", which may be many
			part = fmt.Sprintf("%s: %d", kind, g[kind].count)
		}
		if kind != usual {
			part += " (" + say.List(g[kind].nodes) + ")"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, "; ")
}
