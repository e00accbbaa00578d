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
	// Without the kernel's count of what waits for a processor, which goes on in real time.
	poll := func(ctx context.Context, timeout time.Duration, ok func() error) error {
		limited, cancel := withTimeout(ctx, timeout, func() time.Duration { return 0 })
		defer cancel()
		return poll(ctx, limited, ok)
	}
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
		if err := poll(t.Context(), time.Second, after(0)); err != nil || calls != 1 {
			t.Errorf("what is so at once: %v after %d calls", err, calls)
		}
		if err := poll(t.Context(), time.Second, after(500*time.Millisecond)); err != nil {
			t.Errorf("what is so in time: %v", err)
		}
		if late := time.Since(began) - 500*time.Millisecond; late > 10*time.Millisecond {
			t.Errorf("noticed %v late", late)
		}
		began = time.Now()
		if err := poll(t.Context(), time.Second, after(time.Hour)); !errors.Is(err, ErrTimeout) || !errors.Is(err, errNotYet) {
			t.Errorf("what never is so: %v, want %v and %v", err, ErrTimeout, errNotYet)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("gave up after %v, want a second", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		began = time.Now()
		if err := poll(ctx, time.Second, after(time.Hour)); !errors.Is(err, context.Canceled) || !errors.Is(err, errNotYet) {
			t.Errorf("a context that ends: %v, want %v and %v", err, context.Canceled, errNotYet)
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("gave up after %v, want when the context ended", took)
		}
	})
}

func TestWithTimeout(t *testing.T) {
	for _, c := range []struct{ waits, takes time.Duration }{ // for every ten seconds and for twenty of them
		{0, 20 * time.Second}, {4 * time.Second, 200 * time.Second / 7}, {10 * time.Second, 80 * time.Second}, {100 * time.Second, 80 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			waited := func() time.Duration { return time.Duration(float64(time.Since(began)) * c.waits.Seconds() / 10) }
			ctx, cancel := withTimeout(t.Context(), 20*time.Second, waited)
			defer cancel()
			<-ctx.Done()
			if off := time.Since(began) - c.takes; off.Abs() > time.Millisecond || !errors.Is(context.Cause(ctx), ErrTimeout) {
				t.Errorf("%v in 10 s: ended %v after %v with %v", c.waits, off, c.takes, context.Cause(ctx))
			}
		})
	}
}
