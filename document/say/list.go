package say

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// Entry is what to do about some addresses of a list of conflicts, or about the whole list.
type Entry struct {
	Addresses []string // none for the whole list; one of several conflicts may be there several times
	Text      string
	Steps     []document.Step
}

// Head is what an entry says before its steps, empty if that is nothing.
func (e Entry) Head() string {
	if len(e.Addresses) > 0 {
		return List(once(e.Addresses)) + ": " + e.Text
	}
	return e.Text
}

const (
	// A list of at most maxWhole conflicts says all about each. A longer one has a sentence and a command for each of the first maxBrief sorts.
	maxWhole = 3
	maxBrief = 10
)

// Entries are what to do about the open conflicts of a list: first what ends many of them at once.
func Entries(doc document.Conflicts) (list []Entry) {
	ranges := commonSteps(doc)
	claimer, _ := claimant(doc.Pairs)
	var judged, suspected []document.Conflict
	var drills []string
	more := 0
	for _, c := range doc.Conflicts {
		switch {
		case c.State == detector.Resolved:
		case c.Drill:
			drills = append(drills, c.IP.String())
		case c.State == detector.Suspected:
			suspected = append(suspected, c)
		case isShared(doc, c, claimer):
		case c.Judgement == nil:
			more++
		default:
			judged = append(judged, c)
		}
	}
	if len(judged) > maxWhole {
		ranges = append(localRange(judged...), ranges...)
	}
	if len(ranges) > 0 {
		list = append(list, Entry{Steps: ranges})
	}
	last := ""
	if len(judged) <= maxWhole && more == 0 {
		for _, c := range judged {
			list = append(list, Entry{[]string{addressOf(c)}, c.Judgement.Text, c.Judgement.Steps})
		}
	} else {
		var sorts []Entry
		sorts, last = brief(judged, more)
		list = append(list, sorts...)
		list = append(list, acknowledgements(doc.Conflicts)...)
	}
	reasons, addresses := grouped(suspected, func(c document.Conflict) string { return cmp.Or(c.Pending, "being verified") }, addressOf)
	for _, reason := range reasons {
		list = append(list, Entry{addresses[reason], "Wait. It is suspected, not confirmed: " + reason + ".", nil})
	}
	if len(drills) > 0 {
		list = append(list, Entry{drills, "Nothing: it is a drill, which ends by itself.", nil})
	}
	if last != "" {
		list = append(list, Entry{Text: last})
	}
	return list
}

// acknowledgements say of which conflicts somebody works on them, where there is no room for all about each.
func acknowledgements(conflicts []document.Conflict) (list []Entry) {
	texts, addresses := grouped(conflicts, func(c document.Conflict) string { return Acknowledged(c.Acknowledged) }, addressOf)
	for _, text := range texts {
		if text != "" {
			list = append(list, Entry{addresses[text], text, nil})
		}
	}
	return list
}

// Many are what to do about more conflicts than a screen has room for: what ends many of them at once, and where to begin.
func Many(doc document.Conflicts) []Entry {
	list := []Entry{{Text: fmt.Sprintf("\"dupip explain %s\" says what to do about the first one, and why.", doc.Conflicts[0].IP)}}
	doc.Pairs = doc.Pairs[:min(len(doc.Pairs), 1)]
	first := slices.DeleteFunc(append(localRange(doc.Conflicts...), commonSteps(doc)...), func(s document.Step) bool { return s.If != "" && s.File == "" })
	if len(first) > 0 {
		list = slices.Insert(list, 0, Entry{Steps: first})
	}
	return append(list, acknowledgements(doc.Conflicts)...)
}

// Repairs are what to do about findings, the most urgent first: all of it about the first of each sort.
func Repairs(a document.Audit) (list []Entry) {
	type sort struct {
		kind, book, way  string
		apart, contested bool
	}
	nodes := merge.Names(each(a.Findings, document.Finding.NodeID))
	sorts, same := grouped(a.Findings, func(f document.Finding) sort { return sort{f.Kind, f.Book, way(f), isApart(f), f.Contested} }, func(f document.Finding) document.Finding { return f })
	slices.SortStableFunc(sorts, func(a, b sort) int { return cmp.Compare(urgency(a.kind), urgency(b.kind)) })
	ways := make(map[string]int) // by kind
	for _, s := range sorts {
		if s.way != "" {
			ways[s.kind]++
		}
		if ways[s.kind] > maxBrief {
			continue // the table has them
		}
		first := same[s][0]
		first.Node = nodes[first.NodeID()]
		e := Entry{}
		e.Text, e.Steps = Finding(first)
		others := once(each(same[s], What))[1:]
		if s.kind == document.Misrouted {
			e.Text, e.Steps, others = misroutes(first, same[s], nodes)
		}
		if ways[document.Misrouted] > 1 && s.kind == document.Misrouted {
			e.Steps = nil // the same
		}
		if len(others) > 0 {
			e.Text += " Likewise: " + List(others) + "."
		}
		list = append(list, e)
	}
	return list
}

// misroutes joins what several nodes say of addresses that have one [way].
func misroutes(first document.Finding, all []document.Finding, nodes map[string]string) (text string, steps []document.Step, others []string) {
	var from []string
	for _, f := range all {
		if f.IP == first.IP {
			from = append(from, nodes[f.NodeID()])
		} else {
			others = append(others, f.IP.String())
		}
	}
	text, steps = misrouted(first, from)
	slices.Sort(others)
	return text, steps, slices.Compact(others)
}

