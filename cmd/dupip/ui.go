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
	"github.com/dupip/dupip/document"
)

func newUI(p *program) *cobra.Command {
	const more = "\n\nTo see it from another machine, forward the port: ssh -t -L 8080:127.0.0.1:8080 HOST dupip ui --port 8080"
	cmd := query.NewUI(&p.Program, more, "port to listen on", func(cmd *cobra.Command, port int) error {
		client, err := p.Client(cmd)
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("opening the port of the page: %w; choose another --port, or 0 for a free one", err)
		}
		if _, err := client.Status(cmd.Context(), document.Query{}); err != nil { // said here rather than on the page
			_ = listener.Close()
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "The page is at http://%s/ (Ctrl-C ends it)\n", listener.Addr())
		return metrics.Serve(cmd.Context(), listener, page.New(client, "dupip"), slog.New(slog.DiscardHandler))
	})
	p.addSocket(cmd)
	return cmd
}
