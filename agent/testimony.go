package agent

import (
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// maxQuestions bounds the questions of other nodes that wait for an answer.
	maxQuestions = 4096
	// questionEnds is when a holder that was asked has not answered; the asker waits
	// for about twice that.
	questionEnds = 700 * time.Millisecond
	// questionGivesUp is when a safeguard that held a question up is told to the asker.
	questionGivesUp = time.Second
	// questionsAfter is how long after its start an agent may not have heard of all its
	// holders: nobody is to take one for gone then.
	questionsAfter = 5 * time.Second
	// questionPause is how long questions wait for the rate limit to let more through.
	questionPause = 20 * time.Millisecond
)

// questionAttempts are when the holder is asked, counted from the first time.
var questionAttempts = [...]time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond}

// examine begins to ask a holder of this node because another node wants to know.
func (l *loop) examine(m cluster.Question, now time.Time) {
	q := &question{Question: m, arrived: now, next: now}
	switch {
	case !l.clusterWide(m.Key.Network):
		l.testify(q, cluster.Gone, "its network "+m.Key.Network+" is not the cluster's")
	case !l.ready:
		l.testify(q, cluster.Refused, "it is starting")
	case l.held(q) == nil && now.Sub(l.readyAt) < questionsAfter:
		l.testify(q, cluster.Refused, "it has just started")
	case l.held(q) == nil:
		l.testify(q, cluster.Gone, "no such holder has the address")
	case len(l.questions.due) >= maxQuestions:
		l.dropped[dropQuestions]++
		l.testify(q, cluster.Refused, "it is asked too much")
	default:
		l.questions.add(q)
		l.advanceQuestions(now)
	}
}

// held returns the binding that a question is about, nil if there is none.
func (l *loop) held(q *question) *detector.Binding {
	for _, b := range l.detector.Claims(q.Key) {
		if b.Holder.ID == q.Holder {
			return &b
		}
	}
	return nil
}

// advanceQuestions asks where it is time to, and ends what was asked in vain.
func (l *loop) advanceQuestions(now time.Time) {
	for q := l.questions.first(now); q != nil; q = l.questions.first(now) {
		l.advanceQuestion(q, now)
	}
}

// advanceQuestion does what is due for a question: it ends, or is due later, or the rate
// limit makes all wait.
func (l *loop) advanceQuestion(q *question, now time.Time) {
	b := l.held(q)
	switch {
	case b == nil:
		l.endQuestion(q, cluster.Gone, "no such holder has the address any more")
		return
	case q.attempts == len(questionAttempts):
		outcome := cluster.Unanswered
		if q.forwards {
			outcome = cluster.Forwards
		}
		l.endQuestion(q, outcome, "")
		return
	}
	if !l.questions.served(q, now) {
		refusal, until := l.putQuestion(q, b, now)
		switch {
		case refusal == "":
			l.questions.put(q.whom(), now)
		case until.IsZero() || until.Sub(q.arrived) > questionGivesUp:
			q.next = until
			l.endQuestion(q, cluster.Refused, refusal)
			return
		case refusal == rateReason:
			l.questions.paused = now.Add(questionPause)
			return
		default:
			l.questions.wait(q, until)
			return
		}
	}
	if q.began.IsZero() {
		q.began = now
	}
	q.attempts++
	next := q.began.Add(questionEnds)
	if q.attempts < len(questionAttempts) {
		next = q.began.Add(questionAttempts[q.attempts])
	}
	l.questions.wait(q, next) // unless it has ended: asking the node itself answers at once
}

// putQuestion solicits the holder. Questions leave a part of the rate to the suspicions
// of this node, whose verification they would hold up.
func (l *loop) putQuestion(q *question, b *detector.Binding, now time.Time) (refusal string, until time.Time) {
	if l.verifyRate.TokensAt(now) < float64(l.verifyRate.Burst())/4 {
		return rateReason, now.Add(rateWait)
	}
	return l.put(detector.Solicitation{
		Key: q.Key, Holder: q.Holder, Interface: b.Holder.Interface, Purpose: detector.Verify,
	}, now)
}

// answeredQuestions tells the askers of an answer that came.
func (l *loop) answeredQuestions(s *detector.Sighting) {
	if !s.Answer {
		return
	}
	for _, q := range slices.Clone(l.questions.about[whom{s.Key, s.Holder.ID}]) {
		switch {
		case s.At.Before(q.arrived):
		case s.Evidence == detector.Forwarded:
			q.forwards = true
		default:
			q.began = s.At
			l.endQuestion(q, cluster.Answered, "")
		}
	}
}

func (l *loop) endQuestion(q *question, outcome cluster.Outcome, reason string) {
	if l.questions.end(q) {
		l.testify(q, outcome, reason)
	}
}

// testify answers the asker.
func (l *loop) testify(q *question, outcome cluster.Outcome, reason string) {
	t := cluster.Testimony{
		Solicitation: detector.Solicitation{Key: q.Key, Holder: q.Holder},
		Outcome:      outcome,
		Reason:       reason,
	}
	if b := l.held(q); b != nil {
		t.Claim = claim(*b, l.detector.Episodes(q.Key))
	}
	switch outcome {
	case cluster.Answered:
		t.At = q.began
	case cluster.Refused:
		t.RetryAt = q.next
		if t.RetryAt.Equal(q.arrived) {
			t.RetryAt = q.arrived.Add(time.Second)
		}
	}
	l.cluster.Testify(q.ID, t)
}
