package cli

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// tables prints tables that fit the width.
type tables struct {
	*Printer
	several bool // more nodes than one were asked
}

// table prints a table without lines, like those of kubectl.
func (t tables) table(rows []table.Row, header ...any) {
	if text := t.rendered(rows, header); text != "" {
		t.println(text)
	}
}

func (t tables) rendered(rows []table.Row, header []any) string {
	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	w.SetStyle(style)
	w.SuppressTrailingSpaces()
	if !t.NoHeaders {
		w.AppendHeader(header)
	}
	w.AppendRows(rows)
	return w.Render()
}

// fitted prints a table that fits the width, unless a wide one was asked for. It removes spare columns, in this order, until the table
// fits. If all before "ip" are not enough, each address gets a line of its own, and as many of them stay as fit then. At last nodes' names
// are shortened, and then what is in the named column. A column of nodes without names is left out.
func (t tables) fitted(rows []table.Row, header []any, column string, spare ...string) {
	const shortestNode, shortest, indent = 8, 12, 2
	if at := slices.Index(header, any("node")); at >= 0 && !slices.ContainsFunc(rows, func(row table.Row) bool { return row[at] != "" }) {
		header = without("node", header, rows)
	}
	if t.Wide || t.Width == 0 {
		t.table(rows, header...)
		return
	}
	above := []string{""} // the lines of the table
	if at := slices.Index(spare, "ip"); at >= 0 && t.left(header, rows, spare[:at]...) < 0 {
		ip := slices.Index(header, any("ip"))
		above = append(above, each(rows, func(row table.Row) string { return fmt.Sprint(row[ip]) })...)
		header = without("ip", header, rows)
		indented := *t.Printer
		indented.Width -= indent
		t.Printer = &indented
	}
	for ; len(spare) > 0 && t.left(header, rows) < 0; spare = spare[1:] {
		header = without(spare[0], header, rows)
	}
	t.shorten(header, rows, "node", shortestNode)
	t.shorten(header, rows, column, shortest)
	if len(above) == 1 {
		t.table(rows, header...)
		return
	}
	last := ""
	for n, line := range strings.Split(t.rendered(rows, header), "\n") {
		if above[n] != "" && above[n] != last { // an address of several holders once
			last = above[n]
			t.println(last)
		}
		t.println(strings.Repeat(" ", indent) + line)
	}
}

// shorten clips what is in a column, if it is there, so that the table fits the width.
func (t tables) shorten(header []any, rows []table.Row, column string, shortest int) {
	at := slices.Index(header, any(column))
	if at < 0 || t.left(header, rows) >= 0 {
		return
	}
	left := max(t.left(header, rows, column)-columnGap, shortest)
	for _, row := range rows {
		row[at] = clip(row[at].(string), left)
	}
}

// without removes a column from a table, if it is there, and returns the header.
func without(column string, header []any, rows []table.Row) []any {
	at := slices.Index(header, any(column))
	if at < 0 {
		return header
	}
	for n := range rows {
		rows[n] = slices.Delete(rows[n], at, at+1)
	}
	return slices.Delete(header, at, at+1)
}

// columnGap is between columns.
const columnGap = 2

// left is the part of the width that the columns of a table leave, without some of them.
func (t tables) left(header []any, rows []table.Row, some ...string) int {
	left := t.Width + columnGap // there is none after the last column
	for n, name := range header {
		if slices.Contains(some, name.(string)) {
			continue
		}
		width := utf8.RuneCountInString(name.(string))
		for _, row := range rows {
			width = max(width, text.StringWidthWithoutEscSequences(fmt.Sprint(row[n])))
		}
		left -= width + columnGap
	}
	return left
}

// wideTerminal is from which width on names in tables are whole, unless they are too long for the table.
const wideTerminal = 120

// none says that a list is empty, of everything or of what was asked for.
func (t tables) none(things string) {
	switch {
	case t.NoHeaders: // no row
	case t.Selected:
		t.println("No such " + things)
	default:
		t.println("No " + things)
	}
}

// brief shortens the name of an interface for a narrow table. Others than Linux's have more than 15 characters.
func (t tables) brief(name string) string {
	if t.Width == 0 || t.Width >= wideTerminal {
		return name
	}
	return clip(name, 15)
}

// nodeColumn returns the text of a column for each node, by its id; none if all holders are on one
// node and no others were asked, so that no column is needed.
func (t tables) nodeColumn(holders []document.Binding) map[string]string {
	const width = 20
	whole := t.Width == 0 || t.Width >= wideTerminal
	names := merge.Names(each(holders, document.Binding.NodeID))
	if len(names) < 2 && !t.several {
		return nil
	}
	short := make(map[string]int) // how many names begin so
	for _, name := range distinct(each(holders, func(b document.Binding) string { return b.Node })) {
		short[shortName(name)]++
	}
	column := make(map[string]string)
	for _, b := range holders {
		name := shortName(b.Node)
		if short[name] > 1 || whole {
			name = b.Node // the domain tells them apart
		}
		boot := ""
		if names[b.NodeID()] != b.Node {
			boot = fmt.Sprintf("/%.8s", b.BootID) // as in "dupip nodes"
		}
		if !whole {
			name = clip(name, width-len(boot))
		}
		column[b.NodeID()] = name + boot
	}
	return column
}

// shortName is a node's name without its domain. An address has none.
func shortName(node string) string {
	if _, err := netip.ParseAddr(node); err == nil {
		return node
	}
	short, _, _ := strings.Cut(node, ".")
	return short
}
