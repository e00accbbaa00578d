package report

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
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

const (
	// maxLogged limits the holders in one log line, maxLoggedNodes the nodes and networks in a summary.
	maxLogged      = 8
	maxLoggedNodes = 5
	// burstTime is how long the events of a burst are counted, from the first on. More than burstEvents of them
	// have a summary.
	burstTime   = 10 * time.Second
	burstEvents = 10
)

// eventLog logs conflicts, within limits. Confirmations have their own limit, so that a pod whose conflicts come and
// go cannot keep another one out of the log, and so have drills. Suspicions are debug lines, which the agent's log bounds.
type eventLog struct {
	log *slog.Logger
	// after runs a function later, in the goroutine that owns the parts.
	after                    func(time.Duration, func())
	confirmed, other, drills *rate.Limiter
	leftOut                  uint64 // lines, since the start
	burst                    *burst // nil while nothing happens
}

// burst counts the events since the first one.
type burst struct {
	kinds           map[detector.EventKind]int
	nodes, networks map[string]int
	leftOut         int // lines
}

func newEventLog(log *slog.Logger, after func(time.Duration, func())) *eventLog {
	limiter := func() *rate.Limiter { return rate.NewLimiter(1, 20) }
	return &eventLog{log: log, after: after, confirmed: limiter(), other: limiter(), drills: limiter()}
}

func (e *eventLog) write(event *detector.Event) {
	level, limit, what := slog.LevelInfo, e.other, "conflict "
	switch {
	case event.Conflict.State == detector.Suspected:
		level, limit = slog.LevelDebug, nil
	case event.Conflict.IsDrill():
		if what, limit = "drill ", nil; !e.drills.Allow() {
			e.leftOut++
			return
		}
	case event.Kind == detector.EventConfirmed:
		level, limit = slog.LevelWarn, e.confirmed
	}
	if !e.log.Enabled(context.Background(), level) {
		return
	}
	if limit != nil && !e.count(event, limit.Allow()) {
		return
	}
	e.log.Log(context.Background(), level, what+string(event.Kind), conflictAttributes(event)...)
}

// count counts an event of the present burst, and returns whether it is logged.
func (e *eventLog) count(event *detector.Event, logged bool) bool {
	if e.burst == nil {
		e.burst = &burst{kinds: make(map[detector.EventKind]int), nodes: make(map[string]int), networks: make(map[string]int)}
		e.after(burstTime, e.endBurst)
	}
	b := e.burst
	b.kinds[event.Kind]++
	b.networks[event.Conflict.Key.Network]++
	nodes := make(map[string]bool)
	for _, holder := range event.Conflict.Holders {
		nodes[cluster.NodeName(holder.Holder.ID.Node)] = true
	}
	for node := range nodes {
		b.nodes[node]++
	}
	if !logged {
		b.leftOut++
		e.leftOut++
	}
	return logged
}

// endBurst logs a summary, unless so little happened that the lines themselves are one.
func (e *eventLog) endBurst() {
	b := e.burst
	e.burst = nil
	if b == nil {
		return
	}
	confirmed, changed, resolved := b.kinds[detector.EventConfirmed], b.kinds[detector.EventChanged], b.kinds[detector.EventResolved]
	if confirmed+changed+resolved <= burstEvents && b.leftOut == 0 {
		return
	}
	level := slog.LevelInfo
	if confirmed > 0 {
		level = slog.LevelWarn
	}
	e.log.Log(context.Background(), level, "many events of conflicts; \"dupip conflicts\" lists all that are open",
		"confirmed", confirmed, "changed", changed, "resolved", resolved, "within", burstTime, "linesLeftOut", b.leftOut,
		"nodes", most(b.nodes), "networks", most(b.networks))
}

// most lists the names with the highest counts.
func most(counts map[string]int) string {
	var parts []string
	for n, name := range slices.SortedFunc(maps.Keys(counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x, y))
	}) {
		if n == maxLoggedNodes {
			return fmt.Sprintf("%s and %d more", strings.Join(parts, ", "), len(counts)-n)
		}
		parts = append(parts, fmt.Sprintf("%s (%d)", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

func conflictAttributes(event *detector.Event) []any {
	c := &event.Conflict
	attributes := []any{"id", c.ID, "ip", c.Key.IP, "network", c.Key.Network, "scope", c.Scope}
	if event.Reason != "" {
		attributes = append(attributes, "reason", event.Reason)
	}
	attributes = appendHolders(attributes, "holder", "moreHolders", c.Holders)
	return appendHolders(attributes, "lost", "moreLost", event.Lost)
}

// appendHolders appends a group for each of some holders: holder1, holder2 and so on.
func appendHolders(attributes []any, group, more string, holders []detector.Binding) []any {
	for n, b := range holders {
		if n == maxLogged {
			return append(attributes, more, len(holders)-n)
		}
		h := &b.Holder
		attrs := []any{
			"node", cluster.NodeName(h.ID.Node), "pod", h.Pod.String(), "interface", h.InterfaceName,
			"netns", h.NetnsName, "mac", h.MAC.String(), "since", b.FirstSeen.Round(0),
		}
		if b.Gone {
			attrs = append(attrs, "gone", true)
		}
		attributes = append(attributes, slog.Group(fmt.Sprint(group, n+1), attrs...))
	}
	return attributes
}
