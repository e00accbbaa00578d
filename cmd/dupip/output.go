package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/internal/cli"
)

// format is the value of --output.
type format string

const (
	formatTable format = "table"
	formatWide  format = "wide"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
)

// String implements [pflag.Value].
func (f *format) String() string { return string(*f) }

// Type implements [pflag.Value].
func (f *format) Type() string { return "format" }

// Set implements [pflag.Value].
func (f *format) Set(value string) error {
	if !slices.Contains([]format{formatTable, formatWide, formatJSON, formatYAML}, format(value)) {
		return fmt.Errorf("must be table, wide, json or yaml")
	}
	*f = format(value)
	return nil
}

// encode prints v as JSON or YAML and reports whether the format is one of them. Each document of
// a stream is one JSON line, or a YAML document after "---".
func (f format) encode(w io.Writer, v any, stream bool) (bool, error) {
	var data []byte
	var err error
	switch {
	case f == formatJSON && stream:
		data, err = json.Marshal(v)
	case f == formatJSON:
		data, err = json.MarshalIndent(v, "", "  ")
	case f == formatYAML:
		// Through JSON, so that both have the same fields.
		data, err = yaml.MarshalWithOptions(v,
			yaml.UseJSONMarshaler(), yaml.IndentSequence(true), yaml.CustomMarshaler(quoteUnprintable))
	default:
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("encoding %s: %w", f, err)
	}
	if f == formatJSON {
		data = append(escape(data), '\n')
	} else if stream {
		data = append([]byte("---\n"), data...)
	}
	_, err = w.Write(data)
	return true, err
}

// show prints a document in the format that was chosen; printText prints it for people.
func show[T any](cmd *cobra.Command, g *globals, document T, printText func(out io.Writer, document T, wide bool)) error {
	out := cmd.OutOrStdout()
	if done, err := g.output.encode(out, document, false); done {
		return err
	}
	sanitize(&document)
	printText(out, document, g.output == formatWide)
	return nil
}

// showEvent prints one event of a watch; text returns its line.
func showEvent[T any](cmd *cobra.Command, g *globals, event T, text func(event T) string) error {
	out := cmd.OutOrStdout()
	if done, err := g.output.encode(out, event, true); done {
		return err
	}
	sanitize(&event)
	_, err := fmt.Fprintln(out, text(event))
	return err
}

// screen is the width of a table in columns; "wide" has no bound.
const screen = 80

// printTable prints a table without lines, like those of kubectl.
func printTable(w io.Writer, rows []table.Row, header ...any) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	t.AppendHeader(header)
	t.AppendRows(rows)
	t.Render()
}

// printFitted prints a table that fits the screen. It removes spare columns, in this order, until
// the named column has room for 12 characters, and then shortens that one.
func printFitted(w io.Writer, rows []table.Row, header []any, column string, spare ...string) {
	const shortest = 12
	left := columnWidth(header, rows, column)
	for left < shortest && len(spare) > 0 {
		at := slices.Index(header, any(spare[0]))
		header, spare = slices.Delete(header, at, at+1), spare[1:]
		for n := range rows {
			rows[n] = slices.Delete(rows[n], at, at+1)
		}
		left = columnWidth(header, rows, column)
	}
	at := slices.Index(header, any(column))
	for _, row := range rows {
		row[at] = clip(row[at].(string), max(left, shortest))
	}
	printTable(w, rows, header...)
}

// columnWidth is the part of the screen that the other columns of a table leave for one.
func columnWidth(header []any, rows []table.Row, column string) int {
	left := screen
	for n, name := range header {
		if name == column {
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

// nodeColumn returns the text of a column for each node, by its id; nil if all holders are on one
// node, so that no column is needed.
func nodeColumn(holders []api.Binding) map[string]string {
	const most, least = 20, 11 // least if there are long addresses
	nodes := make(map[string]api.Binding)
	names, domains := make(map[string]int), make(map[string]bool)
	width := most
	for _, b := range holders {
		if _, ok := nodes[cli.NodeID(b)]; !ok {
			nodes[cli.NodeID(b)] = b
			names[b.Node]++
		}
		_, domain := shortName(b.Node)
		domains[domain] = true
		if len(b.IP) > 24 {
			width = least
		}
	}
	if len(nodes) < 2 {
		return nil
	}
	column := make(map[string]string)
	for id, b := range nodes {
		name, _ := shortName(b.Node)
		if len(domains) > 1 {
			name = b.Node // the domain tells them apart
		}
		column[id] = clip(name, width)
		if boot := fmt.Sprintf("/%.8s", b.BootID); names[b.Node] > 1 {
			column[id] = clip(name, max(width, least+2)-len(boot)) + boot // as in "dupip nodes"
		}
	}
	return column
}

// shortName splits a node's name into its first label and its domain. An address is a short name.
func shortName(node string) (short, domain string) {
	if _, err := netip.ParseAddr(node); err == nil {
		return node, ""
	}
	short, domain, _ = strings.Cut(node, ".")
	return short, domain
}

// wrapped prints a line, broken at spaces so that it fits the screen. Further lines are indented by
// indent columns.
func wrapped(w io.Writer, indent int, line string) {
	words := strings.Fields(line)
	head := line[:len(line)-len(strings.TrimLeft(line, " "))]
	column := 0
	for n, word := range words {
		width := text.StringWidthWithoutEscSequences(word)
		switch {
		case n == 0:
			fmt.Fprint(w, head, word)
			column = len(head) + width
		case column+1+width > screen:
			fmt.Fprint(w, "\n", strings.Repeat(" ", indent), word)
			column = indent + width
		default:
			fmt.Fprint(w, " ", word)
			column += 1 + width
		}
	}
	fmt.Fprintln(w)
}

// hanging is wrapped for the rest of a line whose first indent columns are printed already.
func hanging(out io.Writer, indent int, line string, wide bool) {
	if wide {
		fmt.Fprintln(out, line)
		return
	}
	began := strings.Repeat(" ", indent)
	var lines strings.Builder
	wrapped(&lines, indent, began+line)
	fmt.Fprint(out, strings.TrimPrefix(lines.String(), began))
}

// colours reports whether w is a terminal on which colour is not switched off (see no-color.org).
func colours(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(file.Fd()))
}

// paint colours a state, an event's type or the outcome of a check for a terminal.
func paint(w io.Writer, word string) string {
	if !colours(w) {
		return word
	}
	colour := map[string]text.Color{
		"confirmed": text.FgRed, "suspected": text.FgYellow, "changed": text.FgYellow, "resolved": text.FgGreen,
		"attached": text.FgGreen, "pending": text.FgYellow, "shadowed": text.FgYellow, "waiting": text.FgYellow, "failed": text.FgRed,
		"alive": text.FgGreen, "suspect": text.FgYellow, "dead": text.FgRed,
		"ok": text.FgGreen, "warn": text.FgYellow, "fail": text.FgRed,
	}
	if c, ok := colour[word]; ok {
		return text.Escape(word, c.EscapeSeq())
	}
	return word
}

// clip shortens text to n columns in the middle, where names differ least.
func clip(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	head := (n - 1) / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(n-1-head):])
}
