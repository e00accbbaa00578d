package query

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/document"
)

func newExplain(p *Program) *cobra.Command {
	var local bool
	cmd := &cobra.Command{
		Use:   "explain IP",
		Short: "Show the history of one address, and why it is a conflict or not",
		Example: p.examples(`  dupip explain 10.0.0.1
  dupip explain fd00::1 --local`),
		Args: OneArgument("explain needs one IP address", "10.0.0.1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ip, err := netip.ParseAddr(args[0])
			if err != nil {
				return fmt.Errorf("%q: not an IP address", args[0])
			}
			doc, err := get(cmd, p, (*api.Client).Explain, document.Query{IP: ip, Cluster: !local})
			if err != nil {
				return err
			}
			return cli.Show(p.Printer(cmd), p.Output, doc, (*cli.Printer).Explanation)
		},
		ValidArgsFunction: completeAddress(p),
	}
	if !p.Cluster {
		cmd.Flags().BoolVar(&local, "local", false, "ask this agent only, not those of all nodes")
	}
	p.addTo(cmd)
	return cmd
}
