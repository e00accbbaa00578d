package metrics

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// answerTime is how long a source may take.
	answerTime = 5 * time.Second
	// shareTime is how long an answer is good for others: whoever can reach the port
	// must not be able to keep the agent's loop busy.
	shareTime = 100 * time.Millisecond
)

var errNoAnswer = errors.New("no answer within " + answerTime.String())

// question is asked by many at once and answered once: there is never more than one
// call of ask, however long that takes.
type question[T any] struct {
	ask func(context.Context) (T, error)

	mu     sync.Mutex
	latest *answer[T]
}

// answer is one call of ask. value and err may be read once done is closed.
type answer[T any] struct {
	begun   time.Time
	expired <-chan struct{} // closed when the time is up, and some time after done
	done    chan struct{}
	value   T
	err     error
}

// put returns the answer, an error of the source, one that says that it takes too
// long, or that of ctx.
func (q *question[T]) put(ctx context.Context) (T, error) {
	a := q.current(ctx)
	var failure error
	select {
	case <-a.done:
	case <-a.expired:
		failure = errNoAnswer
	case <-ctx.Done():
		failure = ctx.Err()
	}
	select {
	case <-a.done:
		return a.value, a.err
	default:
		var none T
		return none, failure
	}
}

// current returns an answer that is under way or still fresh, or asks.
func (q *question[T]) current(ctx context.Context) *answer[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a := q.latest; a != nil {
		select {
		case <-a.done:
			if time.Since(a.begun) < shareTime {
				return a
			}
		default:
			return a
		}
	}
	// Others may wait for the answer when the one who asked first is gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	a := &answer[T]{begun: time.Now(), expired: ctx.Done(), done: make(chan struct{})}
	q.latest = a
	go func() {
		defer cancel()
		defer close(a.done)
		a.value, a.err = q.ask(ctx)
	}()
	return a
}
