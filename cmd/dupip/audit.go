package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/internal/cli"
)

func newAudit(g *globals) *cobra.Command {
	var flags queryFlags
	var exitCode bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show where IPAM's books and the wire differ",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := flags.query()
			if err != nil {
				return err
			}
			document, err := g.client().Audit(cmd.Context(), q)
			if err == nil {
				err = flags.unanswered(document.Coverage)
			}
			if err != nil {
				return err
			}
			err = show(cmd, g, document, printAudit)
			if err == nil && exitCode && len(document.Findings) > 0 {
				return exitError(exitOpen)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 3 when there is any finding")
	flags.addTo(cmd, g)
	g.addTo(cmd)
	return cmd
}

func printAudit(out io.Writer, a api.Audit, wide bool) {
	printFindings(out, a, wide)
	printRepairs(out, a)
	for _, b := range a.Books {
		wrapped(out, 2, "Book: "+bookText(b)+".")
	}
	if len(a.Books) == 0 && a.Error == "" && !a.At.IsZero() {
		wrapped(out, 2, "Book: none on node "+a.Node+". No network in its CNI configuration has its addresses from host-local.")
	}
	if a.Error != "" {
		wrapped(out, 2, "Problem: "+a.Error)
	}
	for _, text := range a.Unchecked {
		wrapped(out, 2, "Not checked: "+text+".")
	}
	printCoverage(out, a.Coverage, "findings")
}

func printFindings(out io.Writer, a api.Audit, wide bool) {
	if len(a.Findings) == 0 {
		text := "No finding: books and wire agree."
		if a.Error != "" || len(a.Unchecked) > 0 || slices.ContainsFunc(a.Books, func(b api.BookStatus) bool { return b.Error != "" }) {
			text = "No finding, but not everything was checked:"
		}
		fmt.Fprintln(out, text)
		return
	}
	on := []api.Binding{{Node: a.Node, BootID: a.BootID}}
	for _, f := range a.Findings {
		on = append(on, holderOf(f))
	}
	nodes := nodeColumn(on)
	header := []any{"ip", "finding", "since", "holder", "reserved for"}
	if nodes != nil {
		header = append([]any{"node"}, header...)
	}
	if wide {
		header = append(header, "book", "network", "store", "interface", "netns", "sandbox")
	}
	var rows []table.Row
	for _, f := range a.Findings {
		var row table.Row
		if nodes != nil {
			row = append(row, nodes[cli.NodeID(holderOf(f))])
		}
		row = append(row, f.IP, paint(out, f.Kind), cli.Age(f.Since), cmp.Or(cli.PodName(f.Pod), f.Netns, "-"), cli.ReservationOf(f, wide))
		if wide {
			row = append(row, f.Book, f.Network, f.Store, cmp.Or(f.Interface, "-"), cmp.Or(f.Netns, "-"), cmp.Or(f.Sandbox, "-"))
		}
		rows = append(rows, row)
	}
	if wide {
		printTable(out, rows, header...)
	} else {
		printFitted(out, rows, header, "holder", "since", "reserved for")
	}
}

// holderOf is the node and the address of a finding.
func holderOf(f api.Finding) api.Binding {
	return api.Binding{Node: f.Node, BootID: f.BootID, IP: f.IP}
}

// printRepairs says what follows from the findings, and how to repair the first of each sort.
func printRepairs(out io.Writer, a api.Audit) {
	if len(a.Findings) > 0 {
		fmt.Fprintln(out)
	}
	var on []api.Binding
	for _, f := range a.Findings {
		on = append(on, holderOf(f))
	}
	names, _ := cli.NodesOf(on)
	nodes := make(map[string]string)
	for n, b := range on {
		nodes[cli.NodeID(b)] = names[n]
	}
	for _, kind := range audit.Kinds {
		for _, apart := range []bool{true, false} {
			same := slices.DeleteFunc(slices.Clone(a.Findings), func(f api.Finding) bool { return f.Kind != kind || cli.IsApart(f) != apart })
			if len(same) > 0 {
				printRepair(out, same, nodes[cli.NodeID(holderOf(same[0]))])
			}
		}
	}
	if len(a.Findings) > 0 {
		fmt.Fprintln(out)
	}
}

// printRepair says how to repair the first of findings that are repaired in the same way.
func printRepair(out io.Writer, same []api.Finding, node string) {
	text, command := cli.Repair(same[0])
	wrapped(out, 2, text)
	if command != "" {
		fmt.Fprintln(out, clip("  on node "+node+":", screen))
		printCommand(out, "    ", command)
	}
	var others []string
	for _, f := range same[1:] {
		others = append(others, f.IP)
	}
	if len(others) > 0 {
		wrapped(out, 4, "  likewise: "+cli.List(others))
	}
}
