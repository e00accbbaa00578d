package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/internal/cli"
)

// exitOpen is the exit code of "conflicts --exit-code" when a conflict is open.
const exitOpen = 3

func newConflicts(g *globals) *cobra.Command {
	var flags queryFlags
	var all, watch, exitCode bool
	cmd := &cobra.Command{
		Use:   "conflicts",
		Short: "Show addresses with two or more live holders",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := flags.query()
			if err != nil {
				return err
			}
			q.All = all
			if watch {
				return g.client().WatchConflicts(cmd.Context(), q, func(event api.ConflictEvent) error {
					return showEvent(cmd, g, event, func(event api.ConflictEvent) string { return conflictLine(cmd.OutOrStdout(), event) })
				})
			}
			document, err := g.client().Conflicts(cmd.Context(), q)
			if err == nil {
				err = flags.unanswered(document.Coverage)
			}
			if err != nil {
				return err
			}
			err = show(cmd, g, document, func(out io.Writer, document api.Conflicts, wide bool) {
				printPairs(out, document)
				printConflicts(out, document.Conflicts, wide, all)
				printAdvice(out, document)
				printCoverage(out, document.Coverage, "conflicts")
			})
			isOpen := func(c api.Conflict) bool { return c.State != "resolved" }
			if err == nil && exitCode && slices.ContainsFunc(document.Conflicts, isOpen) {
				return exitError(exitOpen)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also resolved conflicts, newest first")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print events on this node as they happen")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 3 when any conflict is open")
	exclude(cmd, "watch", "all")
	exclude(cmd, "watch", "exit-code")
	flags.addTo(cmd, g)
	g.addTo(cmd)
	return cmd
}

func conflictLine(out io.Writer, event api.ConflictEvent) string {
	c := event.Conflict
	var names []string
	nodes, several := cli.NodesOf(c.Holders)
	for n, holder := range c.Holders {
		name := cli.Who(holder)
		if several {
			name += " on " + nodes[n]
		}
		names = append(names, name)
	}
	line := fmt.Sprintf("%s  %s  %s  %s", event.At.Local().Format("15:04:05.000"),
		paint(out, event.Type), cli.InNetwork(c.IP, c.Network), strings.Join(names, " and "))
	if event.Reason != "" {
		line += ": " + event.Reason
	}
	return line
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
	var rows []table.Row
	if wide {
		for _, c := range conflicts {
			nodes, _ := cli.NodesOf(c.Holders)
			for n, b := range c.Holders {
				row := table.Row{"", "", "", "", "", "", ""}
				if n == 0 {
					row = table.Row{c.ID, c.Network, c.IP, paint(out, c.State), c.Scope, cli.Age(since(c)), cli.Age(c.ResolvedAt)}
				}
				rows = append(rows, append(row, cli.DescribeHolder(b), nodes[n], b.Interface, b.MAC, b.Evidence, cli.Age(b.FirstSeen), cli.Age(b.LastSeen)))
			}
		}
		printTable(out, rows, "id", "network", "ip", "state", "scope", "since", "resolved", "holder", "node", "interface", "mac",
			"evidence", "first seen", "last seen")
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
	unreachable := false
	for _, c := range conflicts {
		for n, b := range c.Holders {
			row := table.Row{"", "", ""}
			if n == 0 {
				row = table.Row{cli.InNetwork(c.IP, c.Network), paint(out, c.State), cli.Age(since(c))}
			}
			name := cli.DescribeHolder(b)
			if nodes != nil {
				// The mark is on the node, so that the name can be copied.
				node := nodes[cli.NodeID(b)]
				if name = cli.Who(b); b.Unreachable {
					node, unreachable = node+" !", true
				}
				row = append(row, node)
			}
			rows = append(rows, append(row, name, clip(b.Interface, 15), cli.Age(b.FirstSeen)))
		}
	}
	printFitted(out, rows, header, "holder", "seen", "interface", "since")
	if unreachable {
		wrapped(out, 2, "! unreachable: the node does not answer, and its holders may be gone.")
	}
}

// since is when a conflict reached its present state.
func since(c api.Conflict) time.Time { return cmp.Or(c.ResolvedAt, c.ConfirmedAt, c.SuspectedAt) }
