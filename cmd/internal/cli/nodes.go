package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// Nodes prints the agents of the cluster, and the reporters after them.
func (p *Printer) Nodes(doc document.Nodes) {
	header := []any{"name", "state", "since", "heard", "unacked", "address"}
	roles := slices.ContainsFunc(doc.Nodes, func(n document.Node) bool { return n.Role != "" })
	if roles {
		header = append(header, "role")
	}
	names := distinct(each(doc.Nodes, func(n document.Node) string { return n.Name }))
	ids := distinct(each(doc.Nodes, document.Node.NodeID))
	boots := p.Wide || len(names) < len(ids)
	if boots {
		header = append(header, "boot")
	}
	if p.Wide {
		header = append(header, "epoch", "version")
	}
	var rows []table.Row
	for _, n := range doc.Nodes {
		name, heard := n.Name, Age(n.Heard)
		if n.Self {
			name += " (this one)"
		}
		// Of thousands of nodes few are heard each second, and all that are alive are known to be.
		if n.Self || n.State == cluster.Alive && !p.Wide {
			heard = "-"
		}
		row := table.Row{name, p.Paint(string(n.State)), Age(n.Since), heard, n.Unacked, n.Address}
		if roles {
			row = append(row, cmp.Or(n.Role, "agent"))
		}
		switch {
		case p.Wide:
			row = append(row, n.Boot, n.Epoch, n.Version)
		case boots:
			row = append(row, fmt.Sprintf("%.8s", n.Boot)) // as in the table of conflicts
		}
		rows = append(rows, row)
	}
	// A column without anything is for programs, which count columns.
	if p.Width > 0 && !p.Wide && !slices.ContainsFunc(doc.Nodes, func(n document.Node) bool { return n.State != cluster.Alive }) {
		header = without("heard", header, rows)
	}
	tables{Printer: p}.fitted(rows, header, "name", "heard", "since")
	if !p.NoHeaders {
		p.NodeProblems(doc)
	}
}

// NodeProblems prints what is wrong with the cluster.
func (p *Printer) NodeProblems(doc document.Nodes) {
	indent := 2
	if doc.Cluster.Alone {
		indent = 0
	}
	p.sentences(indent, Problems(doc))
}

// Problems says what is wrong with the cluster.
func Problems(doc document.Nodes) (lines []string) {
	if doc.Cluster.Alone {
		lines = append(lines, "This agent is alone: it was started without --join and --bind, so duplicates on other nodes are not found.")
	}
	for _, problem := range doc.Cluster.Problems {
		lines = append(lines, "Problem: "+problem)
	}
	return lines
}
