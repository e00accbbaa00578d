// Package judge decides which holders of a conflict have to go, which stay, and why the address has several. It is pure, and no other
// package decides that.
//
// Fewer facts give the same verdict of a holder, or none: a node that lacks a fact may abstain, and two nodes never contradict each
// other. So each verdict of a live holder needs the facts that could turn it, above all that those who stay are alive.
package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// Context is what is known besides the conflict.
type Context struct {
	Now time.Time
	// Away are the times when nodes were lost, by NodeID.
	Away map[string][]Away
	// Namesakes are the names that two live members of the cluster have, Doubled those that two have now, perhaps for a moment only.
	Namesakes, Doubled map[string]bool
}

// Away is when a node was lost, and came back.
type Away struct{ From, Until time.Time }

// Around returns what a member knows besides conflicts: the names that two live agents have, and when it had lost others.
func Around(members []cluster.Member) Context {
	c := Context{Away: make(map[string][]Away), Namesakes: make(map[string]bool), Doubled: make(map[string]bool)}
	for _, m := range members {
		if m.Role != cluster.Agent || !m.Live() {
			continue
		}
		if m.Namesake {
			c.Namesakes[m.Name] = true
		}
		if m.Doubled {
			c.Doubled[m.Name] = true
		}
		if !m.AwayFrom.IsZero() {
			c.Away[m.NodeID()] = []Away{{From: m.AwayFrom, Until: m.AwayUntil}}
		}
	}
	return c
}

// factsTime is how long a judgement waits for the facts of other nodes.
const factsTime = 3 * time.Second

// Of returns the judgement of a confirmed conflict, or of one that is over by what was known while it was open, without its words; nil for
// others and for drills.
func Of(c document.Conflict, ctx Context) *document.Judgement {
	if len(c.Holders) == 0 || c.Drill || c.State == detector.Suspected {
		return nil
	}
	j := &judging{c: c, over: c.State == detector.Resolved, all: make([]document.Judged, len(c.Holders))}
	for n := range c.Holders {
		j.all[n] = document.Judged{Holder: n, Verdict: document.Open}
	}
	made := &document.Judgement{Steps: []document.Step{}}
	made.Cause = j.decide(ctx, made)
	made.Confidence = j.confidence()
	made.Holders = j.all
	slices.SortStableFunc(made.Holders, func(a, b document.Judged) int { return cmp.Compare(rank(a), rank(b)) })
	return made
}

// reasons are in the order in which their holders have to go.
var reasons = []string{
	document.ReasonStopped, document.ReasonForgotten, document.ReasonReplaced, document.ReasonNotGiven, document.ReasonNotReserved,
	document.ReasonUnlisted, document.ReasonLifetime, document.ReasonOnNode, document.ReasonNewer, document.ReasonGone,
}

func rank(j document.Judged) int {
	if j.Verdict == document.Remove {
		return slices.Index(reasons, j.Reason)
	}
	return len(reasons)
}

// judging is one judgement while it is made.
type judging struct {
	c    document.Conflict
	over bool
	all  []document.Judged // by the index of the holder
}

// decide sets the verdicts, and returns the cause.
func (j *judging) decide(ctx Context, made *document.Judgement) string {
	if made.Nodes = j.namesakes(ctx); made.Nodes != nil {
		return document.CauseNamesakes
	}
	if made.Nodes = j.doubled(ctx); made.Nodes != nil {
		return document.CauseComing
	}
	j.dead()
	live := j.open()
	if len(live) < 2 {
		return j.leftOver()
	}
	switch {
	case j.over:
	case j.has(live, func(b document.Binding) bool { return b.Unreachable }):
		if made.Nodes = j.nodes(live, func(b document.Binding) bool { return b.Unreachable && isOfDeletedNode(b) }); made.Nodes != nil {
			return document.CauseDeleted
		}
		made.Nodes = j.nodes(live, func(b document.Binding) bool { return b.Unreachable })
		return document.CauseUnreachable
	case ctx.Now.Sub(j.began(live)) < factsTime && j.has(live, func(b document.Binding) bool { return b.Facts == nil }):
		return document.CauseComing
	}
	if !j.has(live, func(b document.Binding) bool { return !isHost(b) }) {
		made.Nodes = j.nodes(live, isHost)
		return document.CauseTwoNodes
	}
	if made.Nodes = j.clones(live); made.Nodes != nil {
		return document.CauseClone
	}
	cause := ""
	if !j.mayBeClones(live) {
		cause = cmp.Or(j.notGiven(), j.twiceGiven(), j.byHand())
		cause = cmp.Or(cause, j.booked(made))
		cause = cmp.Or(j.machine(), cause) // an address of a node explains more
	}
	left := j.open() // each rule leaves the holder for which others go
	if len(left) == 1 {
		j.keep(left[0])
		return cause
	}
	if made.Nodes = j.sharedRange(left); made.Nodes != nil {
		return document.CauseSharedRange
	}
	if made.Nodes = j.earlierNode(left); made.Nodes != nil {
		return document.CauseSharedRange
	}
	if made.Away = j.away(left, ctx.Away); made.Away != nil {
		return document.CauseAway
	}
	// A node that was given up may share many addresses with those that got its pods, too.
	if made.Nodes = j.sharesMany(left); made.Nodes != nil {
		return document.CauseSharedRange
	}
	if j.has(left, isHost) {
		return document.CauseNodeAddress
	}
	return document.CauseUnknown
}

// confidence is that of the verdicts.
func (j *judging) confidence() string {
	if len(j.open()) > 1 {
		return document.Undecided
	}
	for _, v := range j.all {
		b := j.c.Holders[v.Holder]
		if v.By != "" || v.Reason == document.ReasonNewer || v.Reason == document.ReasonNotGiven && b.Given != detector.GivenNo {
			return document.Likely
		}
	}
	return document.Certain
}

func (j *judging) remove(n int, reason string) {
	j.all[n].Verdict, j.all[n].Reason = document.Remove, reason
}

// removeBy removes a holder for what is known of any of these others. If none of them is on the holder's own node, another node says so.
func (j *judging) removeBy(n int, others []int, reason string) {
	j.remove(n, reason)
	var by []string
	for _, other := range others {
		b := j.c.Holders[other]
		if b.NodeID() == j.c.Holders[n].NodeID() {
			return
		}
		by = append(by, b.Node)
	}
	j.all[n].By = slices.Min(by)
}

// open returns the holders without a verdict.
func (j *judging) open() (list []int) {
	for n, v := range j.all {
		if v.Verdict == document.Open {
			list = append(list, n)
		}
	}
	return list
}

func (j *judging) has(list []int, is func(document.Binding) bool) bool {
	return slices.ContainsFunc(list, func(n int) bool { return is(j.c.Holders[n]) })
}

// nodes returns the nodes of those holders that are so.
func (j *judging) nodes(list []int, is func(document.Binding) bool) (ids []string) {
	for _, n := range list {
		if b := j.c.Holders[n]; is(b) && !slices.Contains(ids, b.NodeID()) {
			ids = append(ids, b.NodeID())
		}
	}
	return ids
}

// began is when the last holder came, or the conflict was confirmed.
func (j *judging) began(live []int) time.Time {
	at := j.c.ConfirmedAt
	for _, n := range live {
		if seen := j.c.Holders[n].FirstSeen; seen.After(at) {
			at = seen
		}
	}
	return at
}
