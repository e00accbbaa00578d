package main

import (
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
)

func newStatus(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the agent is doing and what it cannot see",
		Example: `  dupip status
  dupip status -o wide`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			document, err := g.client().Status(cmd.Context(), api.Query{})
			if err != nil {
				return err
			}
			return cli.Show(g.printer(cmd), g.output, document, (*cli.Printer).Status)
		},
	}
	g.addTo(cmd)
	return cmd
}