// urgency orders kinds of findings; those of other versions come last.
func urgency(kind string) int {
	if n := slices.Index(document.FindingKinds, kind); n >= 0 {
		return n
	}
	return len(document.FindingKinds)
}

// Why says why the conflicts of some stories of an address came about, and which pods lost the address.
func Why(e document.Explanation, stories ...document.Story) (texts []string) {
	for _, story := range stories {
		if c := story.Conflict; c != nil && c.Judgement != nil && !slices.Contains(texts, c.Judgement.Text) {
			texts = append(texts, c.Judgement.Text)
		}
	}
	return append(texts, detectionFailures(e)...)
}

// brief says one sentence about each sort of conflicts, with the first command if that is right without a condition. more are those that
// have no judgement. last says where to read on.
func brief(judged []document.Conflict, more int) (list []Entry, last string) {
	first := func(c document.Conflict) (s document.Step) {
		if steps := c.Judgement.Steps; len(steps) > 0 && steps[0].If == "" && steps[0].Command != "" && steps[0].Cuts != "" {
			s = steps[0]
		}
		return s
	}
	type sort struct {
		short string
		document.Step
	}
	sorts, of := grouped(judged, func(c document.Conflict) sort { return sort{c.Judgement.Short, first(c)} }, addressOf)
	for n, s := range sorts {
		if n == maxBrief {
			for _, rest := range sorts[n:] {
				more += len(of[rest])
			}
			break
		}
		e := Entry{Addresses: of[s], Text: s.short}
		if s.Command != "" {
			e.Steps = []document.Step{s.Step}
		}
		list = append(list, e)
	}
	last = "\"dupip explain IP\" says what to do about "
	switch {
	case len(list) == 0:
		return nil, last + Addresses(more) + ", and why."
	case more > 0:
		return list, last + "each, and about " + Plural(more, "more address", "more addresses") + "."
	}
	return list, last + "each, and why."
}

// isShared reports whether a conflict is between two nodes for which [commonSteps] has a step.
func isShared(doc document.Conflicts, c document.Conflict, claimer string) bool {
	return slices.ContainsFunc(doc.Pairs, func(p document.Pair) bool {
		return isBetween(c, p) && (claims(p, claimer) || p.Addresses > document.FewShared &&
			(c.Judgement == nil || c.Judgement.Cause == document.CauseSharedRange || c.Judgement.Cause == document.CauseNamesakes))
	})
}

// Do is what to do about one conflict, which may be nil: nothing if it is over. Why has the text of its judgement.
func Do(c *document.Conflict) (list []Entry) {
	switch {
	case c == nil:
	case c.Judgement != nil && len(c.Judgement.Steps) > 0:
		return []Entry{{Steps: c.Judgement.Steps}}
	case c.Drill || c.State == detector.Suspected:
		for _, e := range Entries(document.Conflicts{Conflicts: []document.Conflict{*c}}) {
			list = append(list, Entry{Text: e.Text})
		}
	}
	return list
}

// Plain is a list of what to do as lines of text, for those who cannot wrap it: each command on a line of its own.
func Plain(list []Entry) string {
	var lines []string
	for _, e := range list {
		if head := e.Head(); head != "" {
			lines = append(lines, head)
		}
		for _, s := range e.Steps {
			if lines = append(lines, "- "+Head(s)); s.Command != "" {
				lines = append(lines, strings.TrimSuffix(s.Command, "\n"))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// Head is what a step says before its command, which follows if it ends with a colon.
func Head(s document.Step) string {
	var text strings.Builder
	if s.If != "" {
		text.WriteString(s.If + ": ")
	}
	text.WriteString(s.Text)
	if s.Node != "" {
		text.WriteString(", on node " + loginNode(s))
	}
	if s.Cuts != "" && s.Cuts != "nothing" {
		fmt.Fprintf(&text, " (this cuts %s)", s.Cuts)
	}
	if s.Command == "" {
		return text.String() + "."
	}
	return text.String() + ":"
}

// loginNode is the node of a step. If another node has its name, the address is added, because nobody can log in to a boot id.
func loginNode(s document.Step) string {
	if name, ok := strings.CutSuffix(s.Node, ")"); ok && s.Address != "" && withoutBoot(s.Node) != s.Node {
		return name + ", " + s.Address + ")"
	}
	return s.Node
}

// Unasked says that other nodes may know more, if nobody asked them and the facts do not decide a conflict between nodes.
func Unasked(c document.Coverage, conflicts ...document.Conflict) string {
	if c.Asked > 1 || c.Alone || !slices.ContainsFunc(conflicts, func(c document.Conflict) bool {
		_, several := NodesOf(c.Holders)
		return several && c.Judgement != nil && c.Judgement.Confidence == document.Undecided && c.State == detector.Confirmed
	}) {
		return ""
	}
	return "Other nodes, which may know more, were not asked: use --cluster."
}

// addressOf is the address of a conflict as [InNetwork] has it.
func addressOf(c document.Conflict) string { return InNetwork(c.IP.String(), c.Network) }
