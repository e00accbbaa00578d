package audit

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// span is a time in which a finding was true.
type span struct {
	from, to time.Time
	// must is since when the finding has had to be found; zero if it need not.
	must time.Time
	// found is when a poll had it first. late: it was reported as missing.
	found time.Time
	late  bool
}

// gap is how long a finding may be untrue without that a reader notices who reads once a second.
const gap = 1200 * time.Millisecond

// judge compares polls with the truth.
type judge struct {
	mu      sync.Mutex
	spans   map[key][]*span // the latest last
	now     time.Time       // of the last snapshot
	freeze  time.Time       // since when the runtime does not answer; zero if it does
	before  map[key]bool    // the last poll
	memory  memory
	errors  []string
	polls   int
	false   int
	missed  int
	lingers int
	delays  map[string][]time.Duration // by kind
	goes    []time.Duration
	slowest time.Duration // poll
}

func newJudge() *judge {
	return &judge{spans: make(map[key][]*span), memory: make(memory), delays: make(map[string][]time.Duration)}
}

// see adds a snapshot.
func (j *judge) see(s *snapshot) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case !s.frozen:
		j.freeze = time.Time{}
	case j.freeze.IsZero():
		j.freeze = s.at
	}
	j.now = s.at
	for k, must := range s.expected(j.memory) {
		last := j.last(k)
		if last == nil || s.at.Sub(last.to) > gap {
			last = &span{from: s.at}
			j.spans[k] = append(j.spans[k], last)
		}
		if s.at.Sub(last.to) > 3*look { // the agent may have seen the gap
			last.must = time.Time{}
		}
		last.to = s.at
		switch {
		case !must:
			last.must = time.Time{}
		case last.must.IsZero():
			last.must = s.at
		}
	}
}

func (j *judge) last(k key) *span {
	if all := j.spans[k]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// least is how long a finding must have been true to be found.
func (k key) least() time.Duration {
	if k.kind == "unheld" {
		return unheldAfter
	}
	return time.Second
}

// finding is one that a poll had.
type finding struct {
	key
	since time.Time
}

// polled adds an answer of the agent: the question was asked at from, and it came at to. A snapshot that is as new as the answer
// must have been seen. It returns what is missing for too long now.
func (j *judge) polled(from, to time.Time, findings []finding) (missing []key) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.polls++
	j.slowest = max(j.slowest, to.Sub(from))
	has := make(map[key]bool)
	for _, f := range findings {
		has[f.key] = true
		j.check(f, from, to)
	}
	for k := range j.before {
		if last := j.last(k); !has[k] && last != nil && last.to.Before(from) {
			j.goes = append(j.goes, from.Sub(last.to))
		}
	}
	for k, all := range j.spans {
		last := all[len(all)-1]
		open := !last.to.Before(to) && !last.must.IsZero()
		if open && !has[k] && from.Sub(last.must) > deadline && !last.late {
			last.late = true
			j.missed++
			missing = append(missing, k)
			j.fail(to, "%v is true since %v ago and is not found", k, to.Sub(last.from))
		}
	}
	j.before = has
	return missing
}

// check checks one finding.
func (j *judge) check(f finding, from, to time.Time) {
	var lawful *span
	for _, s := range j.spans[f.key] {
		if s.to.Add(2*look).Sub(s.from) >= f.least() {
			lawful = s
		}
	}
	switch {
	case lawful == nil:
		j.false++
		j.fail(to, "%v was found, since %v ago, and never true for %v: %s", f.key, to.Sub(f.since), f.least(), j.history(f.key, to))
	case from.Sub(lawful.to) > deadline:
		j.lingers++
		j.fail(to, "%v is found, and was true last %v ago", f.key, to.Sub(lawful.to))
	case !j.freeze.IsZero() && lawful.from.After(j.freeze) && from.After(j.freeze):
		j.false++
		j.fail(to, "%v was found while the runtime did not answer, since %v ago, and it is true since then only", f.key, to.Sub(j.freeze))
	case f.since.Before(lawful.from.Add(-gap)) && !slices.ContainsFunc(j.spans[f.key], func(s *span) bool {
		return !f.since.Before(s.from.Add(-gap)) && !f.since.After(s.to.Add(gap))
	}):
		j.false++
		j.fail(to, "%v has been found since %v ago, too early: %s", f.key, to.Sub(f.since), j.history(f.key, to))
	}
	if lawful != nil && lawful.found.IsZero() {
		lawful.found = to
		if !j.before[f.key] {
			j.delays[f.kind] = append(j.delays[f.kind], to.Sub(lawful.from))
		}
	}
}

func (j *judge) history(k key, now time.Time) (text string) {
	for _, s := range j.spans[k] {
		text += fmt.Sprintf("true from %v to %v ago; ", now.Sub(s.from), now.Sub(s.to))
	}
	return text
}

// fail keeps an error, the first ones only.
func (j *judge) fail(at time.Time, format string, args ...any) {
	if len(j.errors) < 20 {
		j.errors = append(j.errors, at.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// difference compares the last poll with what is true now: findings that have to be there and are not, or the reverse.
func (j *judge) difference() (missing, extra []key, open int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for k := range j.spans {
		last := j.last(k)
		if now := last.to.Equal(j.now); now && !j.before[k] && !last.must.IsZero() && last.to.Sub(last.from) > k.least() {
			missing = append(missing, k)
		}
	}
	for k := range j.before {
		if last := j.last(k); last == nil || !last.to.Equal(j.now) {
			extra = append(extra, k)
		}
	}
	return missing, extra, len(j.before)
}
