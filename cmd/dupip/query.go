package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/internal/cli"
)

// newQuery returns a command without arguments that prints one document of the agent.
func newQuery[T any](
	g *globals, use, short string,
	get func(*api.Client, context.Context) (T, error), printText func(out io.Writer, document T, wide bool),
) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: noArguments, RunE: func(cmd *cobra.Command, _ []string) error {
		document, err := get(g.client(), cmd.Context())
		if err != nil {
			return err
		}
		return show(cmd, g, document, printText)
	}}
	g.addTo(cmd)
	return cmd
}

// queryFlags are the flags of commands that query one agent or all.
type queryFlags struct {
	ip, node string
	cluster  bool
}

// addTo adds the flags to a command. If it has --watch, it must have it already.
func (q *queryFlags) addTo(cmd *cobra.Command, g *globals) {
	flags := cmd.Flags()
	flags.StringVar(&q.ip, "ip", "", "only this address")
	flags.BoolVar(&q.cluster, "cluster", false, "ask the agents of all nodes, not only this one")
	flags.StringVar(&q.node, "node", "", "ask the agent of this node")
	// DUPIP_CLUSTER is the agent's: the name of the cluster.
	_ = flags.SetAnnotation("cluster", agentsVariable, nil)
	for _, other := range []string{"cluster", "node"} {
		if flags.Lookup("watch") != nil {
			exclude(cmd, "watch", other)
		}
	}
	exclude(cmd, "cluster", "node")
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		document, err := g.client().Nodes(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, n := range document.Nodes {
			names = append(names, printable(n.Name))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

func (q *queryFlags) query() (api.Query, error) {
	query := api.Query{Cluster: q.cluster, Node: q.node}
	if q.ip == "" {
		return query, nil
	}
	ip, err := netip.ParseAddr(q.ip)
	if err != nil {
		return query, fmt.Errorf("--ip %q: not an IP address", q.ip)
	}
	query.IP = ip
	return query, nil
}

// unanswered returns an error if --node was given and that node did not answer. An empty table would
// mean that it has nothing.
func (q *queryFlags) unanswered(c api.Coverage) error {
	if q.node == "" || c.Asked == 0 || len(c.Missing) < c.Asked {
		return nil
	}
	return fmt.Errorf("node %s does not answer: \"dupip nodes\" shows its state", printable(q.node))
}

// printCoverage says which things an answer of the cluster lacks.
func printCoverage(out io.Writer, c api.Coverage, things string) {
	if c.Alone {
		wrapped(out, 0, "This agent is alone: it was started without --join and --bind and knows its own node only.")
	}
	if n := len(c.Missing); n > 0 {
		wrapped(out, 0, fmt.Sprintf("%d of %d nodes did not answer: %s; their %s are missing.",
			n, c.Asked, cli.List(c.Missing), things))
	}
	if c.Omitted > 0 {
		wrapped(out, 0, fmt.Sprintf("%d %s did not fit into the answers: give one --ip or one --node.", c.Omitted, things))
	}
}
