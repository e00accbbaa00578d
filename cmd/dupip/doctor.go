package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/doctor"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/transport"
)

func newDoctor(g *globals) *cobra.Command {
	var opts doctor.Options
	var attach string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out why an agent does not start or sees nothing",
		Long: `Examine this node: kernel, rights, mounts, network namespaces, sockets, runtime.
For each problem it says what to do. It works with and without a running agent,
does not disturb it, and changes nothing.

Run it as root where the agent runs: on the node, or in the agent's container.
Give it the flags (or the environment) of the agent. The exit code is 1 when
anything failed.`,
		Example: `  dupip doctor
  kubectl -n kube-system exec POD -- dupip doctor`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			mode, err := bpf.ParseMode(attach)
			if err != nil {
				return fmt.Errorf("--attach: %w", err)
			}
			opts.Attach, opts.APISocket, opts.Version = mode, g.socket, buildVersion()
			opts.CountKeys, opts.CheckPort, opts.Resolve = transport.CountKeys, checkPort, members.Resolve
			opts.NeedsKey = members.CheckKey(members.Options{Bind: opts.Bind}) != nil
			report := doctor.Run(cmd.Context(), opts)
			out := cmd.OutOrStdout()
			if done, err := g.output.Encode(out, report, false); err != nil {
				return err
			} else if !done {
				printReport(g.printer(cmd), report)
			}
			if report.Summary.Failures > 0 {
				return exitError(1)
			}
			return nil
		},
	}
	g.addTo(cmd)
	flags := cmd.Flags()
	flags.StringVar(&attach, "attach", string(bpf.Auto), "how the agent attaches: auto, tcx, tc or xdp")
	flags.StringVar(&opts.MetricsListen, "metrics-listen", metrics.DefaultListen, "TCP address of the agent's metrics, or off")
	flags.StringVar(&opts.CRISocket, "cri-socket", "", "socket of the container runtime, or off (default: the usual places)")
	flags.StringVar(&opts.StateDir, "state-dir", state.DefaultDir, "folder of the agent's state")
	flags.StringVar(&opts.ConfigFile, "config", "", "configuration file of the agent")
	flags.StringVar(&opts.Bind, "bind", "", "address of this node that the agent binds gossip to")
	flags.IntVar(&opts.GossipPort, "gossip-port", members.DefaultPort, "port of the agents' gossip")
	flags.StringSliceVar(&opts.Join, "join", nil, "nodes that the agent joins; repeat it, or separate them by commas")
	flags.StringVar(&opts.KeyFile, "gossip-key-file", "", "file with the keys of gossip")
	flags.BoolVar(&opts.Insecure, "insecure-gossip", false, "the agent does without --gossip-key-file")
	complete(cmd, "attach", attachModes...)
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
	fmt.Fprintf(p.Out, "\n%d ok, %s, %s", s.OK, cli.Plural(s.Warnings, "warning", "warnings"), cli.Plural(s.Failures, "failure", "failures"))
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
