package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/internal/cli"
)

const (
	// maxFlushes bounds the commands of which there is one for each node.
	maxFlushes = 4
	// longNode is how many columns of a node's name are printed in a line of its own.
	longNode = 70
)

// on returns ", on node NODE" if all commands are for one node.
func on(removals []api.Removal) string {
	node := removals[0].On
	if node == "" || slices.ContainsFunc(removals, func(r api.Removal) bool { return r.On != node }) {
		return ""
	}
	return ", on node " + loginNode(removals[0])
}

// loginNode is the node that a command is for. If another node has its name, the address is added,
// because nobody can log in to a boot id.
func loginNode(r api.Removal) string {
	if name, ok := strings.CutSuffix(r.On, ")"); ok && r.Address != "" && cli.WithoutBoot(r.On) != r.On {
		return name + ", " + r.Address + ")"
	}
	return r.On
}

// printCommands prints what removes some holders of a conflict, each on lines of its own, because
// people paste whole lines into a shell.
func printCommands(out io.Writer, c api.Conflict, removals []api.Removal) {
	const most = 8
	together := on(removals) != ""
	for _, r := range removals[:min(len(removals), most)] {
		head := ""
		if cli.EachMayBeWrong(c) && r.Command != "" {
			head = cli.Consequence(c, r)
		}
		switch {
		case r.Command == "":
			wrapped(out, 6, fmt.Sprintf("    No command: %s has no name that is fit for one.", cli.Labels(c)[r.Holder]))
			continue
		case r.On != "" && !together && head == "":
			fmt.Fprintln(out, clip("  on node "+loginNode(r)+":", screen))
		case r.On != "" && !together:
			wrapped(out, 4, "  on node "+clip(loginNode(r), longNode)+", "+head+":")
		case head != "":
			wrapped(out, 4, "  "+head+":")
		case !together && len(removals) > 1 && slices.ContainsFunc(removals, func(r api.Removal) bool { return r.On != "" }):
			fmt.Fprintln(out, "  anywhere:")
		}
		printCommand(out, "    ", r.Command)
	}
	if more := len(removals) - most; more > 0 {
		fmt.Fprintf(out, "    and %d more\n", more)
	}
}

// printCommand prints a command. A long one continues in the next line, after a backslash.
func printCommand(out io.Writer, head, command string) {
	if n := strings.LastIndex(command, " "); len(head)+len(command) > screen && n > 0 {
		fmt.Fprintln(out, head+command[:n]+" \\")
		head, command = "      ", command[n+1:]
	}
	fmt.Fprintln(out, head+command)
}

// printFlushes prints the commands after which nodes send to the holder that stays.
func printFlushes(out io.Writer, c api.Conflict, removals []api.Removal) {
	choice := removals[0].Because == "" && len(removals) > 1
	printed := 0
	for _, r := range removals {
		for _, f := range r.Then {
			if printed++; printed > maxFlushes {
				return
			}
			begin := "Then,"
			if choice {
				begin = "If it was " + cli.Labels(c)[r.Holder] + ", then,"
			}
			wrapped(out, 2, fmt.Sprintf("  %s on node %s, which like the pods there goes on sending to the removed one for a while:", begin, clip(f.On, longNode)))
			printCommand(out, "    ", f.Command)
		}
	}
}

// printEachFlush is printFlushes for many conflicts. Each command flushes one address only: the
// device may be an uplink, and the node needs its other entries.
func printEachFlush(out io.Writer, all []api.Flush) {
	var flushes []api.Flush
	for _, f := range all {
		if !slices.Contains(flushes, f) {
			flushes = append(flushes, f)
		}
	}
	if len(flushes) == 0 {
		return
	}
	wrapped(out, 2, "Then, because nodes and pods on a bridge send to the removed ones for a while:")
	for _, f := range flushes[:min(len(flushes), maxFlushes)] {
		head := "  on node " + f.On + ": "
		if len(head)+len(f.Command) > screen {
			fmt.Fprintln(out, "  "+clip(strings.TrimSpace(head), longNode))
			head = "      "
		}
		printCommand(out, head, f.Command)
	}
	if more := len(flushes) - maxFlushes; more > 0 {
		fmt.Fprintf(out, "  and %d more: \"dupip explain IP\" has them.\n", more)
	}
}
