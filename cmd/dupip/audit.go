package main

import (
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
)

var auditList = list[api.Audit]{
	get:      (*api.Client).Audit,
	coverage: func(d api.Audit) api.Coverage { return d.Coverage },
	sort:     func(d api.Audit, by string) { cli.FindingOrders.Sort(d.Findings, by) },
	text:     (*cli.Printer).Audit,
}

func newAudit(g *globals) *cobra.Command {
	var flags queryFlags
	var exitCode bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show where IPAM's books and the wire differ",
		Example: `  dupip audit
  dupip audit --cluster --namespace shop
  dupip audit --exit-code -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := flags.parse()
			if err != nil {
				return err
			}
			document, err := auditList.show(cmd, &flags, q)
			if err == nil && exitCode && len(document.Findings) > 0 {
				return exitError(exitFound)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 3 when there is any finding")
	flags.addTo(cmd, g, cli.FindingOrders.Names())
	cmd.Flags().Lookup("network").Usage = "only this network of CNI's configuration"
	return cmd
}
