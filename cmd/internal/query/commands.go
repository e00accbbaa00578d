package query

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

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

// BuildVersion returns the version that a build has set in a program's main.version (-ldflags "-X main.version=…"), else the module's
// version as Go recorded it.
func BuildVersion(set string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(set, info.Main.Version, "(devel)")
	}
	return cmp.Or(set, "(devel)")
}

func newVersion(p *Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: p.examples(`  dupip version
  dupip version -o json`),
		Args: NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			doc := document.Version{Version: p.Version, Go: runtime.Version(), Arch: runtime.GOARCH}
			return cli.Show(p.Printer(cmd), p.Output, doc, func(printer *cli.Printer, doc document.Version) {
				fmt.Fprintf(printer.Out, "%s %s (%s, %s/%s)\n", p.Name, doc.Version, doc.Go, runtime.GOOS, doc.Arch)
			})
		},
	}
	p.AddOutput(cmd)
	return cmd
}

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
