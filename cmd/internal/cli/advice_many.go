package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dupip/dupip/document"
)

// summary prints a line for each command, up to maxCommands, and counts the other conflicts.
func (p *Printer) summary(conflicts []document.Conflict, more int) {
	var lines []commandLine
	var flushed []document.Flush
	var held []document.Conflict
	unknown := 0
	for _, c := range conflicts {
		if IsHeld(c) {
			held = append(held, c)
			continue
		}
		r := c.Advice.Remove[0]
		l := commandLine{on: on([]document.Removal{r}), command: r.Command}
		n := slices.IndexFunc(lines, func(o commandLine) bool { return o.on == l.on && o.command == l.command })
		switch {
		case r.Because == "" || IsChoice(c):
			unknown++
			continue
		case r.Command == "" || n < 0 && len(lines) == maxCommands:
			more++
			continue
		case n < 0:
			n, lines = len(lines), append(lines, l)
		}
		lines[n].addresses = append(lines[n].addresses, addressOf(c))
		flushed = append(flushed, r.Then...)
	}
	p.commandLines(lines)
	p.eachFlush(flushed)
	more += p.held(held)
	var rest []string
	if more > 0 {
		rest = append(rest, Addresses(more)+" more")
	}
	if unknown > 0 {
		rest = append(rest, Addresses(unknown)+" of which it is not known which holder is right")
	}
	if len(rest) > 0 {
		p.wrapped(2, "\"dupip explain IP\" for "+strings.Join(rest, " and for ")+".")
	}
}

// commandLine is a command and the addresses that it frees.
type commandLine struct {
	addresses   []string
	on, command string
}

func (p *Printer) commandLines(lines []commandLine) {
	if len(lines) > 0 {
		p.println("Remove these first:")
	}
	width := 0
	for _, l := range lines {
		width = max(width, len(List(l.addresses)))
	}
	for _, l := range lines {
		head := fmt.Sprintf("  %-*s  ", width, List(l.addresses))
		if l.on != "" {
			head += strings.TrimPrefix(l.on, ", ") + ": "
		}
		if !p.fits(len(head) + len(l.command)) {
			p.wrapped(4, "  "+List(l.addresses)+p.clip(l.on, besideNode)+":")
			head = "      "
		}
		p.command(head, l.command)
	}
}

// held prints a line for each reason to remove nothing now, and returns how many conflicts have
// none of these lines.
func (p *Printer) held(conflicts []document.Conflict) (more int) {
	reasons, addresses := grouped(conflicts, HeldReason, addressOf)
	for n, reason := range reasons {
		if n >= maxCommands {
			more += len(addresses[reason])
			continue
		}
		p.wrapped(2, List(addresses[reason])+": "+reason)
	}
	return more
}
