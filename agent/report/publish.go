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
	// watchBuffer is how many events a slow watch may be behind.
	watchBuffer = 1024
	// maxLogged bounds the holders in one log line.
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
		// Once the agent stops, Close has closed the watch.
		_ = r.Do(context.Background(), func() { r.closeWatch(watch) })
	})
	return watch, nil
}

// Close ends all watches. It is for the goroutine that owns the parts.
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

// Publish sends a step of a conflict to the watches and the log. It is for the goroutine that
// owns the parts. A watch that has no room is closed.
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
	r.events.write(r.Log, event, r.Self.NodeID())
}

// eventLog writes conflicts to the log, within limits. Confirmations have a limit of their own,
// so that one pod's ups and downs keep no other's conflict out of the log.
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
		log.Warn("left out log lines about conflicts, see \"dupip conflicts\"", "count", e.skipped)
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
		who := []any{
			"pod", holder.Holder.Pod.String(), "interface", holder.Holder.InterfaceName,
			"netns", holder.Holder.NetnsName, "mac", holder.Holder.MAC.String(), "since", holder.FirstSeen.Round(0),
		}
		if node := holder.Holder.ID.Node; node != self {
			who = append([]any{"node", cluster.NodeName(node)}, who...)
		}
		attributes = append(attributes, slog.Group("holder"+string(rune('1'+n)), who...))
	}
	return attributes
}
