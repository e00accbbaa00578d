package cli

import (
	"strings"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// steps prints lists of what to do: sentences, and each command on lines of its own, because people paste whole lines into a shell.
type steps struct{ *Printer }

// entries prints what to do about conflicts or findings.
func (s steps) entries(list []say.Entry) {
	if len(list) == 0 {
		return
	}
	s.println("\nWhat to do:")
	for _, e := range list {
		if head := e.Head(); head != "" {
			s.wrapped(2, head)
		}
		s.list(e.Steps)
	}
}

// list prints steps in their order.
func (s steps) list(all []document.Step) {
	for _, step := range all {
		s.wrapped(4, "  - "+say.Head(step))
		if step.File != "" {
			for line := range strings.Lines(step.Command) {
				s.printf("      %s", line)
			}
			continue
		}
		if step.Command != "" {
			s.command("    ", step.Command)
		}
	}
}

// command prints a command. A long one continues in the next line, after a backslash: within sh -c '…', too, because that shell
// then reads the backslash. No command has a space that is quoted in another way.
func (s steps) command(head, command string) {
	for s.Width > 0 && len(head)+len(command) > s.Width {
		n := strings.LastIndex(command[:max(min(s.Width-len(head)-1, len(command)), 0)], " ")
		if n < 0 { // a word that is too long
			n = strings.Index(command, " ")
		}
		if n < 0 {
			break
		}
		s.println(head + command[:n] + " \\")
		head, command = "      ", command[n+1:]
	}
	s.println(head + command)
}
