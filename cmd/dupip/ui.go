package main

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/cmd/internal/page"
	"github.com/dupip/dupip/cmd/internal/query"
)

func newUI(p *program) *cobra.Command {
	var port uint16
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a page with conflicts, addresses, nodes and findings, for a browser on this machine",
		Long: `Serve a page with open conflicts and what to do, the history of an address, the nodes and the findings of the audit, at ` +
			`127.0.0.1 until Ctrl-C. It changes nothing. As long as it runs, every user of this machine can read it.

To see it from another machine, forward the port: ssh -t -L 8080:127.0.0.1:8080 HOST dupip ui --port 8080`,
		Example: `  dupip ui
  dupip ui --port 8080`,
		Args: query.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := p.Client(cmd)
			if err != nil {
				return err
			}
			listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
			if err != nil {
				return fmt.Errorf("opening the port of the page: %w; choose another --port, or 0 for a free one", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "The page is at http://%s/ (Ctrl-C ends it)\n", listener.Addr())
			return metrics.Serve(cmd.Context(), listener, page.New(client, "dupip"), slog.New(slog.DiscardHandler))
		},
	}
	cmd.Flags().Uint16Var(&port, "port", 0, "port to listen on; 0 is a free one")
	p.addSocket(cmd)
	return cmd
}
