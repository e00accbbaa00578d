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

// WithTimeout is [context.WithTimeout] for what has to happen at some time: of the time in which something waited for a
// processor only a quarter counts, which gives a minute more at most. Parts of CI that run together measure each other otherwise. The
// context's cause wraps [ErrTimeout].
func WithTimeout(parent context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return withTimeout(parent, timeout, func() time.Duration {
		now, _ := BusyNow()
		return now.Waited
	})
}

// withTimeout is WithTimeout with what something has waited for a processor since the machine booted.
func withTimeout(parent context.Context, timeout time.Duration, waited func() time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	began, before := time.Now(), waited()
	go func() {
		for left := timeout; left > 0; left = timeout - time.Since(began) + min((waited()-before)*3/4, longestGrace) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(left):
			}
		}
		cancel(fmt.Errorf("%w: %v", ErrTimeout, timeout))
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// Final makes an error the last one: Poll returns it at once.
func Final(err error) error { return final{err} }

type final struct{ error }

func (f final) Unwrap() error { return f.error }

// Poll calls ok until it returns nil, or an error that is [Final]. When that takes longer than timeout, which is that of
// [WithTimeout], or ctx ends, it returns the last error, wrapped together with [ErrTimeout] or with the cause of ctx.
func Poll(ctx context.Context, timeout time.Duration, ok func() error) error {
	limited, cancel := WithTimeout(ctx, timeout)
	defer cancel()
	return poll(ctx, limited, ok)
}

// poll is Poll with a timeout in a context of ctx.
func poll(ctx, limited context.Context, ok func() error) error {
	began := time.Now()
	var last error
	for ended := false; ; {
		asked := time.Now()
		err := ok()
		if _, last := errors.AsType[final](err); err == nil || last {
			return err
		}
		// An error from an ended context is less useful than the one before.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if ended || ctx.Err() != nil {
			return errors.Join(last, context.Cause(limited))
		}
		// A short wait is noticed at once; a long one, or a question that takes long, does not keep the machine busy.
		pause := min(max(time.Since(began)/100, 5*time.Millisecond), 50*time.Millisecond)
		select {
		case <-limited.Done():
			ended = true // it asks once more: the last answer may be an old one
		case <-time.After(max(pause, min(time.Since(asked), time.Second))):
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
