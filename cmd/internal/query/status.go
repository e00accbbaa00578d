package query

import (
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/document"
)

func newStatus(p *Program) *cobra.Command {
	var q document.Query
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the agent is doing and what it cannot see",
		Example: p.examples(`  dupip status
  dupip status --node worker-7 -o wide`),
		Args: NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := p.Client(cmd)
			if err != nil {
				return err
			}
			if p.Cluster && q.Node == "" {
				doc, err := client.Nodes(cmd.Context(), q)
				if err != nil {
					return err
				}
				return cli.Show(p.Printer(cmd), p.Output, doc, func(printer *cli.Printer, doc document.Nodes) {
					conflicts, err := client.Conflicts(cmd.Context(), document.Query{Cluster: true})
					printer.Summary(doc, conflicts, err)
				})
			}
			doc, err := client.Status(cmd.Context(), q)
			if err != nil {
				return err
			}
			return cli.Show(p.Printer(cmd), p.Output, doc, (*cli.Printer).Status)
		},
	}
	usage := "ask the agent of this node"
	if p.Cluster {
		cmd.Short = "Show how the agents are doing, or one of them"
		usage += " (default: a summary of all)"
	}
	cmd.Flags().StringVar(&q.Node, "node", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("node", completeNodes(p))
	p.addTo(cmd)
	return cmd
}
