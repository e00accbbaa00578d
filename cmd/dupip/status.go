package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
)

func newStatus(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the agent is doing and what it cannot see",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			document, err := g.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if done, err := g.output.document(out, document); done {
				return err
			}
			printStatus(out, document, g.output == formatWide)
			return nil
		},
	}
	g.addTo(cmd)
	return cmd
}

func printStatus(out io.Writer, s api.Status, wide bool) {
	state := "starting"
	if s.Ready {
		state = "observing"
	}
	fmt.Fprintf(out, "Node        %s, boot %s\n", s.Node, s.BootID)
	fmt.Fprintf(out, "Agent       %s, %s for %s, attached by %s\n", s.Version, state, age(s.Started), s.Attach)
	fmt.Fprintf(out, "Interfaces  %s\n", counts(s.ByState))
	fmt.Fprintf(out, "Bindings    %s\n", counts(s.Bindings))
	fmt.Fprintf(out, "Conflicts   %s; %d resolved, %d suspicions faded\n", counts(s.Conflicts), s.Resolved, s.Faded)
	fmt.Fprintf(out, "Dropped     %s\n", counts(s.Dropped))
	for _, i := range s.Interfaces {
		if !wide && i.State != "attached" {
			wrapped(out, 4, fmt.Sprintf("  %s is %s: %s", i.Name, paint(out, i.State), i.Reason))
		}
	}
	if !wide {
		return
	}
	fmt.Fprintln(out)
	t := newTable(out, "interface", "ifindex", "state", "network", "peer", "netns", "pid", "refused", "reason")
	for _, i := range s.Interfaces {
		refused := uint64(0)
		if r := i.Refused; r != nil {
			refused = r.Data + r.Announced + r.Answers + r.RingFull
		}
		t.AppendRow(table.Row{i.Name, i.Ifindex, paint(out, i.State), i.Network, i.Peer, i.Netns, i.Pid, refused, i.Reason})
	}
	t.Render()
	fmt.Fprintf(out, "\nThe node's own addresses: %s\n", strings.Join(s.HostHolders, " "))
}

// counts prints what is not zero of a map of figures, "none" if all are.
func counts[N int | uint64](figures map[string]N) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		if figures[name] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", figures[name], name))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
