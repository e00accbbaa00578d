package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
)

func newBindings(g *globals) *cobra.Command {
	var ask queryFlags
	var watch bool
	cmd := &cobra.Command{
		Use:   "bindings",
		Short: "Show which address was seen behind which interface",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := ask.query()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if watch {
				return watchBindings(cmd, g, q)
			}
			document, err := g.client().Bindings(cmd.Context(), q)
			if err == nil {
				err = ask.unanswered(document.Coverage)
			}
			if err != nil {
				return err
			}
			if done, err := g.output.document(out, document); done {
				return err
			}
			sanitize(&document)
			printBindings(out, document.Bindings, g.output == formatWide)
			printCoverage(out, document.Coverage, "bindings")
			return nil
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on printing changes on this node")
	ask.addTo(cmd, g)
	g.addTo(cmd)
	return cmd
}

func watchBindings(cmd *cobra.Command, g *globals, q api.Query) error {
	out := cmd.OutOrStdout()
	return g.client().WatchBindings(cmd.Context(), q, func(event api.BindingEvent) error {
		if done, err := g.output.line(out, event); done {
			return err
		}
		sanitize(&event)
		b := event.Binding
		_, err := fmt.Fprintf(out, "%-8s %-15s %-16s %-9s %s\n", event.Type, b.IP, clip(b.Interface, 15), b.Evidence, who(b))
		return err
	})
}

func printBindings(out io.Writer, bindings []api.Binding, wide bool) {
	if len(bindings) == 0 {
		fmt.Fprintln(out, "No address seen yet.")
		return
	}
	if wide {
		t := newTable(out, "network", "ip", "holder", "node", "interface", "ifindex", "mac", "evidence", "first seen", "last seen")
		for _, b := range bindings {
			t.AppendRow(table.Row{
				b.Network, b.IP, who(b), b.Node, b.Interface, b.Ifindex, b.MAC, b.Evidence,
				age(b.FirstSeen), age(b.LastSeen),
			})
		}
		t.Render()
		return
	}
	header := []any{"ip", "holder", "interface", "evidence", "first", "last"}
	nodes := nodeColumn(bindings)
	if nodes != nil {
		header = slices.Insert(header, 1, any("node"))
	}
	var rows []table.Row
	for _, b := range bindings {
		row := table.Row{
			inNetwork(b.IP, b.Network), who(b), clip(b.Interface, 15), b.Evidence, age(b.FirstSeen), age(b.LastSeen),
		}
		if nodes != nil {
			row = slices.Insert(row, 1, any(nodes[nodeID(b)]))
		}
		rows = append(rows, row)
	}
	header, rows = fit(header, rows, "holder", "first", "interface", "last")
	t := newTable(out, header...)
	t.AppendRows(rows)
	t.Render()
}

// who names the holder as well as is known: the pod, else the netns.
func who(b api.Binding) string {
	switch {
	case b.Pod != nil:
		return b.Pod.String()
	case b.Netns != "":
		return b.Netns
	case b.NetnsCookie != 0:
		return "(no name yet)" // another node's, which has told no more
	}
	return "unseen netns"
}

// inNetwork adds the network to an address where it is not the usual one.
func inNetwork(ip, network string) string {
	if network == "default" {
		return ip
	}
	return ip + " (" + network + ")"
}
