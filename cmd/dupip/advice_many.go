package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/internal/cli"
)

// printSummary prints a line for each command, up to maxCommands, and counts the other conflicts.
func printSummary(out io.Writer, conflicts []api.Conflict, more int) {
	var lines []commandLine
	var flushed []api.Flush
	var held []api.Conflict
	unknown := 0
	for _, c := range conflicts {
		if cli.IsHeld(c) {
			held = append(held, c)
			continue
		}
		r := c.Advice.Remove[0]
		l := commandLine{on: on([]api.Removal{r}), command: r.Command}
		n := slices.IndexFunc(lines, func(o commandLine) bool { return o.on == l.on && o.command == l.command })
		switch {
		case r.Because == "" || cli.IsChoice(c):
			unknown++
			continue
		case r.Command == "" || n < 0 && len(lines) == maxCommands:
			more++
			continue
		case n < 0:
			n, lines = len(lines), append(lines, l)
		}
		lines[n].addresses = append(lines[n].addresses, cli.InNetwork(c.IP, c.Network))
		flushed = append(flushed, r.Then...)
	}
	printCommandLines(out, lines)
	printEachFlush(out, flushed)
	more += printHeld(out, held)
	var rest []string
	if more > 0 {
		rest = append(rest, cli.Addresses(more)+" more")
	}
	if unknown > 0 {
		rest = append(rest, cli.Addresses(unknown)+" of which it is not known which holder is right")
	}
	if len(rest) > 0 {
		wrapped(out, 2, "\"dupip explain IP\" for "+strings.Join(rest, " and for ")+".")
	}
}

// commandLine is a command and the addresses that it frees.
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
		width = max(width, len(cli.List(l.addresses)))
	}
	for _, l := range lines {
		head := fmt.Sprintf("  %-*s  ", width, cli.List(l.addresses))
		if l.on != "" {
			head += strings.TrimPrefix(l.on, ", ") + ": "
		}
		if len(head)+len(l.command) > screen {
			wrapped(out, 4, "  "+cli.List(l.addresses)+clip(l.on, longNode)+":")
			head = "      "
		}
		printCommand(out, head, l.command)
	}
}

// printHeld prints a line for each reason to remove nothing now, and returns how many conflicts have
// none of these lines.
func printHeld(out io.Writer, conflicts []api.Conflict) (more int) {
	var reasons []string
	addresses := make(map[string][]string)
	for _, c := range conflicts {
		reason := cli.HeldReason(c)
		if addresses[reason] == nil {
			if len(reasons) == maxCommands {
				more++
				continue
			}
			reasons = append(reasons, reason)
		}
		addresses[reason] = append(addresses[reason], cli.InNetwork(c.IP, c.Network))
	}
	for _, reason := range reasons {
		wrapped(out, 2, cli.List(addresses[reason])+": "+reason)
	}
	return more
}
