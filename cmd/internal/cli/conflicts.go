package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

const (
	// MaxConflicts is how many open conflicts are shown one by one. Of more, the gravest are. maxDrills is the same for drills.
	MaxConflicts = 10
	maxDrills    = 3
	// MaxPairs bounds the lines about pairs of nodes.
	MaxPairs = 10
)

// Conflicts prints conflicts in their order, and what to do about them.
func (p *Printer) Conflicts(doc document.Conflicts) {
	t := tables{p, doc.Asked > 1}
	drills := 0
	few := slices.DeleteFunc(slices.Clone(doc.Conflicts), func(c document.Conflict) bool {
		if p.Wide || !c.Drill || c.State == detector.Resolved {
			return false
		}
		drills++
		return drills > maxDrills
	})
	switch {
	case len(doc.Conflicts) == 0:
		t.none("conflict.")
	case Count(doc.Conflicts).Open() > MaxConflicts && !p.Wide:
		t.many(doc)
	default:
		more := len(doc.Conflicts) - len(few)
		doc.Conflicts = few
		t.pairs(doc, MaxPairs)
		t.conflicts(few)
		if more > 0 {
			p.println("and " + say.Plural(more, "more drill; -o wide has all", "more drills; -o wide has all"))
		}
		steps{p}.entries(say.Entries(doc))
		if text := say.Unasked(doc.Coverage, doc.Conflicts...); text != "" {
			p.wrapped(0, text)
		}
	}
	p.Coverage(doc.Coverage, "conflicts")
}

func (t tables) conflicts(conflicts []document.Conflict) {
	if t.Wide {
		t.wideConflicts(conflicts)
		return
	}
	nodes := t.nodeColumn(holdersOf(conflicts))
	var rows []table.Row
	unreachable, configured := false, false
	for _, c := range conflicts {
		for n, b := range c.Holders {
			row := table.Row{"", "", "", "", ""}
			if n == 0 {
				row = table.Row{say.InNetwork(conflictIP(c), c.Network), t.Paint(c.State.String()), Age(Since(c)), BeganText(c), Lasted(c)}
			}
			name, node := DescribeHolder(b), nodes[b.NodeID()]
			if node != "" && b.Unreachable { // the mark is on the node, so that the name can be copied
				name, node, unreachable = say.Who(b), node+" !", true
			}
			if say.IsConfiguredOnly(b) {
				name, configured = name+" ~", true
			}
			rows = append(rows, append(row, node, name, t.brief(b.Interface), Age(b.FirstSeen)))
		}
	}
	header := timesOf(conflicts, []any{"ip", "state", "since", "began", "lasted", "node", "holder", "interface", "first seen"}, rows)
	t.fitted(rows, header, "holder", "first seen", "interface", "since", "lasted", "began")
	if unreachable {
		t.wrapped(2, "! unreachable: the node does not answer, and its holders may be gone.")
	}
	if configured {
		t.wrapped(2, "~ configured: "+say.Weak+".")
	}
}

// pairs prints which nodes share addresses.
func (t tables) pairs(doc document.Conflicts, most int) {
	if lines := say.Pairs(doc, most); len(lines) > 0 {
		t.sentences(2, lines)
		t.println()
	}
}

func (t tables) wideConflicts(conflicts []document.Conflict) {
	var rows []table.Row
	for _, c := range conflicts {
		nodes, _ := say.NodesOf(c.Holders)
		for n, b := range c.Holders {
			row := table.Row{"", "", "", "", "", "", "", "", ""}
			if n == 0 {
				row = table.Row{
					c.ID, c.Network, conflictIP(c), t.Paint(c.State.String()), c.Scope.String(), Age(Since(c)), Age(c.ResolvedAt),
					BeganText(c), Lasted(c),
				}
			}
			rows = append(rows, append(row, DescribeHolder(b), nodes[n], b.Interface, b.MAC, b.Evidence.String(), Age(b.FirstSeen), Age(b.LastSeen)))
		}
	}
	t.table(rows, timesOf(conflicts, []any{
		"id", "network", "ip", "state", "scope", "since", "resolved", "began", "lasted", "holder", "node", "interface", "mac",
		"evidence", "first seen", "last seen",
	}, rows)...)
}

// Since is when a conflict reached its present state.
func Since(c document.Conflict) time.Time { return cmp.Or(c.ResolvedAt, c.ConfirmedAt, c.SuspectedAt) }

// ConflictEventsHeader is the header of [Printer.ConflictEvent].
const ConflictEventsHeader = "TIME          EVENT      ADDRESS AND HOLDERS\n"

// ConflictEvent prints a line for an event of a watch.
func (p *Printer) ConflictEvent(event document.ConflictEvent) {
	c := event.Conflict
	names := each(c.Holders, say.Who)
	nodes, several := say.NodesOf(c.Holders)
	for n := range names {
		if several || n == len(names)-1 {
			names[n] += " on " + nodes[n]
		}
	}
	line := fmt.Sprintf("%s  %s%s  %s  %s", event.At.Local().Format(clock(event.At)), p.Paint(event.Type),
		strings.Repeat(" ", max(len("suspected")-len(event.Type), 0)), say.InNetwork(conflictIP(c), c.Network), strings.Join(names, " and "))
	if event.Reason != "" {
		line += ": " + event.Reason
	}
	p.println(line)
}

// Began is when a second holder of the address was seen first.
func Began(c document.Conflict) time.Time { return cmp.Or(c.SecondSeen, c.SuspectedAt) }

// BeganText is when a conflict began, in local time: the time of day of the last 24 hours, else with the date.
func BeganText(c document.Conflict) string {
	began, layout := Began(c), "15:04:05"
	switch age := time.Since(began); {
	case began.IsZero():
		return "-"
	case age >= 300*24*time.Hour:
		layout = "Jan 2 2006"
	case age >= 24*time.Hour:
		layout = "Jan 2 15:04"
	}
	return began.Local().Format(layout)
}

// Lasted is how long a conflict lasted, or has lasted so far.
func Lasted(c document.Conflict) string {
	if Began(c).IsZero() {
		return "-"
	}
	return say.Span(cmp.Or(c.ResolvedAt, time.Now()).Sub(Began(c)))
}

// HasEnded reports whether any of the conflicts is over: then a table says when each began, and how long it lasted.
func HasEnded(conflicts []document.Conflict) bool {
	return slices.ContainsFunc(conflicts, func(c document.Conflict) bool { return c.State == detector.Resolved })
}

// timesOf removes the columns of begin and duration from a table of conflicts that are all open, and returns its header.
func timesOf(conflicts []document.Conflict, header []any, rows []table.Row) []any {
	if HasEnded(conflicts) {
		return header
	}
	return without("lasted", without("began", header, rows), rows)
}
