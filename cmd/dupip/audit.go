package main

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

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
		row = append(row, f.IP, paint(out, f.Kind), cli.Age(f.Since), cmp.Or(cli.PodName(f.Pod), f.Netns, "-"), reservationOf(f, wide))
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

// reservationOf says for whom the address of a finding is reserved.
func reservationOf(f api.Finding, wide bool) string {
	id := f.ReservedFor
	if !wide {
		id = reservedID(f)
	}
	return cmp.Or(cli.PodName(f.ReservedPod), id, "-")
}

// reservedID is the beginning of the id of the sandbox that has the reservation, as crictl prints it.
func reservedID(f api.Finding) string { return f.ReservedFor[:min(len(f.ReservedFor), 13)] }

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
			same := slices.DeleteFunc(slices.Clone(a.Findings), func(f api.Finding) bool { return f.Kind != kind || isApart(f) != apart })
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
	text, command := repair(same[0])
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

// isApart reports whether a finding is repaired in another way than others of its kind.
func isApart(f api.Finding) bool { return takenByHand(f) || isHeld(f) }

// isHeld reports whether a pod has the address of a reservation that nobody holds.
func isHeld(f api.Finding) bool { return f.Kind == "unheld" && f.Interface != "" }

// takenByHand reports whether no network plugin gave the holder its address.
func takenByHand(f api.Finding) bool { return f.Given != nil && !*f.Given }

// repair says what a finding means, and the command that repairs it; empty if there is none that is safe.
func repair(f api.Finding) (text, command string) {
	holder := cmp.Or(cli.PodName(f.Pod), f.Netns)
	switch {
	case isHeld(f):
		return fmt.Sprintf("%s is reserved for sandbox %s, which does not exist any more, and %s has it. "+
			"Do not free it while that pod runs: the next pod would get it.", f.IP, reservationOf(f, false), holder), ""
	case f.Kind == "unheld":
		text = fmt.Sprintf("%s is reserved for sandbox %s, which does not exist any more: the range has one address less.", f.IP, reservationOf(f, false))
		if !isPath(f.Store) || !isAddress(f.IP) || !isSandbox(f.ReservedFor) {
			return text, ""
		}
		// Only if it is still that reservation: the address may be another pod's by now.
		return text + " If no other runtime has that container, free it:",
			fmt.Sprintf("flock %s/lock sh -c 'grep -q ^%s %[1]s/%[3]s && rm %[1]s/%[3]s'", f.Store, reservedID(f), f.IP)
	case takenByHand(f):
		return fmt.Sprintf("%s has %s, which no network plugin gave it: it was taken by hand, and %s. "+
			"Take the address from the pod, or delete the pod.", holder, f.IP, will(f)), ""
	case f.Kind == "mismatched":
		return fmt.Sprintf("%s has %s, which %s has reserved for %s: they collide as soon as both use it. Delete %[1]s, so that its successor gets another address.",
			holder, f.IP, f.Book, reservationOf(f, false)), ""
	}
	text = fmt.Sprintf("%s has %s, which %s has not reserved: the next pod may get it. Delete the pod, so that its successor gets another address",
		holder, f.IP, f.Book)
	// Only of the primary interface it is known that its name in the pod is eth0, which is part of a reservation.
	if f.Given == nil || !isSandbox(f.Sandbox) || !isPath(f.Store) || !isAddress(f.IP) {
		return text + ".", ""
	}
	return text + "; or reserve the address for it again:",
		// The folder may be gone with all reservations.
		fmt.Sprintf(`mkdir -p %s && flock %[1]s/lock sh -c 'set -C; printf "%[2]s\r\neth0" >%[1]s/%[3]s'`, f.Store, f.Sandbox, f.IP)
}

func will(f api.Finding) string {
	if f.Kind == "mismatched" {
		return f.Book + " has reserved it for " + reservationOf(f, false)
	}
	return f.Book + " may give it to another pod"
}

// isPath reports whether a path is safe for a shell.
func isPath(path string) bool {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"
	return strings.HasPrefix(path, "/") && !strings.Contains(path, "..") && strings.Trim(path, safe) == ""
}

// isAddress reports whether it is an address as IPAM names its files. A zone may be any text.
func isAddress(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.String() == text && !ip.Is4In6() && ip.Zone() == ""
}

// isSandbox reports whether it is a whole id of a sandbox.
func isSandbox(id string) bool {
	return len(id) >= 32 && strings.Trim(id, "0123456789abcdef") == ""
}
