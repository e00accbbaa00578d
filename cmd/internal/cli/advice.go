package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

const (
	// fewAdvised is how many conflicts get advice one by one; of more, maxCommands get one line
	// each.
	fewAdvised  = 3
	maxCommands = 10
)

// Advice prints what to do about conflicts.
func (p *Printer) Advice(doc document.Conflicts) {
	var advised, plain, suspected []document.Conflict
	var drills []string
	ranges := rangesOf(doc)
	for _, c := range doc.Conflicts {
		switch {
		case c.Drill && c.State != detector.Resolved:
			drills = append(drills, c.IP.String())
		case c.State == detector.Suspected:
			suspected = append(suspected, c)
		case c.State != detector.Confirmed || slices.ContainsFunc(ranges, func(p document.Pair) bool { return isBetween(c, p) }):
		case c.Advice == nil:
			plain = append(plain, c)
		default:
			advised = append(advised, c)
		}
	}
	if len(ranges)+len(advised)+len(plain)+len(suspected)+len(drills) == 0 {
		return
	}
	p.println("\nWhat to do:")
	p.rangesAdvice(doc.Conflicts, ranges)
	if len(plain) == 0 && len(advised) <= fewAdvised {
		for _, c := range advised {
			p.removals(addressOf(c)+": ", c)
		}
	} else {
		p.summary(advised, len(plain))
	}
	removable := slices.DeleteFunc(slices.Clone(advised), IsHeld)
	for _, line := range AdviseNamesakes(append(removable, plain...)) {
		p.wrapped(2, line)
	}
	if slices.ContainsFunc(advised, reusable) {
		p.wrapped(2, "IPAM may give an address out again while its other holder has it: replace that one, too, or repair IPAM. "+
			"\"dupip explain IP\" has the commands.")
	}
	p.waitFor(suspected)
	if len(drills) > 0 {
		p.wrapped(2, List(drills)+": nothing. "+drillEnds)
	}
}

// drillEnds says why nothing is to be done about a drill.
const drillEnds = "It is a drill, which ends by itself."

// pending is why a conflict is not confirmed; an agent of another version may not say it.
func pending(c document.Conflict) string { return cmp.Or(c.Pending, "being verified") }

// waitFor says what suspected conflicts wait for: the addresses by reason.
func (p *Printer) waitFor(suspected []document.Conflict) {
	reasons, addresses := grouped(suspected, pending, addressOf)
	for _, reason := range reasons {
		p.wrapped(2, fmt.Sprintf("%s: wait. Suspected, not confirmed: %s.", List(addresses[reason]), reason))
	}
}

// rangesAdvice says what to do about whole ranges that nodes share, or about ranges that each node may have for itself.
func (p *Printer) rangesAdvice(conflicts []document.Conflict, ranges []document.Pair) {
	confirmed := slices.DeleteFunc(slices.Clone(conflicts), func(c document.Conflict) bool { return c.State != detector.Confirmed })
	if text, lines := LocalRange(confirmed...); text != "" {
		p.wrapped(2, text)
		p.printf("%s", p.mark)
		for line := range strings.Lines(lines) {
			p.printf("    %s", line)
		}
		p.printf("%s", p.mark)
		p.println("Otherwise:")
	}
	if len(ranges) == 0 {
		return
	}
	text := AdviseRanges(ranges)
	if p.wrapped(2, text); strings.HasSuffix(text, ":") {
		p.command("    ", Drain)
	}
}

// StoryAdvice prints what to do about the conflict of an address, which may be nil.
func (p *Printer) StoryAdvice(c *document.Conflict) {
	switch {
	case c == nil:
		return
	case c.Drill && c.State != detector.Resolved:
		p.println("\nWhat to do: nothing. " + drillEnds)
		return
	case c.State == detector.Suspected:
		p.println()
		p.wrapped(2, "What to do: wait. It is suspected, not confirmed: "+pending(*c)+".")
		return
	case c.State != detector.Confirmed || c.Advice == nil:
		return
	}
	p.println("\nWhat to do:")
	p.rangesAdvice([]document.Conflict{*c}, nil)
	removals := p.removals("  ", *c)
	if IsHeld(*c) {
		return
	}
	for _, line := range AdviseNamesakes([]document.Conflict{*c}) {
		p.wrapped(2, "  "+line)
	}
	last := c.Advice.Remove[len(c.Advice.Remove)-1]
	switch {
	case !reusable(*c) && NodeHolder(*c) >= 0:
		p.wrapped(2, "  Then keep IPAM from giving out addresses of nodes.")
	case !reusable(*c):
	case len(removals) == len(c.Advice.Remove):
		p.wrapped(2, "  IPAM may give the address out again while the other has it: replace that one, too, or repair IPAM.")
	default:
		p.wrapped(2, fmt.Sprintf("  IPAM may give the address out again while %s has it: repair IPAM, or replace that one, too%s:",
			Labels(*c)[last.Holder], on([]document.Removal{last})))
		p.commands(*c, []document.Removal{last})
	}
}

// removals prints the situation and the commands that end the conflict, or why nothing should
// be removed now. It returns the removals.
func (p *Printer) removals(begin string, c document.Conflict) []document.Removal {
	if IsHeld(c) {
		p.wrapped(2, begin+HeldReason(c))
		return nil
	}
	removals := FirstRemovals(c)
	situation := strings.TrimSpace(Situation(c) + configuredOnly(c) + " " + routes(c))
	p.wrapped(2, begin+situation+" "+Instruction(c)+on(removals)+":")
	p.commands(c, removals)
	p.flushes(c, removals)
	return removals
}

// reusable reports whether IPAM may give the address out again, or believe that another holder has
// it, once the first holders are removed.
func reusable(c document.Conflict) bool {
	a := c.Advice
	if IsHeld(c) || NodeHolder(c) >= 0 || a.Remove[0].Because == "replaced" || a.Remove[0].Because == "not-given" {
		return false
	}
	// If the older holder's sandbox has stopped, IPAM gave the address to the newer one.
	return a.Remove[0].Because != "stopped" || a.Newer == nil || *a.Newer == a.Remove[0].Holder
}
