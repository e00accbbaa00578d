package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
)

func newExplain(g *globals) *cobra.Command {
	var local bool
	cmd := &cobra.Command{
		Use:   "explain IP",
		Short: "Show the history of one address, and why it is a conflict or not",
		Example: `  dupip explain 10.0.0.1
  dupip explain fd00::1 --local`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("explain needs one IP address: dupip explain 10.0.0.1")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ip, err := netip.ParseAddr(args[0])
			if err != nil {
				return fmt.Errorf("%q: not an IP address", args[0])
			}
			document, err := g.client().Explain(cmd.Context(), api.Query{IP: ip, Cluster: !local})
			if err != nil {
				return err
			}
			return cli.Show(g.printer(cmd), g.output, document, (*cli.Printer).Explanation)
		},
		ValidArgsFunction: g.completeFromBindings(func(b api.Binding) string { return b.IP }),
	}
	cmd.Flags().BoolVar(&local, "local", false, "ask this agent only, not those of all nodes")
	g.addTo(cmd)
	return cmd
}
