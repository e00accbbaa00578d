package main

import (
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/doctor"
	"github.com/dupip/dupip/cmd/internal/query"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/transport"
)

func newDoctor(p *program) *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out why an agent does not start or sees nothing",
		Long: `Examine this node: kernel, rights, mounts, network namespaces, sockets, runtime. For each problem it says what to do. It ` +
			`works with and without a running agent, does not disturb it, and changes nothing.

Run it as root where the agent runs: on the node, or in the agent's container. Give it the flags (or the environment) of the agent: ` +
			`it takes all of them, and refuses those that the agent refuses. The exit code is 1 when anything failed.`,
		Example: `  dupip doctor
  kubectl -n dupip exec POD -- dupip doctor`,
		Args: query.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.ErrOrStderr(), cmd.Flags()); err != nil {
				return err
			}
			f.Version = buildVersion()
			report := doctor.Run(cmd.Context(), doctor.Options{
				Options: f.Options, Bind: f.members.Bind, GossipPort: f.members.Port, Join: f.members.Join,
				KeyFile: f.members.KeyFile, NeedsKey: members.CheckKey(members.Options{Bind: f.members.Bind}) != nil,
				CountKeys: transport.CountKeys, CheckPort: checkPort, Resolve: members.Resolve,
			})
			return p.ShowDoctor(cmd, report)
		},
	}
	p.AddOutput(cmd)
	f.addTo(cmd)
	return cmd
}

// checkPort listens for gossip for a moment, and returns why the agent could not.
func checkPort(bind string, port int) error {
	l, err := transport.Listen(bind, port)
	if err != nil {
		return err
	}
	return l.Close()
}
