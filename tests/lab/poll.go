package lab

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// noTimeout leaves the limit to a context.
const noTimeout = time.Hour

// eventuallyTimeout is the timeout of Eventually.
const eventuallyTimeout = 20 * time.Second

// longestGrace is what a timeout can gain on a machine with too much to do.
const longestGrace = time.Minute

// Final makes an error the last one: Poll returns it at once.
func Final(err error) error { return final{err} }

type final struct{ error }

func (f final) Unwrap() error { return f.error }

// Poll calls ok until it returns nil, or an error that is [Final]. When that takes longer than timeout, or ctx ends, it
// returns the last error, wrapped together with [ErrTimeout] or with the one of ctx; at the timeout it has asked once more. Of the time in which something waited for
// a processor only a quarter counts, for a minute at most: parts of CI that run together measure each other otherwise.
func Poll(ctx context.Context, timeout time.Duration, ok func() error) error {
	return poll(ctx, timeout, func() time.Duration {
		now, _ := BusyNow()
		return now.Waited
	}, ok)
}

// poll is Poll with what something has waited for a processor since the machine booted.
func poll(ctx context.Context, timeout time.Duration, waited func() time.Duration, ok func() error) error {
	began, before := time.Now(), waited()
	left := func() time.Duration {
		left := timeout - time.Since(began)
		if left > 0 {
			return left
		}
		return left + min((waited()-before)*3/4, longestGrace)
	}
	var last error
	for {
		asked := time.Now()
		err := ok()
		if _, last := errors.AsType[final](err); err == nil || last {
			return err
		}
		// An error from an ended context is less useful than the one before.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		remains := left()
		if remains <= 0 {
			return errors.Join(last, fmt.Errorf("%w: %v", ErrTimeout, timeout))
		}
		// A short wait is noticed at once; a long one, or a question that takes long, does not keep the machine busy.
		pause := min(max(time.Since(began)/100, 5*time.Millisecond), 50*time.Millisecond)
		pause = min(max(pause, min(time.Since(asked), time.Second)), remains)
		select {
		case <-ctx.Done():
			return errors.Join(last, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// Eventually polls until ok returns nil, and fails the test with its last error when that takes too
// long; what describes the condition.
func (t *T) Eventually(what string, ok func() error) {
	t.Helper()
	if err := Poll(t.Context(), Patience(eventuallyTimeout), ok); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}
