package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/detector"
)

// exitFound is the exit code with --exit-code when a conflict is open, or there is a finding.
const exitFound = 3

// list is a command that prints a document T with a list of E.
type list[T, E any] struct {
	use, short, long, example string

	get      func(*api.Client, context.Context, api.Query) (T, error)
	coverage func(T) api.Coverage
	elements func(T) []E
	orders   cli.Orders[E]
	text     func(*cli.Printer, T)
	name     func(E) string // what -o name prints
	// flags adds flags; most lists have those of [queryFlags.addTo].
	flags func(*queryFlags, *cobra.Command)

	// What follows is for some lists only. states are the values of --state.
	states []string
	// found selects what --exit-code, which exitCode describes, is about.
	found    func(E) bool
	exitCode string
	// watch prints events for --watch, which watchUsage describes, and which excludes the flags in alone.
	watch      func(*cobra.Command, *globals, api.Query) error
	watchUsage string
	alone      []string
}

// command returns the command.
func (l list[T, E]) command(g *globals) *cobra.Command {
	flags := queryFlags{globals: g, orders: l.orders.Names()}
	var watch, exitCode bool
	cmd := &cobra.Command{
		Use: l.use, Short: l.short, Long: l.long, Example: l.example, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := flags.parse()
			if err != nil {
				return err
			}
			if watch {
				return l.watch(cmd, g, q)
			}
			document, err := l.show(cmd, &flags, q)
			if err == nil && exitCode && slices.ContainsFunc(l.elements(document), l.found) {
				return exitError(exitFound)
			}
			return err
		},
	}
	if l.watch != nil {
		cmd.Flags().BoolVarP(&watch, "watch", "w", false, l.watchUsage)
	}
	if l.found != nil {
		cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 3 when "+l.exitCode)
	}
	if l.states != nil {
		cmd.Flags().StringVar(&flags.query.State, "state", "", "only "+l.use+" in this state: "+cli.Disjoin(l.states))
		complete(cmd, "state", l.states...)
	}
	cmd.Flags().StringVar(&flags.sortBy, "sort-by", "", "order of the list: "+strings.Join(flags.orders, ", "))
	complete(cmd, "sort-by", flags.orders...)
	if l.flags != nil {
		l.flags(&flags, cmd)
	}
	for _, other := range l.alone {
		exclude(cmd, "watch", other)
	}
	g.addTo(cmd)
	return cmd
}

// show gets the document and prints it.
func (l list[T, E]) show(cmd *cobra.Command, flags *queryFlags, q api.Query) (T, error) {
	g := flags.globals
	document, err := l.get(g.client(), cmd.Context(), q)
	if err == nil {
		err = unanswered(q.Node, l.coverage(document))
	}
	if err != nil {
		return document, err
	}
	p := g.printer(cmd)
	p.Selected = q != api.Query{All: q.All, Cluster: q.Cluster, Node: q.Node}
	if p.Sorted = flags.sortBy != ""; p.Sorted {
		l.orders.Sort(l.elements(document), flags.sortBy)
	}
	text := l.text
	if g.output == cli.Names {
		text = func(p *cli.Printer, document T) {
			cli.PrintNames(p, l.elements(document), l.name)
			// The list itself does not say what it lacks.
			cli.NewPrinter(cmd.ErrOrStderr()).Coverage(l.coverage(document), "addresses")
		}
	}
	return document, cli.Show(p, g.output, document, text)
}

// events is what --watch prints of a list.
type events[E any] struct {
	watch  func(*api.Client, context.Context, api.Query, func(), func(E) error) error
	header func(*cli.Printer)
	text   func(*cli.Printer, E)
	name   func(E) string
}

// print prints events as they come, below a header.
func (e events[E]) print(cmd *cobra.Command, g *globals, q api.Query) error {
	p, text := g.printer(cmd), e.text
	if g.output == cli.Names {
		text = func(p *cli.Printer, event E) { fmt.Fprintln(p.Out, e.name(event)) }
	}
	return e.watch(g.client(), cmd.Context(), q,
		func() { p.EventsHeader(g.output, e.header) },
		func(event E) error { return cli.Show(p, g.output, event, text) })
}

// unanswered returns an error if --node was given and that node did not answer. An empty table would
// mean that it has nothing.
func unanswered(node string, c api.Coverage) error {
	if node == "" || c.Asked == 0 || len(c.Missing) < c.Asked {
		return nil
	}
	return fmt.Errorf("node %s does not answer: \"dupip nodes\" shows its state", detector.Printable(node))
}
