package query

import "github.com/spf13/cobra"

// NewUI returns the command that serves a page at a port of this machine. more ends its description, and usage says what the port is.
func NewUI(p *Program, more, usage string, serve func(cmd *cobra.Command, port int) error) *cobra.Command {
	var port uint16
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a page with conflicts, addresses, nodes and findings, for a browser on this machine",
		Long: `Serve a page with open conflicts and what to do, the history of an address, the nodes and the findings of the audit, at ` +
			`127.0.0.1 until Ctrl-C. It changes nothing. As long as it runs, every user of this machine can read it.` + more,
		Example: p.examples("  dupip ui\n  dupip ui --port 8080"),
		Args:    NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return serve(cmd, int(port)) },
	}
	cmd.Flags().Uint16Var(&port, "port", 0, usage+"; 0 is a free one")
	return cmd
}
