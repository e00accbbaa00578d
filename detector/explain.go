package detector

import (
	"fmt"
	"net/netip"
	"slices"
)

// Explain returns the story of an address in each network in which it is or was known, ordered by
// network. It searches the whole table.
func (d *Detector) Explain(ip netip.Addr) []Story {
	var stories []Story
	for _, e := range d.entries {
		if e.key.IP == ip {
			stories = append(stories, d.story(e))
		}
	}
	slices.SortFunc(stories, func(a, b Story) int { return a.Key.Compare(b.Key) })
	return stories
}

func (d *Detector) story(e *entry) Story {
	s := Story{Key: e.key, Verdict: d.verdict(e)}
	for _, b := range slices.SortedFunc(slices.Values(e.bindings), compareBindings) {
		s.Bindings = append(s.Bindings, b.public())
	}
	if e.conflict != nil {
		s.Conflict = new(e.conflict.public(e))
	} else {
		s.Conflict = d.lastResolved(e)
	}
	for i := range e.notes {
		s.Notes = append(s.Notes, e.public(&e.notes[i]))
	}
	return s
}

// verdict says in one sentence why this is or is not a conflict.
func (d *Detector) verdict(e *entry) string {
	if c := e.conflict; c != nil {
		return c.verdict(e)
	}
	list := e.counting()
	var forwarders []string
	for _, b := range e.bindings {
		if !b.counts() {
			forwarders = append(forwarders, b.String())
		}
	}
	slices.Sort(forwarders)
	by := ""
	if len(forwarders) > 0 {
		by = "forwarded by " + List(forwarders) + ": not counted"
	}
	var text string
	switch {
	case e.shared && enough(list):
		text = fmt.Sprintf("%d live holders, but declared shared: not a conflict", len(list))
	case len(list) == 0 && by != "":
		return "known only as " + by
	case len(list) == 0:
		text = "no live holder: not a conflict"
	case len(list) == 1:
		text = "one live holder: not a conflict"
	case list[0].evidence == Claimed:
		text = fmt.Sprintf("%d holders claim it and have it on other devices: not a conflict", len(list))
	default:
		text = fmt.Sprintf("%d nodes' own addresses: not a conflict", len(list))
	}
	if e.faded != "" {
		text += "; the last suspicion faded because " + e.faded
	} else if e.kept > 0 {
		text += "; the last conflict is resolved"
	}
	if by != "" {
		text += "; also " + by
	}
	return text
}

func (c *conflict) verdict(e *entry) string {
	list := e.counting()
	if c.state == Confirmed {
		text := c.proof(number(len(c.listed))) + ": a conflict"
		if c.isDrill(e) {
			text += " for a drill"
		}
		if !c.belowSince.IsZero() {
			text += "; it ends because " + c.lost
		}
		for _, b := range list {
			if k := b.check; k != nil && k.proven && k.noReply > 0 {
				text += fmt.Sprintf("; %s cannot be probed now (%s)", b, k.deferral.reason)
			}
		}
		return text
	}
	text := c.pending(list)
	if !c.isAwaiting(list) {
		text = number(len(list)) + " holders, " + text
	}
	return text + ": suspected, not confirmed"
}

// proof says what two rounds have shown of that many holders.
func (c *conflict) proof(holders string) string {
	configured := 0
	for _, l := range c.listed {
		if l.live != nil && l.live.check != nil && l.live.check.configured {
			configured++
		}
	}
	if configured == 0 {
		return fmt.Sprintf("%s live holders answered both rounds %s apart", holders, roughly(c.overlap))
	}
	by := "1 by the list of its kernel"
	if configured > 1 {
		by = fmt.Sprintf("%d by the lists of their kernels", configured)
	}
	return fmt.Sprintf("%s live holders had it in both rounds %s apart, %s", holders, roughly(c.overlap), by)
}

// pending says why a suspected conflict of these holders is not confirmed yet.
func (c *conflict) pending(list []*binding) string {
	if c.isAwaiting(list) {
		was := Suspected
		if !c.confirmedAt.IsZero() {
			was = Confirmed
		}
		return was.String() + " before the agent's restart, its holders are not all seen again yet"
	}
	what := "being verified"
	if !c.restoredAt.IsZero() {
		what = "being verified again after the agent's restart"
	}
	for _, b := range list {
		if k := b.check; k != nil && (k.phase == blocked || k.noReply > 0) {
			return fmt.Sprintf("one cannot be probed (%s)", k.deferral.reason)
		} else if k != nil && k.phase == waiting {
			what = fmt.Sprintf("one is not probed yet (%s)", k.deferral.reason)
		}
	}
	return what
}

// isAwaiting reports whether not all holders of a restored conflict are seen again.
func (c *conflict) isAwaiting(list []*binding) bool { return !c.restoredAt.IsZero() && !enough(list) }

func number(n int) string {
	if n == 2 {
		return "two"
	}
	return fmt.Sprint(n)
}
