package detector

import (
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// AnswerTime is how long a holder may take to answer, from the first probe on, whichever node asks. One that takes longer is slow: it counts
// for no node.
const AnswerTime = time.Second

// attempts are when a holder is probed by its own node, counted from the first probe sent.
var attempts = [...]time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond}

// MaxAttempts is how often a holder is probed in one round.
const MaxAttempts = len(attempts)

// AfterAttempt returns when the next probe of a round is due or, after MaxAttempts, when the round ends. made, at least 1, is how many were
// sent, the first and the last of them at these times. If one was late, so are the others: a holder is not silent before it was
// probed often enough.
func AfterAttempt(made int, first, last time.Time) time.Time {
	if made < MaxAttempts {
		return schedule.Later(first.Add(attempts[made]), last.Add(attempts[made]-attempts[made-1]))
	}
	return schedule.Later(first.Add(AnswerTime), last.Add(lastAttemptTime))
}

const (
	lastAttemptTime = 700 * time.Millisecond // at least, from the last probe to the end of a round
	unsentTime      = 5 * time.Second        // until a probe is repeated whose sending was not reported
	// pairTime is how far apart the answers of two holders in one round may be: an address that moves to and fro has one holder at a time.
	pairTime = time.Second
	// awaitRequestTime is how long the probe of a local holder waits if a remote one has the address, too. By
	// then that holder's node has usually requested a probe, and one probe serves both nodes. Where nothing can be proved without that node,
	// it waits until that one has requested a probe or replied, and no longer than awaitTime: it may have no room for a round yet.
	// So its answer is still paired with one that the other holder gave at once, if the reply of that one's node is late.
	awaitTime        = 700 * time.Millisecond
	awaitRequestTime = 20 * time.Millisecond
)

// phase is the state of a check. The package comment has the diagram.
type phase uint8

const (
	resting phase = iota // between rounds
	probing              // a round is under way
	waiting              // a guard postponed the round
	blocked              // a guard forbids the round
	queued               // the round waits until it is admitted
)

// check has the results of a conflict's rounds for one holder. It must not know whose they are.
type check struct {
	phase    phase
	round             // the present round
	deferral deferral // while waiting or blocked

	// latest is when the holder answered last, answers is in how many rounds, and since has from when on it has answered together with
	// others. All are zero until it answers, and after a round without an answer. A remote holder may have answered earlier, by what its
	// node's reply took; surely it did not before asked.
	latest     time.Time
	asked      time.Time
	answers    int
	since      map[*check]time.Time
	proven     bool      // the holder is one of a confirmed conflict
	configured bool      // the latest answer is what its kernel has configured: it was not asked itself
	silent     time.Time // when the first of its unanswered rounds began; zero if it answered the last
	noReply    int       // probe requests in a row without a reply of a remote holder's node
}

// round is one probe of a holder and its repetitions.
type round struct {
	id        uint32
	began     time.Time // only later answers count
	await     time.Time // when the first attempt is due
	attempted time.Time // last attempt
	attempts  int
	sent      time.Time // first report that an attempt was sent; zero until then
	forwards  bool      // the holder answered, but does not have the address
	heard     bool      // the holder answered the probe, not only somebody else's
}

// deferral is the reason why a holder is not probed now, and for how long.
type deferral struct {
	reason       string
	since, until time.Time
}

// roundName returns the name of the present round for a note.
func (c *check) roundName() string {
	if c.proven {
		return ""
	}
	return [...]string{" in round 1", " in round 2", " again"}[min(c.answers, 2)]
}

// due returns when there is something to do; zero for never.
func (c *check) due() time.Time {
	switch {
	case c.phase == resting || c.phase == queued:
		return time.Time{}
	case c.phase != probing:
		return c.deferral.until
	case c.attempts == 0:
		return c.await
	case c.sent.IsZero():
		return c.attempted.Add(unsentTime)
	}
	return AfterAttempt(c.attempts, c.sent, c.attempted)
}

// isCurrent reports whether the latest answer belongs to the round that was due at a time, and others can still be paired with it.
func (c *check) isCurrent(round, now time.Time) bool {
	return !round.IsZero() && !c.asked.Before(round) && now.Sub(c.latest) <= pairTime
}

// hurry has the first attempt wait no longer than for a request that is under way.
func (c *check) hurry(now time.Time) {
	if c.attempts == 0 {
		c.await = schedule.Earlier(c.await, now.Add(awaitRequestTime))
	}
}

// joins reports whether a holder is probed in a round that begins now: it waits for one, or its latest answer is too old for the others'.
func (c *check) joins(now time.Time) bool {
	return c != nil && (c.phase == queued || c.phase == resting && now.Sub(c.latest) > pairTime)
}

// answered notes an answer. That of a remote holder was given in the round, whenever its node says.
func (c *check) answered(at time.Time, remote bool) {
	c.phase, c.silent, c.noReply = resting, time.Time{}, 0
	c.latest, c.asked = at, at
	if remote {
		c.asked = c.began
	}
	c.answers++
}

// pair notes since when two holders have answered in the same rounds, when one of them has answered: their answers are at most
// pairTime apart. Otherwise an address that moves to and fro between them would count.
func (c *check) pair(o *check) {
	if o.latest.IsZero() || c.latest.Sub(o.latest).Abs() > pairTime || !c.since[o].IsZero() {
		return
	}
	c.unite(o, schedule.Later(c.latest, o.latest))
}

// unite notes that two holders have answered in the same rounds since a time.
func (c *check) unite(o *check, at time.Time) {
	for _, side := range [...][2]*check{{c, o}, {o, c}} {
		if side[0].since == nil {
			side[0].since = make(map[*check]time.Time)
		}
		side[0].since[side[1]] = at
	}
}

// unpair forgets what the answers of a holder have proved.
func (c *check) unpair() {
	for o := range c.since {
		delete(o.since, c)
	}
	c.since, c.answers, c.latest, c.asked = nil, 0, time.Time{}, time.Time{}
}

// together reports whether the holder is known to have the address together with another one.
func (c *check) together() bool { return c != nil && (c.proven || len(c.since) > 0) }

// togetherWith returns for how long two holders are known to have the address together: from the first round that both answered to the
// last one. It is negative if they are not.
func (c *check) togetherWith(o *check) time.Duration {
	since := c.since[o]
	if since.IsZero() || c.latest.Sub(o.latest).Abs() > pairTime {
		return -1
	}
	return schedule.Earlier(c.asked, o.asked).Sub(since)
}
