package search

import (
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/judge"
	"github.com/dupip/dupip/document/merge"
)

const (
	// judgedAfter is after what time a step of a conflict is judged, maxJudged how often that is done in one world.
	judgedAfter, maxJudged = 200 * time.Millisecond, 12
	answerSize             = 1 << 20
)

// mustJudge has somebody ask all agents soon, and judge.
func (t *truth) mustJudge() {
	if t.judged++; t.judged <= maxJudged {
		t.w.after(judgedAfter+t.w.between(0, 5*time.Second), t.judge)
	}
}

// judge checks what one agent says of the conflicts of all, of which some do not answer.
func (t *truth) judge() {
	agents := t.w.agents()
	honest := slices.DeleteFunc(slices.Clone(agents), func(a *agent) bool { return a.m.liar != nil })
	if len(honest) == 0 {
		return
	}
	asking := honest[t.w.random.IntN(len(honest))]
	now := asking.m.clock()
	var answers, ofHonest []document.Answer
	for _, a := range agents {
		if a.m.frozen || a.m.role != cluster.Agent || t.w.chance(0.2) && a != asking {
			continue
		}
		own := a.answer()
		if l := a.m.liar; l != nil {
			if !t.w.members.knows(asking, a) {
				continue
			}
			l.tell(&own, ofHonest)
		}
		packed, err := own.Encode(answerSize)
		if err == nil {
			own, _, err = document.DecodeAnswer(packed, a.m.name, a.m.boot, now)
		}
		if err != nil && a.m.liar != nil {
			continue
		}
		if err != nil {
			t.broke("answer", "what %s answers cannot be read: %v", a.m.label, err)
			return
		}
		own.Self = a == asking
		answers = append(answers, own)
		if a.m.liar == nil {
			ofHonest = append(ofHonest, own)
		}
	}
	ctx := judge.Around(asking.gossip.Members())
	ctx.Now = now
	merged, _ := merge.Conflicts(merge.Join(answers), everywhere)
	open := make(map[detector.Key]string)
	for _, c := range merged {
		if gap := gapOf(c, answers, now); !gap.IsZero() {
			t.broke("joined", "%s of %s began at %v, and no agent has it %v later", c.ID, c.IP, c.SuspectedAt, gap.Sub(c.SuspectedAt))
		}
		if c.State == detector.Resolved {
			continue
		}
		if other := open[c.Key()]; other != "" {
			t.broke("merged", "%s is open as %s and as %s", c.IP, other, c.ID)
		}
		open[c.Key()] = c.ID
		if made := judge.Of(c, ctx); made != nil {
			t.justly(c, made)
			t.judgesBy(asking, c, made, ofHonest, ctx)
		}
	}
}

// gapOf is a time within a merged conflict at which no agent has a record of its address, zero if there is none.
func gapOf(c document.Conflict, answers []document.Answer, now time.Time) time.Time {
	end := func(c document.Conflict) time.Time {
		if c.State == detector.Resolved {
			return c.ResolvedAt
		}
		return now
	}
	covered := c.SuspectedAt
	for more := true; more; {
		more = false
		for _, a := range answers {
			for _, r := range a.Conflicts {
				if r.Key() == c.Key() && !r.SuspectedAt.After(covered) && end(r).After(covered) {
					covered, more = end(r), true
				}
			}
		}
	}
	if covered.Before(end(c)) {
		return covered
	}
	return time.Time{}
}

// answer is what an agent answers when it is asked for conflicts. Its pods run.
func (a *agent) answer() document.Answer {
	answer := document.Answer{Node: a.m.name, BootID: a.m.boot, At: a.m.clock()}
	for _, c := range a.Detector.Conflicts(true) {
		doc := document.NewConflict(c)
		for n := range doc.Holders {
			if doc.Holders[n].NodeID() == a.m.id() {
				doc.Holders[n].Facts = &document.Facts{Behind: document.BehindRunning}
			}
		}
		answer.Conflicts = append(answer.Conflicts, doc)
	}
	return answer
}

// justly checks that no advice says to remove a holder that was given the address if no other one was.
func (t *truth) justly(c document.Conflict, made *document.Judgement) {
	var right *life
	for _, l := range t.holders(c.Key()) {
		switch {
		case l.given == detector.GivenUnknown, l.given == detector.GivenYes && right != nil:
			return
		case l.given == detector.GivenYes:
			right = l
		}
	}
	for _, j := range made.Holders {
		if b := c.Holders[j.Holder]; right != nil && right.is(b.ID()) && j.Verdict == document.Remove && j.Reason != document.ReasonGone && !t.liarNamed(j.By) {
			t.broke("justly", "%s of %s is to be removed, because it is %q", right, c.IP, j.Reason)
		}
	}
}
