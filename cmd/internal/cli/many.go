package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
	"github.com/dupip/dupip/document/say"
)

// many prints a screen about many conflicts: how many of which state, the gravest, and where they are.
func (t tables) many(doc document.Conflicts) {
	const gravest, rows, most = 2, 4, 3
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
		if len(c.Holders) > left && len(shown) > 0 {
			break
		}
		if len(c.Holders) > rows {
			c.Holders = c.Holders[:rows-1] // and a line that counts the others
		}
		left -= len(c.Holders)
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
