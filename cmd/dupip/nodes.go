package main

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/internal/cli"
)

func newNodes(g *globals) *cobra.Command {
	return newQuery(g, "nodes", "Show the agents of the cluster as this one sees them", (*api.Client).Nodes, printNodes)
}

func printNodes(out io.Writer, document api.Nodes, wide bool) {
	header := []any{"name", "state", "since", "heard", "unacked", "address"}
	boots := wide || sameNames(document.Nodes)
	if boots {
		header = append(header, "boot")
	}
	if wide {
		header = append(header, "epoch", "version")
	}
	var rows []table.Row
	for _, n := range document.Nodes {
		name, heard := n.Name, cli.Age(n.Heard)
		if n.Self {
			name, heard = name+" (this one)", "-"
		}
		row := table.Row{name, paint(out, n.State), cli.Age(n.Since), heard, n.Unacked, n.Address}
		switch {
		case wide:
			row = append(row, n.BootID, n.Epoch, n.Version)
		case boots:
			row = append(row, fmt.Sprintf("%.8s", n.BootID)) // as in the table of conflicts
		}
		rows = append(rows, row)
	}
	if wide {
		printTable(out, rows, header...)
	} else {
		printFitted(out, rows, header, "name", "heard", "since")
	}
	if document.Cluster.Alone {
		wrapped(out, 0, "This agent is alone: it was started without --join and --bind, so duplicates on other nodes are not found.")
	}
	for _, problem := range document.Cluster.Problems {
		wrapped(out, 2, "Problem: "+problem)
	}
}

// sameNames reports whether two nodes have one name, so that their boots have to be shown.
func sameNames(nodes []api.Node) bool {
	boots := make(map[string]string)
	for _, n := range nodes {
		if boot, ok := boots[n.Name]; ok && boot != n.BootID {
			return true
		}
		boots[n.Name] = n.BootID
	}
	return false
}
