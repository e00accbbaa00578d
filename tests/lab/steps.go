package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"
)

// This file carries out what dupip says about a conflict, to the letter.

// Step is one thing to do about a conflict, as the document has it.
type Step struct{ If, Text, Command, Node, Address, Cuts, File string }

// Judgement is what is decided about a conflict, as the document has it.
type Judgement struct {
	Holders []struct {
		Holder              int
		Verdict, Reason, By string
	}
	Cause, Confidence, Short, Text string
	Steps                          []Step
}

// Judged is a conflict with its judgement.
type Judged struct {
	Conflict
	Judgement *Judgement `json:"judgement"`
}

// ReadJudged finds the conflict of an address in what `dupip conflicts -o json` or `dupip explain -o json` prints.
func ReadJudged(document []byte, ip netip.Addr) (Judged, error) {
	var doc struct {
		Conflicts []Judged
		Stories   []struct{ Conflict *Judged }
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return Judged{}, err
	}
	for _, s := range doc.Stories {
		if s.Conflict != nil {
			doc.Conflicts = append(doc.Conflicts, *s.Conflict)
		}
	}
	i := slices.IndexFunc(doc.Conflicts, func(c Judged) bool { return c.IP == ip && c.State == "confirmed" && c.Judgement != nil })
	if i < 0 {
		return Judged{}, fmt.Errorf("no confirmed conflict of %v with a judgement: %s", ip, document)
	}
	return doc.Conflicts[i], nil
}

// change matches commands that change something.
var change = regexp.MustCompile(`\b(delete|drain|rmp|del|flush|down|replace)\b`)

// changes reports whether the step has a command that changes something.
func (s Step) changes() bool {
	return s.Command != "" && (s.Cuts != "" || change.MatchString(s.Command))
}

// Orders reports whether a person is told to change something by a command, whatever holds.
func (j *Judgement) Orders() bool {
	return slices.ContainsFunc(j.Steps, func(s Step) bool { return s.If == "" && s.changes() })
}

// CLI runs commands of dupip against an agent.
type CLI interface {
	CLI(ctx context.Context, args ...string) (string, error)
}

// Judged returns the first judgement about an address that satisfies ok, as `dupip explain` has it, and prints it as people see it.
func (t *T) Judged(a CLI, ip netip.Addr, ok func(*Judgement) bool) (c Judged) {
	t.Helper()
	t.Eventually("the judgement about "+ip.String(), func() error {
		out, err := a.CLI(t.Context(), "explain", ip.String(), "-o", "json")
		if err == nil {
			c, err = ReadJudged([]byte(out), ip)
		}
		if err == nil && !ok(c.Judgement) {
			err = fmt.Errorf("it is %+v", *c.Judgement)
		}
		return err
	})
	text, err := a.CLI(t.Context(), "explain", ip.String())
	t.Do(err)
	t.Logf("$ dupip explain %v\n%s", ip, text)
	return c
}

// Ordered is [T.Judged] for the first judgement with an order. Whoever looks at once sees that, so it has to be right.
func (t *T) Ordered(a CLI, ip netip.Addr) Judged {
	t.Helper()
	return t.Judged(a, ip, (*Judgement).Orders)
}

// Follower is a person who copies each command and decides nothing.
type Follower struct {
	// Run runs the command of a step where the step says, and returns what it printed.
	Run func(Step) (string, error)
	// Answer says whether the condition of a step holds, after these were carried out; without it none does.
	Answer func(s Step, before []Ran) bool
	// ByHand carries out a step without a command; without it such steps are only printed.
	ByHand func(Step) (string, error)
}

// Ran is a step that was carried out. It has failed if Err is not nil.
type Ran struct {
	Step
	Out string
	Err error
}

// Failed is the answer to "if it fails".
func Failed(_ Step, before []Ran) bool { return len(before) > 0 && before[len(before)-1].Err != nil }

// Follow carries out the steps in their order, and returns them. A command that fails does not end it: people read on.
func (t *T) Follow(steps []Step, f Follower) (ran []Ran) {
	t.Helper()
	for _, s := range steps {
		run := f.Run
		if s.Command == "" {
			run = f.ByHand
		}
		switch {
		case s.File != "":
			t.Fatal(fmt.Errorf("a step changes the file %s: %+v", s.File, s))
		case run == nil, s.If != "" && (f.Answer == nil || !f.Answer(s, ran)):
			t.Logf("not carried out: %s: %s: %s", s.If, s.Text, s.Command)
		default:
			out, err := run(s)
			t.Logf("%s: %s\n%s# %s\n%s%v", s.If, s.Text, s.Node, s.Command, out, err)
			ran = append(ran, Ran{s, out, err})
		}
	}
	return ran
}

// Undone returns an error if a step failed and the next one that was carried out is not there for that. A command that only reads may
// fail: people know that a book is not there.
func Undone(ran []Ran) error {
	for i, r := range ran {
		reads := r.Command != "" && !r.changes()
		standIn := i+1 < len(ran) && ran[i+1].If != "" && ran[i+1].If != r.If
		if r.Err != nil && !reads && !standIn {
			return fmt.Errorf("%s: %s: %s%w", r.Text, r.Command, r.Out, r.Err)
		}
	}
	return nil
}

// Reporter has the conflicts that an agent knows, those that are over, too. [Client] is one.
type Reporter interface {
	Conflicts(ctx context.Context, all bool) ([]Conflict, error)
}

// endTime is how long after the last step nothing may be left of a conflict.
const endTime = 15 * time.Second

// Ended fails the test unless the conflicts of these addresses, which were followed since then, have ended: 15 s from now none is open on
// an agent, none of any address has begun since, and lives has returned nil all the time.
func (t *T) Ended(since time.Time, lives func() error, ips []netip.Addr, agents ...Reporter) {
	t.Helper()
	began, ended := time.Now(), false
	t.Do(Poll(t.Context(), Patience(endTime), func() error {
		if err := lives(); err != nil {
			return Final(err)
		}
		var open error
		for _, a := range agents {
			all, err := a.Conflicts(t.Context(), true)
			if err != nil {
				return err
			}
			for _, c := range all {
				switch {
				case c.ConfirmedAt.After(since):
					return Final(fmt.Errorf("a new conflict of %v: %+v", c.IP, c))
				case c.State != "resolved" && slices.Contains(ips, c.IP):
					open = fmt.Errorf("the conflict of %v is open: %+v", c.IP, c)
				}
			}
		}
		switch {
		case open != nil && ended:
			return Final(fmt.Errorf("again after its end: %w", open))
		case open != nil:
			return open
		}
		if !ended {
			t.Logf("no conflict is open %.1f s after the last step", time.Since(began).Seconds())
		}
		ended = true
		if left := endTime - time.Since(began); left > 0 {
			return fmt.Errorf("%v are left to watch", left)
		}
		return nil
	}))
}
