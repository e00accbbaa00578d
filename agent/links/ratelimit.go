package links

import (
	"time"

	"golang.org/x/time/rate"
)

const (
	// minPause is the least time between two scans of one netns, or two lists of one kind. A pod
	// that changes its addresses all the time has scanBurst quick scans, then scanRate a second.
	minPause  = 10 * time.Millisecond
	scanRate  = 5
	scanBurst = 10
	// scanShare bounds the scans of one large netns to a twentieth of a core.
	scanPauseFactor = 20
	// firstRetry is the pause after the first scan that failed; it doubles.
	firstRetry = 20 * time.Millisecond
	// maxFailures is how often a netns is searched for before the next resync: a runtime may name it
	// after it has made the veth. After unseenAfter failures the interface is announced as unseen.
	maxFailures = 8
	unseenAfter = 4
)

// pacer keeps pauses between expensive runs.
type pacer struct {
	due  bool
	next time.Time // no run before this
}

// ready reports whether to run now.
func (p *pacer) ready(now time.Time) bool { return p.due && !p.next.After(now) }

// ran records a run: the next one is after the pause, once due is set again.
func (p *pacer) pause(now time.Time, pause time.Duration) { p.due, p.next = false, now.Add(pause) }

// ranSince is ran with a pause that limits runs to 1/share of the time.
func (p *pacer) pauseAfter(began time.Time, share time.Duration) {
	now := time.Now()
	p.pause(now, max(minPause, share*now.Sub(began)))
}

// earlier returns the time of the next run if that is before at, else at.
func (p *pacer) earlier(at time.Time) time.Time {
	if p.due && p.next.Before(at) {
		return p.next
	}
	return at
}

// scans plans the scans of one netns.
type scans struct {
	pacer
	limiter *rate.Limiter
	// failures counts those since one succeeded.
	failures int
}

// newScans returns a plan whose first scan is due at once.
func newScans(now time.Time) scans {
	return scans{pacer: pacer{true, now}, limiter: rate.NewLimiter(scanRate, scanBurst)}
}

// ran records a scan and its CPU time. After a failure the next is due soon, up to maxFailures.
func (s *scans) done(now time.Time, cost time.Duration, failed bool) {
	pause := max(minPause, scanPauseFactor*cost, s.limiter.ReserveN(now, 1).DelayFrom(now))
	s.pacer.pause(now, pause)
	if !failed {
		s.failures = 0
		return
	}
	if s.failures++; s.failures < maxFailures {
		s.due, s.next = true, now.Add(max(pause, firstRetry<<(s.failures-1)))
	}
}

func (s *scans) unseen() bool { return s.failures >= unseenAfter }
