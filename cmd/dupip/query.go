package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
)

// queryFlags are the flags of commands that print a list of one agent or of all.
type queryFlags struct {
	globals    *globals
	query      api.Query
	ip, sortBy string
	orders     []string
}

// addTo adds the flags to a command. If it has --watch, it must have it already. orders are the values of --sort-by.
func (q *queryFlags) addTo(cmd *cobra.Command, g *globals, orders []string) {
	q.globals = g
	flags := cmd.Flags()
	flags.StringVar(&q.ip, "ip", "", "only this address, or those of a prefix: 10.0.0.0/24")
	flags.StringVarP(&q.query.Namespace, "namespace", "n", "", "only pods of this namespace")
	flags.StringVar(&q.query.Pod, "pod", "", "only this pod: NAME or NAMESPACE/NAME")
	flags.StringVar(&q.query.Network, "network", "", "only this network")
	flags.BoolVar(&q.query.Cluster, "cluster", false, "ask the agents of all nodes, not only this one")
	flags.StringVar(&q.query.Node, "node", "", "ask the agent of this node")
	exclude(cmd, "cluster", "node")
	q.complete(cmd)
	q.addSort(cmd, g, orders)
}

// addSort adds the flags of all lists.
func (q *queryFlags) addSort(cmd *cobra.Command, g *globals, orders []string) {
	q.globals, q.orders = g, orders
	cmd.Flags().StringVar(&q.sortBy, "sort-by", "", "order of the list: "+strings.Join(orders, ", "))
	complete(cmd, "sort-by", orders...)
	g.addTo(cmd)
}

// complete makes a shell complete the values of flags from what the agent has.
func (q *queryFlags) complete(cmd *cobra.Command) {
	for name, value := range map[string]func(b api.Binding) string{
		"ip":        func(b api.Binding) string { return b.IP },
		"network":   func(b api.Binding) string { return b.Network },
		"namespace": func(b api.Binding) string { namespace, _, _ := strings.Cut(cli.PodName(b.Pod), "/"); return namespace },
		"pod":       func(b api.Binding) string { return cli.PodName(b.Pod) },
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, q.globals.completeFromBindings(value))
	}
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		_ = fromEnvironment(cmd) // the shell's completion does not
		document, err := q.globals.client().Nodes(cmd.Context(), api.Query{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names := make(map[string]bool)
		for _, n := range document.Nodes {
			names[cli.Printable(n.Name)] = true
		}
		return slices.Sorted(maps.Keys(names)), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeFromBindings completes a value that bindings of this node have.
func (g *globals) completeFromBindings(value func(api.Binding) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		_ = fromEnvironment(cmd) // the shell's completion does not
		document, err := g.client().Bindings(cmd.Context(), api.Query{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		values := make(map[string]bool)
		for _, b := range document.Bindings {
			if text := cli.Printable(value(b)); text != "" {
				values[text] = true
			}
		}
		return slices.Sorted(maps.Keys(values)), cobra.ShellCompDirectiveNoFileComp
	}
}

// parse reads --ip.
func (q *queryFlags) parse() (api.Query, error) {
	query := q.query
	var err error
	switch {
	case q.ip == "":
	case strings.Contains(q.ip, "/"):
		if query.Prefix, err = netip.ParsePrefix(q.ip); err != nil {
			return query, fmt.Errorf("--ip %q: not a prefix such as 10.0.0.0/24", q.ip)
		}
	default:
		if query.IP, err = netip.ParseAddr(q.ip); err != nil {
			return query, fmt.Errorf("--ip %q: not an IP address or a prefix", q.ip)
		}
	}
	if q.sortBy != "" && !slices.Contains(q.orders, q.sortBy) {
		return query, fmt.Errorf("--sort-by %q: must be %s", q.sortBy, cli.Disjoin(q.orders))
	}
	return query, nil
}

// list is a document with a list.
type list[T any] struct {
	// get returns the document, sort sorts its list.
	get      func(*api.Client, context.Context, api.Query) (T, error)
	coverage func(T) api.Coverage
	sort     func(document T, by string)
	text     func(*cli.Printer, T)
}

// show gets the document and prints it.
func (l list[T]) show(cmd *cobra.Command, flags *queryFlags, q api.Query) (T, error) {
	document, err := l.get(flags.globals.client(), cmd.Context(), q)
	if err == nil {
		err = unanswered(q.Node, l.coverage(document))
	}
	if err != nil {
		return document, err
	}
	p := flags.globals.printer(cmd)
	p.Selected = q != api.Query{All: q.All, Cluster: q.Cluster, Node: q.Node}
	if p.Sorted = flags.sortBy != ""; p.Sorted {
		l.sort(document, flags.sortBy)
	}
	if flags.globals.output == cli.Names { // the list itself does not say what it lacks
		lacking := l.coverage(document)
		cli.Sanitize(&lacking)
		cli.NewPrinter(cmd.ErrOrStderr()).Coverage(lacking, "addresses")
	}
	return document, cli.Show(p, flags.globals.output, document, l.text)
}

// watchEvents prints events as they come, below a header.
func watchEvents[T any](
	cmd *cobra.Command, g *globals, q api.Query,
	watch func(*api.Client, context.Context, api.Query, func(), func(T) error) error, header func(*cli.Printer), text func(*cli.Printer, T),
) error {
	p := g.printer(cmd)
	return watch(g.client(), cmd.Context(), q,
		func() { p.EventsHeader(g.output, header) },
		func(event T) error { return cli.ShowEvent(p, g.output, event, text) })
}

// unanswered returns an error if --node was given and that node did not answer. An empty table would
// mean that it has nothing.
func unanswered(node string, c api.Coverage) error {
	if node == "" || c.Asked == 0 || len(c.Missing) < c.Asked {
		return nil
	}
	return fmt.Errorf("node %s does not answer: \"dupip nodes\" shows its state", cli.Printable(node))
}
