package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
)

// exitOpen is the exit code of "conflicts --exit-code" when a conflict is open.
const exitOpen = 3

func newConflicts(g *globals) *cobra.Command {
	var ask queryFlags
	var all, watch, exitCode bool
	cmd := &cobra.Command{
		Use:   "conflicts",
		Short: "Show addresses with two or more live holders",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := ask.query()
			if err != nil {
				return err
			}
			q.All = all
			out := cmd.OutOrStdout()
			if watch {
				return watchConflicts(cmd, g, q)
			}
			document, err := g.client().Conflicts(cmd.Context(), q)
			if err == nil {
				err = ask.unanswered(document.Coverage)
			}
			if err != nil {
				return err
			}
			if done, err := g.output.document(out, document); err != nil {
				return err
			} else if !done {
				sanitize(&document)
				printPairs(out, document)
				printConflicts(out, document.Conflicts, g.output == formatWide, all)
				printAdvice(out, document)
				printCoverage(out, document.Coverage, "conflicts")
			}
			if exitCode && anyOpen(document.Conflicts) {
				return exitError(exitOpen)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "resolved ones too, newest first")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on printing what happens on this node")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 3 when any conflict is open")
	apart(cmd, "watch", "all")
	apart(cmd, "watch", "exit-code")
	ask.addTo(cmd, g)
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

func watchConflicts(cmd *cobra.Command, g *globals, q api.Query) error {
	out := cmd.OutOrStdout()
	return g.client().WatchConflicts(cmd.Context(), q, func(event api.ConflictEvent) error {
		if done, err := g.output.line(out, event); done {
			return err
		}
		sanitize(&event)
		names := make([]string, 0, len(event.Conflict.Holders))
		nodes := nodeNames(event.Conflict.Holders)
		for _, holder := range event.Conflict.Holders {
			name := who(holder)
			if len(nodes) > 1 {
				name += " on " + nodes[nodeID(holder)]
			}
			names = append(names, name)
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
			nodes := nodeNames(c.Holders)
			for n, b := range c.Holders {
				row := table.Row{"", "", "", "", "", "", ""}
				if n == 0 {
					row = table.Row{c.ID, c.Network, c.IP, paint(out, c.State), c.Scope, age(since(c)), age(c.ResolvedAt)}
				}
				t.AppendRow(append(row, describeHolder(b), nodes[nodeID(b)], b.Interface, b.MAC, b.Evidence, age(b.FirstSeen), age(b.LastSeen)))
			}
		}
		t.Render()
		return
	}
	header := []any{"ip", "state", "since", "holder", "interface", "seen"}
	var holders []api.Binding
	for _, c := range conflicts {
		holders = append(holders, c.Holders...)
	}
	nodes := nodeColumn(holders)
	if nodes != nil {
		header = slices.Insert(header, 3, any("node"))
	}
	var rows []table.Row
	far := false
	for _, c := range conflicts {
		for n, b := range c.Holders {
			row := table.Row{"", "", ""}
			if n == 0 {
				row = table.Row{inNetwork(c.IP, c.Network), paint(out, c.State), age(since(c))}
			}
			name := describeHolder(b)
			if nodes != nil {
				// The name is what people look for, so the node has the mark.
				node := nodes[nodeID(b)]
				if name = who(b); b.Unreachable {
					node, far = node+" !", true
				}
				row = append(row, node)
			}
			rows = append(rows, append(row, name, clip(b.Interface, 15), age(b.FirstSeen)))
		}
	}
	header, rows = fit(header, rows, "holder", "seen", "interface", "since")
	t := newTable(out, header...)
	t.AppendRows(rows)
	t.Render()
	if far {
		wrapped(out, 2, "! unreachable: the node does not answer, and its holders may be gone.")
	}
}

// describeHolder is who, and says so where the holder's node does not answer.
func describeHolder(b api.Binding) string {
	if b.Unreachable {
		return who(b) + " (unreachable)"
	}
	return who(b)
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
