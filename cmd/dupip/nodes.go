package main

import (
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
)

var nodeList = list[api.Nodes]{
	get:      (*api.Client).Nodes,
	coverage: func(api.Nodes) api.Coverage { return api.Coverage{} },
	sort:     func(d api.Nodes, by string) { cli.NodeOrders.Sort(d.Nodes, by) },
	text:     (*cli.Printer).Nodes,
}

func newNodes(g *globals) *cobra.Command {
	var flags queryFlags
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Show the agents of the cluster as this one sees them",
		Example: `  dupip nodes
  dupip nodes --state dead
  dupip nodes --sort-by heard -o wide`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := flags.parse()
			if err != nil {
				return err
			}
			_, err = nodeList.show(cmd, &flags, q)
			return err
		},
	}
	cmd.Flags().StringVar(&flags.query.State, "state", "", "only nodes in this state: "+cli.Disjoin(api.NodeStates))
	complete(cmd, "state", api.NodeStates...)
	flags.addSort(cmd, g, cli.NodeOrders.Names())
	return cmd
}
