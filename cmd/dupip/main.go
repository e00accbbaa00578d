// Command dupip finds duplicate pod IPs by looking at packets.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/query"
	"github.com/dupip/dupip/document"
)

// version is set at build time by -ldflags "-X main.version=…".
var version string

// buildVersion is the version of this program.
func buildVersion() string { return query.BuildVersion(version) }

func main() { os.Exit(query.Run(newRoot())) }

// program has the commands that ask the agent of this node.
type program struct {
	query.Program
	socket string
}

func newRoot() *cobra.Command {
	p := new(program)
	p.Program = query.Program{
		Name: "dupip", Version: buildVersion(), Flags: p.addSocket,
		Client: func(cmd *cobra.Command) (*api.Client, error) {
			err := fromEnvironment(cmd) // the shell's completion has not
			return api.NewClient(p.socket), err
		},
	}
	root := p.Root(&cobra.Command{
		Use:   "dupip",
		Short: "Finds duplicate pod IPs by looking at packets, whatever IPAM claims",
		Long: `dupip finds duplicate pod IPs by looking at packets, whatever IPAM claims.

Run "dupip agent" on a node; the other commands query it. Every flag of "agent" and "doctor" can also be an environment variable, ` +
			`and so can --api-socket (DUPIP_API_SOCKET) and --output of the others. Other variables that begin with DUPIP_ are ignored, with a warning.

Exit codes: 0 done; 1 failed, or "doctor" has found a failure; 3 with --exit-code, if there is a conflict or a finding; ` +
			`4 with --exit-code, if there is none in what was looked at, which is not all.`,
		Example: `  dupip conflicts --cluster
  dupip explain 10.0.0.1
  dupip bindings --pod shop/web-0
  dupip status`,
	})
	check := root.PersistentPreRunE
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		warnUnknown(cmd.ErrOrStderr(), cmd.Root(), os.Environ())
		if err := fromEnvironment(cmd); err != nil {
			return err
		}
		return check(cmd, args)
	}
	root.AddCommand(newAgent(), newConfig(p), newDoctor(p), newDrill(p), newUI(p), query.NewAck(&p.Program, p.acknowledge))
	return root
}

// acknowledge has the agent tell the others.
func (p *program) acknowledge(cmd *cobra.Command, q document.Query) (doc document.Conflicts, err error) {
	client, err := p.Client(cmd)
	if err != nil {
		return doc, err
	}
	return client.Acknowledge(cmd.Context(), q)
}

// addSocket adds the flag of commands that query an agent.
func (p *program) addSocket(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.socket, "api-socket", api.DefaultSocket, "Unix socket of the agent to ask")
	query.CompletePaths(cmd, "api-socket")
}
