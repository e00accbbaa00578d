package cli

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// tables prints tables that fit the width.
type tables struct {
	*Printer
	several bool // more nodes than one were asked
}

// table prints a table without lines, like those of kubectl.
func (t tables) table(rows []table.Row, header ...any) {
	w := table.NewWriter()
	w.SetOutputMirror(t.Out)
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
	w.Render()
}

// fitted prints a table that fits the width, unless a wide one was asked for. It removes spare columns, in this order, until the
// named column has room for 12 characters or the table fits, and then shortens that one. A column of nodes without names is left out.
func (t tables) fitted(rows []table.Row, header []any, column string, spare ...string) {
	const shortest = 12
	if at := slices.Index(header, any("node")); at >= 0 && !slices.ContainsFunc(rows, func(row table.Row) bool { return row[at] != "" }) {
		header = without("node", header, rows)
	}
	for !t.Wide && t.Width > 0 && t.left(header, rows, "") < 0 {
		left := t.left(header, rows, column)
		if left >= shortest || len(spare) == 0 {
			at := slices.Index(header, any(column))
			for _, row := range rows {
				row[at] = clip(row[at].(string), max(left, shortest))
			}
			break
		}
		header, spare = without(spare[0], header, rows), spare[1:]
	}
	t.table(rows, header...)
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

// left is the part of the width that the columns of a table leave, but for the named one.
func (t tables) left(header []any, rows []table.Row, column string) int {
	left := t.Width + 2 // the last column is not padded
	for n, name := range header {
		if name == column {
			left -= 2
			continue
		}
		width := utf8.RuneCountInString(name.(string))
		for _, row := range rows {
			width = max(width, text.StringWidthWithoutEscSequences(fmt.Sprint(row[n])))
		}
		left -= width + 2
	}
	return left
}
