package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
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
	case p.NoHeaders:
		t.conflicts(doc.Conflicts)
		return
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
			if n == 0 || t.NoHeaders {
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
	t.fitted(rows, header, "holder", "first seen", "interface", "since", "lasted", "began", "ip")
	if unreachable && !t.NoHeaders {
		t.wrapped(2, "! unreachable: the node does not answer, and its holders may be gone.")
	}
	if configured && !t.NoHeaders {
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
			if n == 0 || t.NoHeaders {
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

// many prints a screen about many conflicts: how many of which state, the gravest, and where they are.
func (t tables) many(doc document.Conflicts) {
	const gravest, rows, most = 2, 4, 3
	ownLine := 0 // of an address
	if t.Width > 0 && t.Width < wideTerminal {
		ownLine = 1
	}
	tally := Count(doc.Conflicts)
	var states []string
	for _, state := range []string{"confirmed", "suspected", "resolved", "drill"} {
		if n := tally.States[state]; n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, t.Paint(state)))
		}
	}
	total := len(doc.Conflicts)
	first := "The most serious"
	if t.Sorted {
		first = "The first"
	}
	t.wrapped(2, fmt.Sprintf("%d conflicts: %s. %s:", total, strings.Join(states, ", "), first))
	var shown []document.Conflict
	left := rows
	for _, c := range doc.Conflicts[:gravest] {
		if len(c.Holders)+ownLine > left && len(shown) > 0 {
			break
		}
		if len(c.Holders) > rows {
			c.Holders = c.Holders[:rows-1] // and a line that counts the others
		}
		left -= len(c.Holders) + ownLine
		shown = append(shown, c)
	}
	t.conflicts(shown)
	if more := len(doc.Conflicts[0].Holders) - len(shown[0].Holders); more > 0 {
		t.printf("%s has %s\n", shown[0].IP, say.Plural(more, "more holder.", "more holders."))
	}
	t.println()
	t.Entry(12, "By node", Counted(tally.Nodes, most))
	t.Entry(12, "By network", Counted(tally.Networks, most))
	t.Entry(12, "Show", fmt.Sprintf("all %d: -o wide; some: --node, -n, --pod, --network, --state, --ip", total))
	t.sentences(2, say.Pairs(doc, 1))
	steps{t.Printer}.entries(say.Many(doc))
}

// Tally counts conflicts: by state ("drill" for drills), and those that are no drills by node and network.
type Tally struct{ States, Nodes, Networks map[string]int }

// Open counts the open ones that are no drills.
func (t Tally) Open() int { return t.States["confirmed"] + t.States["suspected"] }

// Count counts conflicts.
func Count(conflicts []document.Conflict) Tally {
	t := Tally{make(map[string]int), make(map[string]int), make(map[string]int)}
	counted := slices.DeleteFunc(slices.Clone(conflicts), func(c document.Conflict) bool { return c.Drill })
	if drills := len(conflicts) - len(counted); drills > 0 {
		t.States["drill"] = drills
	}
	names := merge.Names(each(holdersOf(counted), document.Binding.NodeID))
	for _, c := range counted {
		t.States[c.State.String()]++
		t.Networks[c.Network]++
		for _, node := range distinct(each(c.Holders, func(b document.Binding) string { return names[b.NodeID()] })) {
			t.Nodes[node]++
		}
	}
	return t
}

// Counted lists the largest counts.
func Counted(counts map[string]int, most int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	var parts []string
	for _, name := range names[:min(len(names), most)] {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	if more := len(names) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}
