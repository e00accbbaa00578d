package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/doctor"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/cmd/internal/query"
	"github.com/dupip/dupip/document/say"
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
			out := cmd.OutOrStdout()
			if done, err := p.Output.Encode(out, report, false); err != nil {
				return err
			} else if !done {
				printReport(p.Printer(cmd), report)
			}
			if report.Summary.Failures > 0 {
				return query.ExitError(1)
			}
			return nil
		},
	}
	p.AddOutput(cmd)
	f.addTo(cmd)
	return cmd
}

// printReport prints a line for each check, and below it what to do.
func printReport(p *cli.Printer, report doctor.Report) {
	const name, outcome = 14, 6
	const short = 30
	said := make(map[string]string) // sentences, by the check that said them first
	once := func(check, sentence string) string {
		if first := said[sentence]; first != "" && len(sentence) > short {
			return "as for \"" + first + "\""
		}
		said[sentence] = check
		return sentence
	}
	for _, check := range report.Checks {
		p.Entry(name+outcome, fmt.Sprintf("%-*s%s", name, check.Name, p.Paint(string(check.Status))), once(check.Name, check.Finding))
		if check.Advice != "" {
			p.Entry(name+outcome+2, strings.Repeat(" ", name+outcome)+"→", once(check.Name, check.Advice))
		}
	}
	s := report.Summary
	fmt.Fprintf(p.Out, "\n%d ok, %s, %s", s.OK, say.Plural(s.Warnings, "warning", "warnings"), say.Plural(s.Failures, "failure", "failures"))
	if s.Skipped > 0 {
		fmt.Fprintf(p.Out, ", %d skipped", s.Skipped)
	}
	fmt.Fprintln(p.Out)
}

// checkPort listens for gossip for a moment, and returns why the agent could not.
func checkPort(bind string, port int) error {
	l, err := transport.Listen(bind, port)
	if err != nil {
		return err
	}
	return l.Close()
}
