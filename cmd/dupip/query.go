package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/detector"
)

// queryFlags are the flags of commands that print a list of one agent or of all.
type queryFlags struct {
	globals    *globals
	query      api.Query
	ip, sortBy string
	orders     []string
}

// addTo adds the flags of lists that can be about less to a command.
func (q *queryFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&q.ip, "ip", "", "only this address, or those of a prefix: 10.0.0.0/24")
	flags.StringVarP(&q.query.Namespace, "namespace", "n", "", "only pods of this namespace")
	flags.StringVar(&q.query.Pod, "pod", "", "only this pod: NAME or NAMESPACE/NAME")
	flags.StringVar(&q.query.Network, "network", "", "only this network")
	flags.BoolVar(&q.query.Cluster, "cluster", false, "ask the agents of all nodes, not only this one")
	flags.StringVar(&q.query.Node, "node", "", "ask the agent of this node")
	exclude(cmd, "cluster", "node")
	// A shell completes the values from what the agent has.
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
			if n.Role == "" { // reporters are not asked
				names[detector.Printable(n.Name)] = true
			}
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
			if text := detector.Printable(value(b)); text != "" {
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
