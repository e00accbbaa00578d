package metrics

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// hung is a source that heeds nothing until it is released.
type hung struct {
	calls   atomic.Int32
	release chan struct{}
}

func newHung() *hung { return &hung{release: make(chan struct{})} }

func (h *hung) pods(context.Context) (PodStats, error) {
	h.calls.Add(1)
	<-h.release
	return PodStats{Known: 7}, nil
}

func TestASourceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHung()
		sources := rich()
		sources.Pods = h.pods
		m := New(sources)

		start := time.Now()
		got := families(t, m)
		if took := time.Since(start); took != answerTime {
			t.Errorf("the scrape took %s, want %s", took, answerTime)
		}
		if len(got[PodsKnown]) != 0 || len(got[PodsRuntimeConnected]) != 0 {
			t.Error("metrics of the source that hangs are there")
		}
		if len(got[Conflicts]) != 6 || got[StateSizeBytes][""] != 4096 {
			t.Error("metrics of the others are missing")
		}
		if n := got[ScrapeErrorsTotal]["pods"]; n != 1 {
			t.Errorf("%v errors, want 1", n)
		}

		// Later ones neither wait nor ask on top.
		start = time.Now()
		for range 20 {
			got = families(t, m)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("20 more scrapes took %s, want no waiting", took)
		}
		if n := h.calls.Load(); n != 1 {
			t.Errorf("asked %d times while the first question is open", n)
		}
		if n := got[ScrapeErrorsTotal]["pods"]; n != 21 {
			t.Errorf("%v errors, want 21", n)
		}

		close(h.release)
		synctest.Wait()
		time.Sleep(shareTime)
		if got := families(t, m); got[PodsKnown][""] != 7 {
			t.Error("the source is not back after it answered")
		}
	})
}

// An error takes the metrics of its source away, not those of the scrape before.
func TestASourceThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		m := New(Sources{State: func(context.Context) (StateStats, error) { return StateStats{Bytes: 1}, err }})
		for _, want := range []error{nil, errors.New("the agent is stopping"), nil} {
			err = want
			got := families(t, m)
			if there := len(got[StateSizeBytes]) == 1; there != (want == nil) {
				t.Errorf("with error %v: metrics there: %t", want, there)
			}
			time.Sleep(shareTime)
		}
		if n := families(t, m)[ScrapeErrorsTotal]["state"]; n != 1 {
			t.Errorf("%v errors, want 1", n)
		}
	})
}

func TestSourcesEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Sources{Config: func(ctx context.Context) (ConfigStats, error) {
			deadline, ok := ctx.Deadline()
			if !ok || time.Until(deadline) != answerTime {
				t.Errorf("deadline %s, %t", time.Until(deadline), ok)
			}
			<-ctx.Done()
			return ConfigStats{}, ctx.Err()
		}})
		if n := families(t, m)[ScrapeErrorsTotal]["config"]; n != 1 {
			t.Errorf("%v errors, want 1", n)
		}
	})
}

// A flood of scrapes must not keep the loop busy with questions.
func TestScrapesShareAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		m := New(Sources{Pods: func(context.Context) (PodStats, error) {
			time.Sleep(10 * time.Millisecond)
			return PodStats{Known: int(calls.Add(1))}, nil
		}})
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				if got := families(t, m)[PodsKnown][""]; got != 1 {
					t.Errorf("got answer %v, want the first", got)
				}
			})
		}
		group.Wait()
		if got := families(t, m)[PodsKnown][""]; got != 1 {
			t.Errorf("got answer %v, want the first: it is fresh", got)
		}
		time.Sleep(shareTime)
		if got := families(t, m)[PodsKnown][""]; got != 2 {
			t.Errorf("got answer %v, want a new one", got)
		}
	})
}

// A client that goes away neither waits nor spoils the answer for others, and is
// nobody's error.
func TestAClientThatGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHung()
		m := New(Sources{Pods: h.pods})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		for range 20 { // the first waits, the others come too late
			err := m.scrape(ctx, func() { t.Error("made a page for nobody") })
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
				t.Errorf("error %v after %s", err, time.Since(start))
			}
		}
		go func() {
			time.Sleep(time.Second)
			close(h.release)
		}()
		got := families(t, m)
		if got[PodsKnown][""] != 7 || got[ScrapeErrorsTotal]["pods"] != 0 {
			t.Errorf("known %v, errors %v", got[PodsKnown], got[ScrapeErrorsTotal])
		}
	})
}
