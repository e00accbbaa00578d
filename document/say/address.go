package say

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// Weak is the remark about holders for which [IsConfiguredOnly].
const Weak = "its kernel has the address; it was not seen using it lately"

// IsConfiguredOnly reports whether a holder was not seen using the address lately: its kernel has it.
func IsConfiguredOnly(b document.Binding) bool { return b.Evidence == detector.Configured && !b.Gone }

// Given says whether a holder was given its address; empty if that is not known.
func Given(b document.Binding) string {
	switch container := b.Pod.IsContainer(); {
	case b.Given == detector.GivenUnknown:
		return ""
	case b.Given == detector.GivenYes && container:
		return "was given the address by its engine"
	case b.Given == detector.GivenYes:
		return "was given the address by a network plugin"
	case container:
		return "was not given the address by its engine"
	}
	return "was not given the address by any network plugin"
}

// Meant says how to declare that several are meant to have the address of a conflict, which may be nil; empty if that is no question.
func Meant(c *document.Conflict) string {
	if c == nil || c.State != detector.Confirmed || c.Drill {
		return ""
	}
	return `If several are meant to have it (anycast, a virtual IP), list it under "shared" in the configuration.`
}

// Records are what a node has on record of an address: a head, which ends with a colon, and lines.
type Records struct {
	Head  string
	Lines []string
}

// OnRecord is where the kernel of the asked node lists an address, and what network plugins and books of the nodes say of it.
func OnRecord(e document.Explanation) (list []Records) {
	if lines := configured(e); len(lines) > 0 {
		on := ""
		if e.Asked > 1 {
			on = " on node " + e.Node
		}
		list = append(list, Records{"Configured" + on + ", as the kernel lists it:", lines})
	}
	if lines := Routes(e); len(lines) > 0 {
		list = append(list, Records{"Packets to it go:", lines})
	}
	lines := make(map[string][]string) // by node
	for _, story := range e.Stories {
		for _, b := range story.Bindings {
			if text := Given(b); text != "" {
				lines[b.NodeID()] = append(lines[b.NodeID()], Who(b)+" "+text)
			}
		}
	}
	for _, b := range e.Books {
		of := ", network "
		if b.Node == "" {
			of = ", pool "
		}
		lines[b.NodeID()] = append(lines[b.NodeID()], b.Kind+of+cmp.Or(b.CNINetwork, "unknown")+": "+reserves(b))
	}
	names := merge.Names(slices.Collect(maps.Keys(lines)))
	for _, id := range slices.Sorted(maps.Keys(lines)) {
		title := "Books of node " + names[id] + ":"
		if cluster.NodeName(id) == "" {
			title = "Books of the API server:"
		}
		list = append(list, Records{title, lines[id]})
	}
	return list
}

// reserves says for whom a book has the address reserved.
func reserves(b document.Book) string {
	const layout = "2006-01-02 15:04:05"
	text := "not reserved, although it gives out " + cmp.Or(b.Range, "its pool")
	switch r := b.Reservation; {
	case b.Error != "":
		return "problem: " + b.Error
	case r != nil:
		text = "reserved for " + reservedFor(r)
		if !r.Since.IsZero() { // not all books have it
			text += " since " + r.Since.Local().Format(layout)
		}
	}
	if b.OwnerUID != "" {
		text += ", by the object of an earlier node of that name"
	}
	if r := b.Former; r != nil {
		text += fmt.Sprintf("; before, for %s until %s", reservedFor(r), r.Until.Local().Format(layout))
	}
	return text
}

func configured(e document.Explanation) (lines []string) {
	for _, c := range e.Configured {
		text := map[string]string{
			"peer":      "on the pod's end of " + c.Interface,
			"loopback":  "on a loopback device behind " + c.Interface,
			"elsewhere": "on another device behind " + c.Interface + ", which does not make it a holder",
		}[c.Device]
		switch {
		case c.Lost:
			text += ", not in use: its duplicate address detection failed"
		case !c.Settled:
			text += ", still tentative"
		}
		if c.Unanswered > 0 {
			text += fmt.Sprintf(", probed %s without an answer", Plural(c.Unanswered, "time", "times"))
		}
		lines = append(lines, fmt.Sprintf("%s: %s", cmp.Or(c.Pod.String(), c.Netns), text))
	}
	return lines
}

// Unseen says why there is no story of an address; empty if there is one.
func Unseen(e document.Explanation) string {
	switch {
	case len(e.Stories) > 0:
		return ""
	case e.NeverCompared != "":
		return fmt.Sprintf("%s is never compared: %s addresses are no pod's own. Many may have the same one.", e.IP, e.NeverCompared)
	}
	where := "on node " + e.Node
	switch n := e.Asked - len(e.Missing); {
	case n > 1:
		where = "on any of " + Plural(n, "node", "nodes")
	case n == 1 && e.BootID == "":
		where = "on the one node that answered"
	}
	return fmt.Sprintf("%s was not seen %s.", e.IP, where)
}

// detectionFailures says which pods lost an address by duplicate address detection, and who else has it, or had it. The kernel does not tell
// whose packet it was: that of another holder, or its own one, which came back.
func detectionFailures(e document.Explanation) (list []string) {
	for _, c := range e.Configured {
		if text := detectionFailed(c, e); c.Lost && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

func detectionFailed(c document.Configured, e document.Explanation) string {
	text := cmp.Or(c.Pod.String(), c.Netns) + ": duplicate address detection failed in its kernel, which does not use the address. "
	now, before := othersWith(c, e)
	switch n, m := len(now), len(before); {
	case n > 0:
		return text + "Now " + Conjoin(now) + either(n, " has", " have") + " the address."
	case m > 0:
		return text + Conjoin(before) + either(m, " was seen with the address, and has it no more.", " were seen with the address, and have it no more.")
	}
	return text + "Another holder was not seen: perhaps the pod's own packet came back (a hairpin port, a loop), or one has the " +
		"address that dupip does not observe."
}

// othersWith names the holders of an address, besides that of a lost one, and those that were holders before.
func othersWith(lost document.Configured, e document.Explanation) (now, before []string) {
	own := cluster.NodeID(e.Node, e.BootID) // another node may have its name
	isOwn := func(h document.Holder) bool { return h.NodeID() == own && h.Netns == lost.Netns }
	is := func(h document.Holder) string { return h.NodeID() + " " + cmp.Or(h.Pod.String(), h.Netns) }
	for _, story := range e.Stories {
		if story.Network != lost.Network {
			continue
		}
		known := make(map[string]bool)
		nodes := merge.Names(each(slices.Concat(story.Bindings, story.Former), document.Binding.NodeID))
		for n, name := range Labels(document.Conflict{Holders: story.Bindings}) {
			b := story.Bindings[n]
			known[is(b.Holder)] = true
			switch {
			case !b.Evidence.Counts():
			case isOwn(b.Holder):
				now = append(now, fmt.Sprintf("the pod itself, by its interface %s,", cmp.Or(b.Interface, "unknown")))
			default:
				now = append(now, name)
			}
		}
		for _, b := range story.Former {
			name := cmp.Or(b.Pod.String(), b.Netns)
			if known[is(b.Holder)] || isOwn(b.Holder) || name == "" {
				continue
			}
			if b.NodeID() != own {
				name += " on " + nodes[b.NodeID()]
			}
			before = append(before, name)
		}
	}
	return distinct(now), distinct(before)
}
