package lab

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPoll(t *testing.T) {
	errNotYet := errors.New("not yet")
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		after := func(d time.Duration) func() error {
			return func() error {
				calls++
				if time.Since(began) < d {
					return errNotYet
				}
				return nil
			}
		}
		if err := Poll(t.Context(), time.Second, after(0)); err != nil || calls != 1 {
			t.Errorf("what is so at once: %v after %d calls", err, calls)
		}
		if err := Poll(t.Context(), time.Second, after(500*time.Millisecond)); err != nil {
			t.Errorf("what is so in time: %v", err)
		}
		if late := time.Since(began) - 500*time.Millisecond; late > 10*time.Millisecond {
			t.Errorf("noticed %v late", late)
		}
		began = time.Now()
		if err := Poll(t.Context(), time.Second, after(time.Hour)); !errors.Is(err, ErrTimeout) || !errors.Is(err, errNotYet) {
			t.Errorf("what never is so: %v, want %v and %v", err, ErrTimeout, errNotYet)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("gave up after %v, want a second", took)
		}
		// Something waits for none, four or all of ten seconds.
		for waits, want := range map[time.Duration]time.Duration{0: 20 * time.Second, 4: 20 * time.Second * 10 / 7, 10: 80 * time.Second} {
			began = time.Now()
			busy := func() time.Duration { return time.Since(began) * waits / 10 }
			if err := poll(t.Context(), 20*time.Second, busy, after(time.Hour)); !errors.Is(err, ErrTimeout) {
				t.Errorf("what never is so on a busy machine: %v", err)
			}
			if off := time.Since(began) - want; off.Abs() > time.Millisecond {
				t.Errorf("gave up %v after %v when something waits for %d of ten seconds", off, want, waits)
			}
		}
		began = time.Now()
		busier := func() time.Duration { return 10 * time.Since(began) }
		if err := poll(t.Context(), time.Second, busier, after(time.Hour)); !errors.Is(err, ErrTimeout) || time.Since(began) != time.Second+longestGrace {
			t.Errorf("gave up after %v, want %v at most", time.Since(began), time.Second+longestGrace)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		began = time.Now()
		if err := Poll(ctx, time.Second, after(time.Hour)); !errors.Is(err, context.Canceled) || !errors.Is(err, errNotYet) {
			t.Errorf("a context that ends: %v, want %v and %v", err, context.Canceled, errNotYet)
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("gave up after %v, want when the context ended", took)
		}
	})
}
