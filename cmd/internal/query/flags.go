package query

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
	"github.com/dupip/dupip/detector"
)

// queryFlags are the flags of commands that print a list of one agent or of all.
type queryFlags struct {
	program    *Program
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
	flags.StringVar(&q.query.Node, "node", "", "ask the agent of this node")
	if !q.program.Cluster {
		flags.BoolVar(&q.query.Cluster, "cluster", false, "ask the agents of all nodes, not only this one")
		exclude(cmd, "cluster", "node")
	}
	// A shell completes the values from what the agent has.
	for name, value := range map[string]func(b api.Binding) string{
		"ip":        func(b api.Binding) string { return b.IP },
		"network":   func(b api.Binding) string { return b.Network },
		"namespace": func(b api.Binding) string { namespace, _, _ := strings.Cut(cli.PodName(b.Pod), "/"); return namespace },
		"pod":       func(b api.Binding) string { return cli.PodName(b.Pod) },
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, completeFromBindings(q.program, value))
	}
	_ = cmd.RegisterFlagCompletionFunc("node", completeNodes(q.program))
}

// completeFromBindings completes a value that bindings have.
func completeFromBindings(p *Program, value func(api.Binding) string) cobra.CompletionFunc {
	return completion(p, (*api.Client).Bindings, func(d api.Bindings) []api.Binding { return d.Bindings }, value)
}

// completeNodes completes the name of a node.
func completeNodes(p *Program) cobra.CompletionFunc {
	return completion(p, (*api.Client).Nodes, func(d api.Nodes) []api.Node { return d.Nodes }, func(n api.Node) string {
		if n.Role != "" {
			return "" // reporters are not asked
		}
		return n.Name
	})
}

// completion completes a value that elements of a document have.
func completion[T, E any](p *Program, get func(*api.Client, context.Context, api.Query) (T, error), elements func(T) []E, value func(E) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		client, err := p.Client(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		document, err := get(client, cmd.Context(), api.Query{Cluster: p.Cluster})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		values := make(map[string]bool)
		for _, e := range elements(document) {
			if text := detector.Printable(value(e)); text != "" {
				values[text] = true
			}
		}
		return slices.Sorted(maps.Keys(values)), cobra.ShellCompDirectiveNoFileComp
	}
}

// parse reads --ip.
func (q *queryFlags) parse() (api.Query, error) {
	query := q.query
	query.Cluster = query.Cluster || q.program.Cluster && query.Node == ""
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
