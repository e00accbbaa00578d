package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/internal/cli"
)

func newBindings(g *globals) *cobra.Command {
	var flags queryFlags
	var watch bool
	cmd := &cobra.Command{
		Use:   "bindings",
		Short: "Show which address was seen behind which interface",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := flags.query()
			if err != nil {
				return err
			}
			if watch {
				return g.client().WatchBindings(cmd.Context(), q, func(event api.BindingEvent) error {
					return showEvent(cmd, g, event, bindingLine)
				})
			}
			document, err := g.client().Bindings(cmd.Context(), q)
			if err == nil {
				err = flags.unanswered(document.Coverage)
			}
			if err != nil {
				return err
			}
			return show(cmd, g, document, func(out io.Writer, document api.Bindings, wide bool) {
				printBindings(out, document.Bindings, wide)
				printCoverage(out, document.Coverage, "bindings")
			})
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print changes on this node as they happen")
	flags.addTo(cmd, g)
	g.addTo(cmd)
	return cmd
}

func bindingLine(event api.BindingEvent) string {
	b := event.Binding
	return fmt.Sprintf("%-8s %-15s %-16s %-9s %s", event.Type, b.IP, clip(b.Interface, 15), b.Evidence, cli.Who(b))
}

func printBindings(out io.Writer, bindings []api.Binding, wide bool) {
	if len(bindings) == 0 {
		fmt.Fprintln(out, "No address seen yet.")
		return
	}
	var rows []table.Row
	if wide {
		for _, b := range bindings {
			rows = append(rows, table.Row{
				b.Network, b.IP, cli.Who(b), b.Node, b.Interface, b.Ifindex, b.MAC, b.Evidence,
				cli.Age(b.FirstSeen), cli.Age(b.LastSeen),
			})
		}
		printTable(out, rows, "network", "ip", "holder", "node", "interface", "ifindex", "mac", "evidence", "first seen", "last seen")
		return
	}
	header := []any{"ip", "holder", "interface", "evidence", "first", "last"}
	nodes := nodeColumn(bindings)
	if nodes != nil {
		header = slices.Insert(header, 1, any("node"))
	}
	for _, b := range bindings {
		row := table.Row{
			cli.InNetwork(b.IP, b.Network), cli.Who(b), clip(b.Interface, 15), b.Evidence, cli.Age(b.FirstSeen), cli.Age(b.LastSeen),
		}
		if nodes != nil {
			row = slices.Insert(row, 1, any(nodes[cli.NodeID(b)]))
		}
		rows = append(rows, row)
	}
	printFitted(out, rows, header, "holder", "first", "interface", "last")
}
