package agent

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/solicit"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

const (
	// maxEarly bounds the records held back until their interface is announced.
	maxEarly = 4096
	// earlyFor is how long they are held: longer than the search for a netns takes.
	earlyFor = 15 * time.Second
	// maxQueue bounds the records of one interface that wait for a look at its netns.
	maxQueue = 256
)

// loop owns all state of the agent. Its methods run in one goroutine, but for
// those of ops.go, which hand functions to it.
type loop struct {
	log      *slog.Logger
	node     Node
	observer *bpf.Observer
	watcher  *links.Watcher
	sender   *solicit.Sender
	detector *detector.Detector
	host     detector.HolderID

	operations chan func()
	stopped    chan struct{}

	interfaces    map[detector.Interface]*podInterface
	early         []bpf.Record
	hostAddresses []links.HostAddress
	unsupported   []links.Interface
	ready         bool

	verifyRate, refreshRate *rate.Limiter
	// Confirmations have a log limit of their own, so that no pod's ups and downs
	// keep another's out of the log.
	confirmedLog, otherLog *rate.Limiter
	unlogged               int

	watches map[chan api.ConflictEvent]bool
	dropped map[string]uint64
	// effects waits for its turn while others are carried out.
	effects []detector.Effects
	busy    bool
}

func (l *loop) init() {
	l.operations = make(chan func())
	l.stopped = make(chan struct{})
	l.interfaces = make(map[detector.Interface]*podInterface)
	l.watches = make(map[chan api.ConflictEvent]bool)
	l.dropped = make(map[string]uint64)
	l.verifyRate = rate.NewLimiter(verifyPerSecond, verifyBurst)
	l.refreshRate = rate.NewLimiter(refreshPerSecond, refreshBurst)
	l.confirmedLog = rate.NewLimiter(10, 50)
	l.otherLog = rate.NewLimiter(5, 50)
}

func (l *loop) run(ctx context.Context, records <-chan bpf.Record) error {
	defer close(l.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			for watch := range l.watches {
				close(watch)
			}
			return nil
		case record := <-records:
			l.record(record)
			// What is there already is cheaper now than by a turn each.
			for range len(records) {
				l.record(<-records)
			}
		case event := <-l.watcher.Events():
			l.interfaceEvent(event)
		case operation := <-l.operations:
			operation()
		case <-timer.C:
			l.apply(l.detector.Tick(time.Now()))
			l.solicitWanted()
			if next := l.nextEarly(); !next.IsZero() && !next.After(time.Now()) {
				l.replayEarly()
			}
		}
		next := earliest(earliest(l.detector.Next(), l.nextWanted()), l.nextEarly())
		if next.IsZero() {
			next = time.Now().Add(time.Hour)
		}
		timer.Reset(time.Until(next))
	}
}

// earliest returns the earlier of two times, ignoring zero ones.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// record handles one record, or holds it back where more has to be known first.
func (l *loop) record(r bpf.Record) {
	i := l.interfaces[detector.Interface{Ifindex: r.Ifindex, Generation: r.Generation}]
	switch {
	case i != nil:
		l.classify(i, r)
	case len(l.early) < maxEarly:
		l.early = append(l.early, r)
	default:
		l.dropped["early"]++
	}
}

// replayEarly handles the records that came before their interface was announced,
// and forgets those whose interface never was.
func (l *loop) replayEarly() {
	waiting := l.early
	l.early = nil
	limit := time.Now().Add(-earlyFor)
	for _, r := range waiting {
		if timeOf(r.Time).After(limit) {
			l.record(r)
		} else {
			l.dropped["interface gone"]++
		}
	}
}

// nextEarly returns when the oldest of the records held back is to be forgotten, zero
// for never: an interface that went before it was announced sends no event.
func (l *loop) nextEarly() time.Time {
	if len(l.early) == 0 {
		return time.Time{}
	}
	return timeOf(l.early[0].Time).Add(earlyFor)
}

// apply carries out what the detector wants. What that leads to waits until it is
// done, so the detector's order is kept.
func (l *loop) apply(effects detector.Effects) {
	if len(effects.Solicit) == 0 && len(effects.Events) == 0 {
		return
	}
	l.effects = append(l.effects, effects)
	if l.busy {
		return
	}
	l.busy = true
	for len(l.effects) > 0 {
		next := l.effects[0]
		l.effects = l.effects[1:]
		for _, event := range next.Events {
			l.publish(event)
		}
		for _, s := range next.Solicit {
			l.solicit(s)
		}
	}
	l.busy = false
}

// publish tells watches and the log of a conflict's step.
func (l *loop) publish(event detector.Event) {
	if len(l.watches) > 0 {
		l.send(api.ConflictEvent{
			Type:     event.Kind.String(),
			At:       event.At.Round(0),
			Reason:   event.Reason,
			Conflict: api.NewConflict(l.node.Name, event.Conflict),
		})
	}
	level, limit := slog.LevelInfo, l.otherLog
	switch event.Kind {
	case detector.EventConfirmed:
		level, limit = slog.LevelWarn, l.confirmedLog
	case detector.EventSuspected, detector.EventFaded:
		level = slog.LevelDebug
	}
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	if !limit.Allow() {
		l.unlogged++
		return
	}
	if l.unlogged > 0 {
		l.log.Warn("left out log lines about conflicts, see \"dupip conflicts\"", "count", l.unlogged)
		l.unlogged = 0
	}
	l.log.Log(context.Background(), level, "conflict "+event.Kind.String(), conflictAttributes(event)...)
}

func conflictAttributes(event detector.Event) []any {
	c := event.Conflict
	attributes := []any{"id", c.ID, "ip", c.Key.IP, "network", c.Key.Network, "scope", c.Scope}
	if event.Reason != "" {
		attributes = append(attributes, "reason", event.Reason)
	}
	const maxLogged = 8
	for n, holder := range c.Holders {
		if n == maxLogged {
			attributes = append(attributes, "moreHolders", len(c.Holders)-n)
			break
		}
		attributes = append(attributes, slog.Group("holder"+string(rune('1'+n)),
			"interface", holder.Holder.InterfaceName, "netns", holder.Holder.NetnsName,
			"mac", holder.Holder.MAC.String(), "since", holder.FirstSeen.Round(0)))
	}
	return attributes
}
