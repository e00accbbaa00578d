package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
)

func newNodes(g *globals) *cobra.Command {
	var q api.Query
	var sortBy string
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Show the agents of the cluster as this one sees them",
		Example: `  dupip nodes
  dupip nodes --state dead
  dupip nodes --sort-by heard -o wide`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sortBy != "" && !slices.Contains(cli.NodeOrders.Names(), sortBy) {
				return fmt.Errorf("--sort-by %q: must be %s", sortBy, cli.Disjoin(cli.NodeOrders.Names()))
			}
			document, err := g.client().Nodes(cmd.Context(), q)
			if err != nil {
				return err
			}
			if sortBy != "" {
				cli.NodeOrders.Sort(document.Nodes, sortBy)
			}
			return cli.Show(g.printer(cmd), g.output, document, (*cli.Printer).Nodes)
		},
	}
	cmd.Flags().StringVar(&q.State, "state", "", "only nodes in this state: "+cli.Disjoin(api.NodeStates))
	complete(cmd, "state", api.NodeStates...)
	addSort(cmd, &sortBy, cli.NodeOrders.Names())
	g.addTo(cmd)
	return cmd
}
