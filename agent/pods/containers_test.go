package pods

import (
	"log/slog"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
)

func newTestContainers(t *testing.T) *containers {
	t.Helper()
	c, err := newContainers(slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Where there is a container runtime, each netns waits for a name of a pod, and one that has got it is not looked for.
func TestPodsFirst(t *testing.T) {
	c := newTestContainers(t)
	for cookie := range uint64(3) {
		began := time.Now()
		c.schedule.request(cookie, began.Add(criFirst))
		if next := c.schedule.next(); next.Before(began.Add(criFirst)) {
			t.Errorf("number %d is looked for after %v, want %v", cookie, next.Sub(began), criFirst)
		}
		if c.schedule.forget(cookie); !c.schedule.next().IsZero() {
			t.Errorf("number %d has a name, and is looked for", cookie)
		}
	}
}

// A container that its engine does not list yet has its id, and is looked for again.
func TestStarting(t *testing.T) {
	c := newTestContainers(t)
	c.engines = []*engine{nil}
	now := time.Now()
	c.schedule.request(1, now)
	for _, test := range []struct {
		name  string
		again bool
	}{{first[:shortContainer], true}, {"web", false}} {
		c.settle(map[uint64]Change{1: {Cookie: 1, Pod: detector.Pod{Engine: "docker", UID: first, Name: test.name}}}, now)
		if c.schedule.ended(now, time.Minute); c.schedule.next().Before(now.Add(time.Minute)) != test.again {
			t.Errorf("%s: the next look is after %v", test.name, c.schedule.next().Sub(now))
		}
	}
}

// The engine of a container whose addresses have changed is asked at the time from which it can know, once, and the others keep theirs.
func TestReaddressed(t *testing.T) {
	c := newTestContainers(t)
	look := func(at time.Time) {
		found := map[uint64]Change{1: {Cookie: 1}, 2: {Cookie: 2}}
		c.schedule.began(at)
		c.settle(found, at)
		c.found = found
		c.schedule.ended(at, time.Minute)
	}
	listed := func(when string, first, second time.Time) {
		t.Helper()
		if a, b := c.found[1].ListedAt, c.found[2].ListedAt; !a.Equal(first) || !b.Equal(second) {
			t.Errorf("%s: listed at %v and %v, want %v and %v", when, a, b, first, second)
		}
	}
	start := time.Now()
	c.readdressed(1, start.Add(EngineDelay)) // it is not known yet
	look(start)
	listed("when they are new", start, start)
	due := start.Add(EngineDelay)
	c.readdressed(1, due)
	if next := c.schedule.next(); !next.Equal(due) {
		t.Errorf("the next look is after %v, want %v", next.Sub(start), EngineDelay)
	}
	look(start.Add(EngineDelay - 1)) // for another reason
	listed("too early", start, start)
	if next := c.schedule.next(); next.Before(due) || next.After(due.Add(relistPause)) {
		t.Errorf("after an early look the next one is after %v", next.Sub(start))
	}
	look(due)
	listed("in time", due, start)
	if next := c.schedule.next(); !next.Equal(due.Add(time.Minute)) || len(c.asked) > 0 {
		t.Errorf("then it goes on: %v, %v", next.Sub(due), c.asked)
	}
	c.readdressed(2, due.Add(EngineDelay))
	c.settle(map[uint64]Change{}, due) // both have ended
	if len(c.asked) > 0 {
		t.Errorf("what has ended is asked for: %v", c.asked)
	}
}
