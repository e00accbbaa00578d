package lab

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// noTimeout leaves the limit to a context.
const noTimeout = time.Hour

// eventuallyTimeout is the timeout of Eventually on a busy machine.
const eventuallyTimeout = 20 * time.Second

// Final makes an error the last one: Poll returns it at once.
func Final(err error) error { return final{err} }

type final struct{ error }

func (f final) Unwrap() error { return f.error }

// Poll calls ok until it returns nil, or an error that is [Final]. When that takes longer than timeout, or ctx ends, it
// returns the last error, wrapped together with [ErrTimeout] or with the one of ctx.
func Poll(ctx context.Context, timeout time.Duration, ok func() error) error {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w: %v", ErrTimeout, timeout))
	defer cancel()
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
		// A short wait is noticed at once; a long one, or a question that takes long, does not keep the machine busy.
		pause := min(max(time.Since(began)/100, 5*time.Millisecond), 50*time.Millisecond)
		pause = max(pause, min(time.Since(asked), time.Second))
		if end, _ := ctx.Deadline(); time.Until(end) > 10*time.Millisecond {
			pause = min(pause, time.Until(end)/2) // so that the last answer is not an old one
		}
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
