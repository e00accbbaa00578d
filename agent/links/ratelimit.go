package links

import (
	"time"

	"golang.org/x/time/rate"

	times "github.com/dupip/dupip/internal/schedule"
)

const (
	// minPause is the least time between two scans of one netns, or two lists of one kind.
	minPause = 10 * time.Millisecond
	// A pod that changes its addresses all the time has scanBurst quick scans, then scanRate a second.
	scanRate  = 5
	scanBurst = 10
	// After a scan that took the CPU time t, the next starts scanPauseFactor * t later at the earliest, so
	// scans of one large netns use at most 1/20 of a core.
	scanPauseFactor = 20
	// maxMutePause limits that pause where a scan takes the place of a probe ([Interface.Mute]): a round ends after a second. Then
	// scans of a very large netns use up to 1/5 of a core.
	maxMutePause = 300 * time.Millisecond
	// firstRetry is the pause after the first failed scan. It doubles after each further failure.
	firstRetry = 20 * time.Millisecond
	// maxRetry limits it. There are several retries, because a runtime may name the netns after it has made the veth, and no event tells that
	// a process has entered it.
	maxRetry = 2 * time.Second
	// attachRetry is the pause after a failed attempt to attach, and after another program has detached ours: it may be about to make
	// another qdisc. A round of probes has its last one after 300 ms. The pause doubles each time, up to maxAttachRetry, until a resync
	// finds the interface attached. It doubles up to slowAttachRetry if another program detaches ours again and again, or if an event
	// comes when it is time to try again: while an attempt waits for RTNL, nobody can delete the qdisc (EBUSY).
	attachRetry     = 200 * time.Millisecond
	maxAttachRetry  = 2 * time.Second
	slowAttachRetry = 30 * time.Second
	// listRetry is the pause after a list of the node's own routes or addresses failed.
	listRetry = time.Second
	// unseenAfter is the number of failed scans after which the interface is announced as unseen.
	unseenAfter = 4
)

// pacer schedules an expensive action, with a pause after each.
type pacer struct {
	due  bool
	next time.Time // the action does not start earlier
}

// ready reports whether to act now.
func (p *pacer) ready(now time.Time) bool { return p.due && !p.next.After(now) }

// pause records an action. The next is possible after the pause, once due is set again.
func (p *pacer) pause(now time.Time, pause time.Duration) { p.due, p.next = false, now.Add(pause) }

// pauseAfter records an action that lasted from began until now. The pause is factor times as long.
func (p *pacer) pauseAfter(began time.Time, factor time.Duration) {
	now := time.Now()
	p.pause(now, max(minPause, factor*now.Sub(began)))
}

// retry schedules the action again, at the earliest after the pause.
func (p *pacer) retry(now time.Time, pause time.Duration) {
	p.due, p.next = true, times.Later(p.next, now.Add(pause))
}

// earlier returns the time of the next action if that is before at, else at.
func (p *pacer) earlier(at time.Time) time.Time {
	if p.due && p.next.Before(at) {
		return p.next
	}
	return at
}

// scans schedules the scans of one netns.
type scans struct {
	pacer
	limiter  *rate.Limiter
	failures int // failed scans since the last that succeeded
}

// newScans returns a schedule whose first scan is due at once.
func newScans(now time.Time) scans {
	return scans{pacer: pacer{due: true, next: now}, limiter: rate.NewLimiter(scanRate, scanBurst)}
}

// done records a scan and its CPU time. If it failed, done schedules the next.
func (s *scans) done(now time.Time, cost time.Duration, failed bool) {
	pause := max(minPause, scanPauseFactor*cost, s.limiter.ReserveN(now, 1).DelayFrom(now))
	s.pause(now, pause)
	if !failed {
		s.failures = 0
		return
	}
	s.due, s.next = true, now.Add(max(pause, s.retry()))
	s.failures++
}

// retry is the pause after a scan that failed after others.
func (s *scans) retry() time.Duration { return min(firstRetry<<min(s.failures, 30), maxRetry) }

// unseen reports whether the interface is to be announced as unseen.
func (s *scans) unseen() bool { return s.failures >= unseenAfter }
