package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
)

// exitOpen is the exit code of "conflicts --exit-code" when a conflict is open.
const exitOpen = 3

func newConflicts(g *globals) *cobra.Command {
	var all, watch, exitCode bool
	cmd := &cobra.Command{
		Use:   "conflicts",
		Short: "Show addresses with two or more live holders",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if watch {
				return watchConflicts(cmd, g)
			}
			document, err := g.client().Conflicts(cmd.Context(), all)
			if err != nil {
				return err
			}
			if done, err := g.output.document(out, document); err != nil {
				return err
			} else if !done {
				printConflicts(out, document.Conflicts, g.output == formatWide, all)
			}
			if exitCode && anyOpen(document.Conflicts) {
				return exitError(exitOpen)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "resolved ones too, newest first")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on printing what happens")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 3 when any conflict is open")
	cmd.MarkFlagsMutuallyExclusive("watch", "all")
	cmd.MarkFlagsMutuallyExclusive("watch", "exit-code")
	g.addTo(cmd)
	return cmd
}

func anyOpen(conflicts []api.Conflict) bool {
	for _, c := range conflicts {
		if c.State != "resolved" {
			return true
		}
	}
	return false
}

func watchConflicts(cmd *cobra.Command, g *globals) error {
	out := cmd.OutOrStdout()
	return g.client().WatchConflicts(cmd.Context(), func(event api.ConflictEvent) error {
		if done, err := g.output.line(out, event); done {
			return err
		}
		names := make([]string, 0, len(event.Conflict.Holders))
		for _, holder := range event.Conflict.Holders {
			names = append(names, who(holder))
		}
		reason := ""
		if event.Reason != "" {
			reason = ": " + event.Reason
		}
		_, err := fmt.Fprintf(out, "%s  %s  %s  %s%s\n", event.At.Local().Format("15:04:05.000"),
			paint(out, event.Type), inNetwork(event.Conflict.IP, event.Conflict.Network), strings.Join(names, " and "), reason)
		return err
	})
}

func printConflicts(out io.Writer, conflicts []api.Conflict, wide, all bool) {
	if len(conflicts) == 0 {
		if all {
			fmt.Fprintln(out, "No conflict, now or before.")
		} else {
			fmt.Fprintln(out, "No conflict.")
		}
		return
	}
	if wide {
		t := newTable(out, "id", "network", "ip", "state", "scope", "since", "resolved", "holder", "node", "interface", "mac", "evidence", "first seen", "last seen")
		for _, c := range conflicts {
			for n, b := range c.Holders {
				row := table.Row{"", "", "", "", "", "", ""}
				if n == 0 {
					row = table.Row{c.ID, c.Network, c.IP, paint(out, c.State), c.Scope, age(since(c)), age(c.ResolvedAt)}
				}
				t.AppendRow(append(row, who(b), b.Node, b.Interface, b.MAC, b.Evidence, age(b.FirstSeen), age(b.LastSeen)))
			}
		}
		t.Render()
		return
	}
	header := []any{"ip", "state", "since", "holder", "interface", "seen"}
	var rows []table.Row
	for _, c := range conflicts {
		for n, b := range c.Holders {
			row := table.Row{"", "", ""}
			if n == 0 {
				row = table.Row{inNetwork(c.IP, c.Network), paint(out, c.State), age(since(c))}
			}
			rows = append(rows, append(row, who(b), clip(b.Interface, 15), age(b.FirstSeen)))
		}
	}
	header, rows = fit(header, rows, "holder", "seen", "interface")
	t := newTable(out, header...)
	t.AppendRows(rows)
	t.Render()
}

// since is when a conflict took its present state.
func since(c api.Conflict) time.Time {
	switch c.State {
	case "confirmed":
		return c.ConfirmedAt
	case "resolved":
		return c.ResolvedAt
	}
	return c.SuspectedAt
}
