package report

import (
	"context"
	"log/slog"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// watchBuffer is how many events a slow watcher may be behind.
	watchBuffer = 1024
	// maxLogged limits the holders in one log line.
	maxLogged = 8
)

// WatchConflicts implements [api.Backend].
func (r *Report) WatchConflicts(ctx context.Context) (<-chan api.ConflictEvent, error) {
	var watch chan api.ConflictEvent
	err := r.Do(ctx, func() {
		open := r.Detector.Conflicts(false)
		watch = make(chan api.ConflictEvent, len(open)+watchBuffer)
		for _, c := range open {
			at := c.SuspectedAt
			if c.State == detector.Confirmed {
				at = c.ConfirmedAt
			}
			watch <- api.ConflictEvent{Type: c.State.String(), At: at.Round(0), Conflict: api.NewConflict(c)}
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

// Close ends all watches. Call it in the goroutine that owns the parts.
func (r *Report) Close() {
	for watch := range r.watches {
		r.closeWatch(watch)
	}
}

func (r *Report) closeWatch(watch chan api.ConflictEvent) {
	if r.watches[watch] {
		delete(r.watches, watch)
		close(watch)
	}
}

// Publish sends a change of a conflict to the watches and the log. A watch whose buffer is full is
// closed. Call it in the goroutine that owns the parts.
func (r *Report) Publish(event detector.Event) {
	if len(r.watches) > 0 {
		document := api.ConflictEvent{
			Type: event.Kind.String(), At: event.At.Round(0), Reason: event.Reason, Conflict: api.NewConflict(event.Conflict),
		}
		for watch := range r.watches {
			select {
			case watch <- document:
			default:
				r.closeWatch(watch)
			}
		}
	}
	r.reportConflict(event)
	r.events.write(r.Log, event, r.Self.NodeID())
}

// eventLog logs conflicts, within limits. Confirmations have their own limit, so that a pod whose
// suspicions come and go cannot keep another conflict out of the log.
type eventLog struct {
	confirmed, other *rate.Limiter
	skipped          int
}

func (e *eventLog) write(log *slog.Logger, event detector.Event, self string) {
	level, limit := slog.LevelInfo, e.other
	switch {
	case event.Kind == detector.EventConfirmed:
		level, limit = slog.LevelWarn, e.confirmed
	case event.Conflict.State == detector.Suspected:
		level = slog.LevelDebug
	}
	if !log.Enabled(context.Background(), level) {
		return
	}
	if !limit.Allow() {
		e.skipped++
		return
	}
	if e.skipped > 0 {
		log.Warn("rate limit: log lines about conflicts skipped; \"dupip conflicts\" lists all", "count", e.skipped)
		e.skipped = 0
	}
	log.Log(context.Background(), level, "conflict "+event.Kind.String(), conflictAttributes(event, self)...)
}

func conflictAttributes(event detector.Event, self string) []any {
	c := event.Conflict
	attributes := []any{"id", c.ID, "ip", c.Key.IP, "network", c.Key.Network, "scope", c.Scope}
	if event.Reason != "" {
		attributes = append(attributes, "reason", event.Reason)
	}
	for n, holder := range c.Holders {
		if n == maxLogged {
			attributes = append(attributes, "moreHolders", len(c.Holders)-n)
			break
		}
		attrs := []any{
			"pod", holder.Holder.Pod.String(), "interface", holder.Holder.InterfaceName,
			"netns", holder.Holder.NetnsName, "mac", holder.Holder.MAC.String(), "since", holder.FirstSeen.Round(0),
		}
		if node := holder.Holder.ID.Node; node != self {
			attrs = append([]any{"node", cluster.NodeName(node)}, attrs...)
		}
		attributes = append(attributes, slog.Group("holder"+string(rune('1'+n)), attrs...))
	}
	return attributes
}
