package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// Printer prints documents for people.
type Printer struct {
	Out       io.Writer
	Width     int  // of a line, in columns; 0: unknown, tables have no bound then, and sentences 80 columns
	Wide      bool // all columns and rows, whole
	NoHeaders bool // of tables
	Sorted    bool // lists have an order that was asked for
	Selected  bool // lists have only what was asked for
	Colour    bool
	Program   string // what people call the program, if that is not dupip
	several   bool   // more nodes than one were asked
	events    bool   // what is shown are events of a watch
	mark      string // around commands, for [Lines]
}

// defaultWidth is the width of text where the terminal's is not known.
const defaultWidth = 80

// NewPrinter returns a Printer for a terminal, or for anything else without colour. There the width is unknown: programs read
// the tables, and people the sentences, as those of "kubectl exec". Programs that show our output in a terminal, such as
// watch(1), say its width in COLUMNS. Colour is switched off by NO_COLOR (see no-color.org).
func NewPrinter(out io.Writer) *Printer {
	const narrowest = 40
	p := &Printer{Out: out}
	if file, ok := out.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(file.Fd())) {
		p.Width = defaultWidth // some terminals do not know
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			p.Width = max(width, narrowest)
		}
		p.Colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	} else if width, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && width > 0 {
		p.Width = max(width, narrowest)
	}
	return p
}

func (p *Printer) println(args ...any) { fmt.Fprintln(p.Out, args...) }
func (p *Printer) printf(format string, args ...any) {
	fmt.Fprint(p.Out, Rename(p.Program, fmt.Sprintf(format, args...)))
}

// Rename makes commands that a text quotes, such as "dupip nodes", those of a program of another name.
func Rename(program, text string) string {
	if program == "" {
		return text
	}
	return strings.ReplaceAll(text, `"dupip `, `"`+program+" ")
}

// fits reports whether a line of n columns fits.
func (p *Printer) fits(n int) bool { return p.Width == 0 || n <= p.Width }

// clip shortens a line, or a part of it beside that many other columns, to the width.
func (p *Printer) clip(s string, beside int) string { return clip(s, p.Width-beside) }

// table prints a table without lines, like those of kubectl.
func (p *Printer) table(rows []table.Row, header ...any) {
	t := table.NewWriter()
	t.SetOutputMirror(p.Out)
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	if !p.NoHeaders {
		t.AppendHeader(header)
	}
	t.AppendRows(rows)
	t.Render()
}

// fitted prints a table that fits the width, unless a wide one was asked for. It removes spare columns, in this order, until the
// named column has room for 12 characters or the table fits, and then shortens that one. A column of nodes without names is left out.
func (p *Printer) fitted(rows []table.Row, header []any, column string, spare ...string) {
	const shortest = 12
	if at := slices.Index(header, any("node")); at >= 0 && !slices.ContainsFunc(rows, func(row table.Row) bool { return row[at] != "" }) {
		header = without("node", header, rows)
	}
	for !p.Wide && p.Width > 0 && p.left(header, rows, "") < 0 {
		left := p.left(header, rows, column)
		if left >= shortest || len(spare) == 0 {
			at := slices.Index(header, any(column))
			for _, row := range rows {
				row[at] = clip(row[at].(string), max(left, shortest))
			}
			break
		}
		header, spare = without(spare[0], header, rows), spare[1:]
	}
	p.table(rows, header...)
}

// without removes a column from a table, and returns the header.
func without(column string, header []any, rows []table.Row) []any {
	at := slices.Index(header, any(column))
	for n := range rows {
		rows[n] = slices.Delete(rows[n], at, at+1)
	}
	return slices.Delete(header, at, at+1)
}

// left is the part of the width that the columns of a table leave, but for the named one.
func (p *Printer) left(header []any, rows []table.Row, column string) int {
	left := p.Width + 2 // the last column is not padded
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

// wrapped prints a line, broken at spaces so that it fits the width. Further lines are indented by
// indent columns.
func (p *Printer) wrapped(indent int, line string) { p.printf("%s", p.wrap(indent, line)) }

// wrap returns what [Printer.wrapped] prints.
func (p *Printer) wrap(indent int, line string) string {
	line = Rename(p.Program, line)
	var lines strings.Builder
	head := line[:len(line)-len(strings.TrimLeft(line, " "))]
	column := 0
	for n, word := range strings.Fields(line) {
		width := text.StringWidthWithoutEscSequences(word)
		switch {
		case n == 0:
			lines.WriteString(head + word)
			column = len(head) + width
		case column+1+width > cmp.Or(p.Width, defaultWidth):
			lines.WriteString("\n" + strings.Repeat(" ", indent) + word)
			column = indent + width
		default:
			lines.WriteString(" " + word)
			column += 1 + width
		}
	}
	return lines.String() + "\n"
}

// Wrap breaks the lines of a text so that they fit the width.
func (p *Printer) Wrap(text string) (wrapped string) {
	for line := range strings.Lines(text) {
		wrapped += p.wrap(0, line)
	}
	return strings.TrimSuffix(wrapped, "\n")
}

// Entry prints a name, or several words, and from a column on a text.
func (p *Printer) Entry(column int, name, line string) {
	p.printf("%s", p.EntryText(column, name, line))
}

// EntryText returns what [Printer.Entry] prints.
func (p *Printer) EntryText(column int, name, line string) string {
	pad := max(column-text.StringWidthWithoutEscSequences(name), 0)
	return name + strings.Repeat(" ", pad) + p.wrap(column, strings.Repeat(" ", column)+line)[column:]
}

// Paint colours a state, an event's type or the outcome of a check for a terminal, if somebody should look at it.
func (p *Printer) Paint(word string) string {
	if !p.Colour {
		return word
	}
	if c, ok := colours[word]; ok {
		return text.Escape(word, c.EscapeSeq())
	}
	return word
}

// colours are those that can be read on light and on dark; yellow and green cannot, on white.
var colours = map[string]text.Color{
	"confirmed": text.FgRed, "suspected": text.FgMagenta, "changed": text.FgMagenta,
	"failed": text.FgRed, "pending": text.FgMagenta, "shadowed": text.FgMagenta, "waiting": text.FgMagenta,
	"dead": text.FgRed, "suspect": text.FgMagenta,
	"fail": text.FgRed, "warn": text.FgMagenta,
}

// clip shortens text to n columns in the middle, where names differ least, unless n is less than one: the width is unknown.
func clip(s string, n int) string {
	runes := []rune(s)
	if n < 1 || len(runes) <= n {
		return s
	}
	head := (n - 1) / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(n-1-head):])
}
