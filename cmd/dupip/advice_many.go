package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/api"
)

// printSummary has a line for each conflict, as long as there are few.
func printSummary(out io.Writer, conflicts []api.Conflict, more int) {
	var lines []commandLine
	var flushed []api.Flush
	var held []api.Conflict
	unknown := 0
	for _, c := range conflicts {
		if isHeld(c) {
			held = append(held, c)
			continue
		}
		r := c.Advice.Remove[0]
		l := commandLine{on: at([]api.Removal{r}), command: r.Command}
		n := slices.IndexFunc(lines, func(o commandLine) bool { return o.on == l.on && o.command == l.command })
		switch {
		case r.Because == "":
			unknown++
			continue
		case r.Command == "" || n < 0 && len(lines) == maxCommands:
			more++
			continue
		case n < 0:
			n, lines = len(lines), append(lines, l)
		}
		lines[n].addresses = append(lines[n].addresses, inNetwork(c.IP, c.Network))
		flushed = append(flushed, r.Then...)
	}
	printCommandLines(out, lines)
	printEachFlush(out, flushed)
	more += printHeld(out, held)
	var rest []string
	if more > 0 {
		rest = append(rest, addresses(more)+" more")
	}
	if unknown > 0 {
		rest = append(rest, addresses(unknown)+" of which it is not known which holder is newer")
	}
	if len(rest) > 0 {
		wrapped(out, 2, "\"dupip explain IP\" for "+strings.Join(rest, " and for ")+".")
	}
}

// longNode is how much is printed of the name of a node in a line of its own.
const longNode = 70

// commandLine is a command, and the addresses that one pod then has no more.
type commandLine struct {
	addresses   []string
	on, command string
}

func printCommandLines(out io.Writer, lines []commandLine) {
	if len(lines) > 0 {
		fmt.Fprintln(out, "Remove these first:")
	}
	width := 0
	for _, l := range lines {
		width = max(width, len(list(l.addresses, maxListed)))
	}
	for _, l := range lines {
		head := fmt.Sprintf("  %-*s  ", width, list(l.addresses, maxListed))
		if l.on != "" {
			head += strings.TrimPrefix(l.on, ", ") + ": "
		}
		if len(head)+len(l.command) > screen {
			wrapped(out, 4, "  "+list(l.addresses, maxListed)+clip(l.on, longNode)+":")
			head = "      "
		}
		printCommand(out, head, l.command)
	}
}

// printEachFlush is printFlushes for many. One address at a time: the device may be an uplink, and
// its other entries are what the node lives by.
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
