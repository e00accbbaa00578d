// Package say words judgements of conflicts and findings of audits: sentences and commands, made once, as data that every surface prints.
// It is pure, and decides nothing: its words follow from the codes of a judgement and from the facts beside them. It leaves out what is not
// known.
package say

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// Fill makes the words of a conflict's judgement: Short, Text and Steps, from the conflict and the judgement's codes. at has the addresses
// of live agents by NodeID.
func Fill(c *document.Conflict, at map[string]netip.Addr) {
	if c.Judgement == nil {
		return
	}
	v := newVoice(c, at)
	c.Judgement.Short, c.Judgement.Text, c.Judgement.Steps = v.short(), v.text(), []document.Step{}
	if !v.past {
		c.Judgement.Steps = v.steps()
	}
}

// kind says something of holders, of all if none are named: pods if pods are among them, else containers, and both if both are.
func (v *voice) kind(pods, containers string, holders ...int) string {
	isPod, isContainer := false, false
	for n, b := range v.c.Holders {
		if b.Evidence != detector.Host && (len(holders) == 0 || slices.Contains(holders, n)) {
			isPod, isContainer = isPod || !b.Pod.IsContainer(), isContainer || b.Pod.IsContainer()
		}
	}
	switch {
	case isPod && isContainer:
		return pods + " or " + containers
	case isPod:
		return pods
	}
	return containers
}

// giver is what gives holders their addresses.
func (v *voice) giver(holders ...int) string {
	return v.kind("network plugin", "container engine", holders...)
}

// isPod reports whether a holder is a pod, or may be.
func (v *voice) isPod() bool { return v.kind("pod", "") != "" }

// voice words one judgement.
type voice struct {
	c      *document.Conflict
	judged []document.Judged
	names  []string          // of the holders, in sentences about all of them
	brief  []string          // as names, without what does not tell them apart
	nodes  map[string]string // names by NodeID
	at     map[string]netip.Addr
	past   bool // the conflict is over
	more   bool // not all holders and nodes have steps
}

func newVoice(c *document.Conflict, at map[string]netip.Addr) *voice {
	ids := each(c.Holders, document.Binding.NodeID)
	for id := range at {
		ids = append(ids, id)
	}
	for _, r := range c.Routes {
		if ids = append(ids, r.NodeID()); r.ToNode != "" {
			ids = append(ids, r.ToNodeID())
		}
	}
	v := &voice{
		c: c, names: Labels(*c), brief: shortLabels(*c), nodes: merge.Names(append(ids, c.Judgement.Nodes...)), at: at,
		past: c.State == detector.Resolved,
	}
	for n, b := range c.Holders {
		if b.Evidence != detector.Host && Who(b) == b.Netns {
			v.names[n], v.brief[n] = "netns "+v.names[n], "netns "+v.brief[n]
		}
	}
	for _, j := range c.Judgement.Holders {
		if j.Holder >= 0 && j.Holder < len(c.Holders) {
			v.judged = append(v.judged, j)
		}
	}
	return v
}

// tenses are marks in a sentence: [now|then], or [one now|several now|one then|several then].
var tenses = regexp.MustCompile(`\[[^][|]*(\|[^][|]*)+\]`)

// say makes a sentence about n things, and resolves the marks of tenses in its format.
func (v *voice) say(n int, format string, args ...any) string {
	format = tenses.ReplaceAllStringFunc(format, func(mark string) string {
		words := strings.Split(mark[1:len(mark)-1], "|")
		choice := 0
		if v.past {
			choice = len(words) / 2
		}
		if len(words) == 4 && n != 1 {
			choice++
		}
		return words[choice]
	})
	return capital(fmt.Sprintf(format, args...))
}

// capital makes the first letter of a sentence large, but not that of a name.
func capital(text string) string {
	for _, word := range []string{"node ", "nodes ", "netns ", "process ", "container "} {
		if strings.HasPrefix(text, word) {
			return strings.ToUpper(text[:1]) + text[1:]
		}
	}
	return text
}

// group is the holders with the same verdict for the same reason.
type group struct {
	document.Judged // of the first one
	holders         []int
}

// groups are in the order in which the holders have to go.
func (v *voice) groups() (list []group) {
	keys, holders := grouped(v.judged,
		func(j document.Judged) document.Judged { j.Holder = 0; return j }, func(j document.Judged) int { return j.Holder })
	for _, key := range keys {
		g := group{key, holders[key]}
		g.Holder = g.holders[0]
		list = append(list, g)
	}
	return list
}

// with are the holders with that verdict, for one of these reasons if there are any.
func (v *voice) with(verdict string, reasons ...string) (holders []int) {
	for _, j := range v.judged {
		if j.Verdict == verdict && (len(reasons) == 0 || slices.Contains(reasons, j.Reason)) {
			holders = append(holders, j.Holder)
		}
	}
	return holders
}

// list names holders.
func (v *voice) list(holders []int) string {
	return cmp.Or(Conjoin(each(holders, func(n int) string { return v.names[n] })), "the holders")
}

func (v *voice) nodeID(n int) string { return v.c.Holders[n].NodeID() }

// node names the node of a holder.
func (v *voice) node(n int) string { return v.nodes[v.nodeID(n)] }

// nodeName names a node by its NodeID, or by a name.
func (v *voice) nodeName(id string) string {
	name, known := v.nodes[id]
	if !known {
		name = cluster.NodeName(id)
	}
	return cmp.Or(name, id)
}

// about are the nodes that the cause is about, by NodeID: those of the holders if the judgement does not say it.
func (v *voice) about() []string {
	if ids := v.c.Judgement.Nodes; len(ids) > 0 {
		return ids
	}
	holders := v.with(document.Open)
	if len(holders) == 0 { // it is over, and others may be left
		holders = each(v.judged, func(j document.Judged) int { return j.Holder })
	}
	return unique(each(holders, v.nodeID))
}

// nodesAbout names the nodes that the cause is about.
func (v *voice) nodesAbout() []string { return each(v.about(), v.nodeName) }

// machine is where to log in to a node: with the agent's address if another node has its name, because nobody can log in to a boot id.
func (v *voice) machine(s document.Step, id string) document.Step {
	s.Node = v.nodeName(id)
	if at := v.at[id]; at.IsValid() && s.Node != cluster.NodeName(id) {
		s.Address = at.String()
	}
	return s
}
