package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dupip/dupip/document"
)

const (
	// maxFlushes bounds the commands of which there is one for each node.
	maxFlushes = 4
	// besideNode is how many columns a node's name leaves to other words on a line of its own.
	besideNode = 10
)

// on returns ", on node NODE" if all commands are for one node.
func on(removals []document.Removal) string {
	node := removals[0].On
	if node == "" || slices.ContainsFunc(removals, func(r document.Removal) bool { return r.On != node }) {
		return ""
	}
	return ", on node " + loginNode(removals[0])
}

// loginNode is the node that a command is for. If another node has its name, the address is added,
// because nobody can log in to a boot id.
func loginNode(r document.Removal) string {
	if name, ok := strings.CutSuffix(r.On, ")"); ok && r.Address != "" && WithoutBoot(r.On) != r.On {
		return name + ", " + r.Address + ")"
	}
	return r.On
}

// commands prints what removes some holders of a conflict, each on lines of its own, because
// people paste whole lines into a shell.
func (p *Printer) commands(c document.Conflict, removals []document.Removal) {
	const most = 8
	together := on(removals) != ""
	for _, r := range removals[:min(len(removals), most)] {
		head := ""
		if EachMayBeWrong(c) && r.Command != "" {
			head = Consequence(c, r)
		}
		switch {
		case r.Command == "":
			p.wrapped(6, fmt.Sprintf("    No command: %s has no name that is fit for one.", Labels(c)[r.Holder]))
			continue
		case r.On != "" && !together && head == "":
			p.println(p.clip("  on node "+loginNode(r)+":", 0))
		case r.On != "" && !together:
			p.wrapped(4, "  on node "+p.clip(loginNode(r), besideNode)+", "+head+":")
		case head != "":
			p.wrapped(4, "  "+head+":")
		case !together && len(removals) > 1 && slices.ContainsFunc(removals, func(r document.Removal) bool { return r.On != "" }):
			p.println("  anywhere:")
		}
		p.command("    ", r.Command)
	}
	if more := len(removals) - most; more > 0 {
		p.printf("    and %d more\n", more)
	}
}

// command prints a command. A long one continues in the next line, after a backslash: within sh -c '…', too, because that shell
// then reads the backslash. No command has a space that is quoted in another way.
func (p *Printer) command(head, command string) {
	for !p.fits(len(head) + len(command)) {
		n := strings.LastIndex(command[:max(min(p.Width-len(head)-1, len(command)), 0)], " ")
		if n < 0 { // a word that is too long
			n = strings.Index(command, " ")
		}
		if n < 0 {
			break
		}
		p.println(head + command[:n] + " \\")
		head, command = "      ", command[n+1:]
	}
	p.println(head + p.mark + command + p.mark)
}

// flushes prints the commands after which nodes send to the holder that stays.
func (p *Printer) flushes(c document.Conflict, removals []document.Removal) {
	choice := removals[0].Because == "" && len(removals) > 1
	printed := 0
	for _, r := range removals {
		for _, f := range r.Then {
			if printed++; printed > maxFlushes {
				return
			}
			begin := "Then,"
			if choice {
				begin = "If it was " + Labels(c)[r.Holder] + ", then,"
			}
			p.wrapped(2, fmt.Sprintf("  %s on node %s, which like the pods there goes on sending to the removed one for a while:", begin, p.clip(f.On, besideNode)))
			p.command("    ", f.Command)
		}
	}
}

// eachFlush is printFlushes for many conflicts. Each command flushes one address only: the
// device may be an uplink, and the node needs its other entries.
func (p *Printer) eachFlush(all []document.Flush) {
	var flushes []document.Flush
	for _, f := range all {
		if !slices.Contains(flushes, f) {
			flushes = append(flushes, f)
		}
	}
	if len(flushes) == 0 {
		return
	}
	p.wrapped(2, "Then, because nodes and pods on a bridge send to the removed ones for a while:")
	for _, f := range flushes[:min(len(flushes), maxFlushes)] {
		head := "  on node " + f.On + ": "
		if !p.fits(len(head) + len(f.Command)) {
			p.println("  " + p.clip(strings.TrimSpace(head), besideNode))
			head = "      "
		}
		p.command(head, f.Command)
	}
	if more := len(flushes) - maxFlushes; more > 0 {
		p.printf("  and %d more: \"dupip explain IP\" has them.\n", more)
	}
}
