package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// MaxConflicts is how many open conflicts are shown one by one. Of more, the gravest are. maxDrills is the same for drills.
const (
	MaxConflicts = 10
	maxDrills    = 3
)

// Conflicts prints conflicts in their order, and what to do about them.
func (p *Printer) Conflicts(doc document.Conflicts) {
	p.several = doc.Asked > 1
	open, drills := 0, 0
	var few []document.Conflict
	for _, c := range doc.Conflicts {
		switch {
		case c.State == detector.Resolved:
		case !c.Drill:
			open++
		default:
			if drills++; drills > maxDrills && !p.Wide {
				continue
			}
		}
		few = append(few, c)
	}
	switch {
	case len(doc.Conflicts) == 0:
		p.none("conflict.")
	case open > MaxConflicts && !p.Wide:
		p.many(doc)
	default:
		more := len(doc.Conflicts) - len(few)
		doc.Conflicts = few
		p.Pairs(doc)
		p.conflicts(few)
		if more > 0 {
			p.println("and " + Plural(more, "more drill; -o wide has all", "more drills; -o wide has all"))
		}
		p.Advice(doc)
	}
	p.Coverage(doc.Coverage, "conflicts")
}

func (p *Printer) conflicts(conflicts []document.Conflict) {
	if p.Wide {
		p.wideConflicts(conflicts)
		return
	}
	nodes := p.nodeColumn(holdersOf(conflicts))
	var rows []table.Row
	unreachable, configured := false, false
	for _, c := range conflicts {
		for n, b := range c.Holders {
			row := table.Row{"", "", ""}
			if n == 0 {
				row = table.Row{InNetwork(conflictIP(c), c.Network), p.Paint(c.State.String()), Age(Since(c))}
			}
			name, node := DescribeHolder(b), nodes[b.NodeID()]
			if node != "" && b.Unreachable { // the mark is on the node, so that the name can be copied
				name, node, unreachable = Who(b), node+" !", true
			}
			if isConfiguredOnly(b) {
				name, configured = name+" ~", true
			}
			rows = append(rows, append(row, node, name, p.brief(b.Interface), Age(b.FirstSeen)))
		}
	}
	p.fitted(rows, []any{"ip", "state", "since", "node", "holder", "interface", "first seen"}, "holder", "first seen", "interface", "since")
	if unreachable {
		p.wrapped(2, "! unreachable: the node does not answer, and its holders may be gone.")
	}
	if configured {
		p.wrapped(2, "~ configured: its kernel has the address; it was not seen using it lately.")
	}
}

func (p *Printer) wideConflicts(conflicts []document.Conflict) {
	var rows []table.Row
	for _, c := range conflicts {
		nodes, _ := NodesOf(c.Holders)
		for n, b := range c.Holders {
			row := table.Row{"", "", "", "", "", "", ""}
			if n == 0 {
				row = table.Row{c.ID, c.Network, conflictIP(c), p.Paint(c.State.String()), c.Scope.String(), Age(Since(c)), Age(c.ResolvedAt)}
			}
			rows = append(rows, append(row, DescribeHolder(b), nodes[n], b.Interface, b.MAC, b.Evidence.String(), Age(b.FirstSeen), Age(b.LastSeen)))
		}
	}
	p.table(rows, "id", "network", "ip", "state", "scope", "since", "resolved", "holder", "node", "interface", "mac",
		"evidence", "first seen", "last seen")
}

// Since is when a conflict reached its present state.
func Since(c document.Conflict) time.Time { return cmp.Or(c.ResolvedAt, c.ConfirmedAt, c.SuspectedAt) }

// ConflictEventsHeader is the header of [Printer.ConflictEvent].
const ConflictEventsHeader = "TIME          EVENT      ADDRESS AND HOLDERS\n"

// ConflictEvent prints a line for an event of a watch.
func (p *Printer) ConflictEvent(event document.ConflictEvent) {
	c := event.Conflict
	names := each(c.Holders, Who)
	nodes, several := NodesOf(c.Holders)
	for n := range names {
		if several || n == len(names)-1 {
			names[n] += " on " + nodes[n]
		}
	}
	line := fmt.Sprintf("%s  %s%s  %s  %s", event.At.Local().Format(clock(event.At)), p.Paint(event.Type),
		strings.Repeat(" ", max(len("suspected")-len(event.Type), 0)), InNetwork(conflictIP(c), c.Network), strings.Join(names, " and "))
	if event.Reason != "" {
		line += ": " + event.Reason
	}
	p.println(line)
}
