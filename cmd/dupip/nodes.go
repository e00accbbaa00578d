package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
)

func newNodes(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Show the agents of the cluster as this one sees them",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			document, err := g.client().Nodes(cmd.Context())
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if done, err := g.output.document(out, document); done {
				return err
			}
			tidy(&document)
			printNodes(out, document, g.output == formatWide)
			return nil
		},
	}
	g.addTo(cmd)
	return cmd
}

func printNodes(out io.Writer, document api.Nodes, wide bool) {
	header := []any{"name", "state", "since", "heard", "unacked", "address"}
	if wide {
		header = append(header, "boot", "epoch", "version")
	}
	var rows []table.Row
	for _, n := range document.Nodes {
		name, heard := n.Name, age(n.Heard)
		if n.Self {
			name, heard = name+" (this one)", "-"
		}
		row := table.Row{name, paint(out, n.State), age(n.Since), heard, n.Unacked, n.Address}
		if wide {
			row = append(row, n.Boot, n.Epoch, n.Version)
		}
		rows = append(rows, row)
	}
	if !wide {
		header, rows = fit(header, rows, "name", "heard", "since")
	}
	t := newTable(out, header...)
	t.AppendRows(rows)
	t.Render()
	printNamesakes(out, document.Nodes)
	if document.Cluster.Alone {
		wrapped(out, 0, "This agent is alone: it was started without --join and --bind, so duplicates on other nodes are not found.")
	}
	for _, problem := range document.Cluster.Problems {
		wrapped(out, 2, "Problem: "+problem)
	}
}

// printNamesakes names live nodes that have one name.
func printNamesakes(out io.Writer, nodes []api.Node) {
	where := make(map[string][]string)
	var names []string
	for _, n := range nodes {
		if !n.Namesake {
			continue
		}
		if where[n.Name] == nil {
			names = append(names, n.Name)
		}
		where[n.Name] = append(where[n.Name], n.Address)
	}
	slices.Sort(names)
	for _, name := range names {
		wrapped(out, 2, fmt.Sprintf("%d live nodes are named %s (%s): give each a name of its own with --node-name.",
			len(where[name]), name, strings.Join(where[name], ", ")))
	}
}
