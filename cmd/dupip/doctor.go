package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/doctor"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/internal/cli"
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
			if done, err := g.output.encode(out, report, false); err != nil {
				return err
			} else if !done {
				printReport(out, report, g.output == formatWide)
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
func printReport(out io.Writer, report doctor.Report, wide bool) {
	const name, outcome = 14, 6
	for _, check := range report.Checks {
		status := string(check.Status)
		// Padded here, because escape sequences for colour have no width.
		fmt.Fprintf(out, "%-*s%s%s", name, check.Name, paint(out, status), strings.Repeat(" ", outcome-len(status)))
		hanging(out, name+outcome, check.Finding, wide)
		if check.Advice != "" {
			fmt.Fprint(out, strings.Repeat(" ", name+outcome))
			hanging(out, name+outcome+3, "→ "+check.Advice, wide)
		}
	}
	s := report.Summary
	fmt.Fprintf(out, "\n%d ok, %s, %s", s.OK, cli.Plural(s.Warnings, "warning", "warnings"), cli.Plural(s.Failures, "failure", "failures"))
	if s.Skipped > 0 {
		fmt.Fprintf(out, ", %d skipped", s.Skipped)
	}
	fmt.Fprintln(out)
}

// checkPort listens for gossip for a moment, and returns why the agent could not.
func checkPort(bind string, port int) error {
	l, err := transport.Listen(bind, port)
	if err != nil {
		return err
	}
	return l.Close()
}
