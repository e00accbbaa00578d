package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/api"
)

// Summary prints how the agents of a cluster are doing: how many of which kind, and where what is not as it should be.
func (p *Printer) Summary(document api.Nodes) {
	agents, versions := make(group), make(group)
	interfaces, findings := make(group), make(group)
	var silent []string
	for _, n := range document.Nodes {
		if n.Role != "" {
			continue
		}
		agents.add(n.State, n.Name, 1)
		if n.State == "dead" || n.State == "left" {
			continue
		}
		versions.add(n.Version, n.Name, 1)
		if n.Reported.IsZero() {
			silent = append(silent, n.Name)
		}
		for state, count := range n.Interfaces {
			interfaces.add(state, n.Name, count)
		}
		for kind, count := range n.Findings {
			findings.add(kind, n.Name, count)
		}
	}
	p.Entry(12, "Agents", agents.text("alive"))
	p.Entry(12, "Versions", versions.text(versions.largest()))
	p.Entry(12, "Interfaces", interfaces.text("attached"))
	p.Entry(12, "Findings", findings.text(""))
	if len(silent) > 0 {
		p.Entry(12, "Unknown", "interfaces and findings of "+List(silent))
	}
	p.Problems(document)
}

// group counts things by their kind, and has the nodes that have them.
type group map[string]*struct {
	count int
	nodes []string
}

func (g group) add(kind, node string, count int) {
	if count == 0 {
		return
	}
	if g[kind] == nil {
		g[kind] = new(struct {
			count int
			nodes []string
		})
	}
	g[kind].count += count
	g[kind].nodes = append(g[kind].nodes, node)
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
			part += " (" + List(g[kind].nodes) + ")"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, "; ")
}
