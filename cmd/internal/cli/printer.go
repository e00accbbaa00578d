// Package cli prints documents of the API for people, as tables, stories and lists of steps, and for programs as JSON and YAML. It has the
// times and counts that the pages show, too. What is wrong and what to do about it are the words of the package say.
package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// Printer prints documents for people. It has the text of lines; what is a table, a story or a list of steps are types of their own.
type Printer struct {
	Out       io.Writer
	Width     int    // of a line, in columns; 0: unknown, tables have no bound then, and sentences 80 columns
	Wide      bool   // all columns and rows, whole
	NoHeaders bool   // only the rows of tables, each with all that its columns have: for programs that read lines
	List      string // the key of the list in the document, if that is one
	Sorted    bool   // lists have an order that was asked for
	Selected  bool   // lists have only what was asked for
	Colour    bool
	Program   string // what people call the program, if that is not dupip
	events    bool   // what is shown are events of a watch
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

// wrapped prints a line, broken at spaces so that it fits the width. Further lines are indented by
// indent columns.
func (p *Printer) wrapped(indent int, line string) { p.printf("%s", p.wrap(indent, line)) }

// sentences prints lines, each as wrapped does.
func (p *Printer) sentences(indent int, lines []string) {
	for _, line := range lines {
		p.wrapped(indent, line)
	}
}

// Coverage prints which things an answer of the cluster lacks.
func (p *Printer) Coverage(c document.Coverage, things string) {
	p.sentences(0, say.Coverage(c, things))
}

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

// PluginNamespace is the namespace in which "kubectl dupip" looks for a reporter unless people name another: the one into which the
// README installs dupip.
const PluginNamespace = "dupip"

// Plugin returns how commands of "kubectl dupip" begin that ask the reporter of a namespace. The chart has the same for its alerts.
func Plugin(namespace string) string {
	if namespace == "" || namespace == PluginNamespace {
		return "kubectl dupip"
	}
	return "kubectl dupip --dupip-namespace " + namespace
}
