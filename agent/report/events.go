package report

import (
	"cmp"
	"context"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// watchBuffer is how many events a slow watcher may be behind.
const watchBuffer = 1024

// WatchConflicts implements [api.Backend].
func (r *Report) WatchConflicts(ctx context.Context) (<-chan document.ConflictEvent, error) {
	var watch chan document.ConflictEvent
	err := r.Do(ctx, func() {
		open := r.Detector.Conflicts(false)
		view := r.newView(open)
		watch = make(chan document.ConflictEvent, len(open)+watchBuffer)
		for _, c := range open {
			watch <- document.ConflictEvent{Type: c.State.String(), At: cmp.Or(c.ConfirmedAt, c.SuspectedAt).Round(0), Conflict: view.conflict(c)}
		}
		r.watches[watch] = true
	})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() {
		// If the agent is stopping, Close closes the watch.
		_ = r.Do(context.Background(), func() { r.closeWatch(watch) })
	})
	return watch, nil
}

// Close ends all watches and logs what has not been logged yet. Call it in the goroutine that owns the parts.
func (r *Report) Close() {
	for watch := range r.watches {
		r.closeWatch(watch)
	}
	r.events.endBurst()
}

func (r *Report) closeWatch(watch chan document.ConflictEvent) {
	if r.watches[watch] {
		delete(r.watches, watch)
		close(watch)
	}
}

// Publish sends a change of a conflict to the watches and the log. A watch whose buffer is full is
// closed. Call it in the goroutine that owns the parts.
func (r *Report) Publish(event detector.Event) {
	r.cause(event)
	if len(r.watches) > 0 {
		doc := document.ConflictEvent{
			Type: string(event.Kind), At: event.At.Round(0), Reason: event.Reason, Conflict: r.recentView().conflict(event.Conflict),
		}
		for watch := range r.watches {
			select {
			case watch <- doc:
			default:
				r.closeWatch(watch)
			}
		}
	}
	r.reportConflict(event.Conflict)
	r.events.write(&event)
}
