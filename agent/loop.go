package agent

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/solicit"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// maxEarly bounds the records held back until their interface is announced.
	maxEarly = 4096
	// earlyFor is how long they are held: longer than the search for a netns takes.
	earlyFor = 15 * time.Second
	// maxQueue bounds the records of one interface that wait for a look at its netns.
	maxQueue = 256
	// maxAsking bounds the queries of other nodes whose routes are asked for at one time.
	maxAsking = 4
)

// The reasons for which the loop drops a record, or puts a question off.
const (
	dropEarly     = "early"
	dropGone      = "interface gone"
	dropVLANs     = "too many VLANs"
	dropLook      = "waiting for a look"
	dropAddresses = "too many addresses"
	dropRate      = "solicitation rate"
	dropQuestions = "questions of other nodes"
)

// loop owns all state of the agent. Its methods run in one goroutine, but for
// those of ops.go, which hand functions to it.
type loop struct {
	log      *slog.Logger
	node     Node
	config   *config.Config
	observer *bpf.Observer
	watcher  *links.Watcher
	sender   *solicit.Sender
	pods     *pods.Resolver
	store    *state.Store
	detector *detector.Detector
	host     detector.HolderID
	mac      [6]byte // the source of our questions
	echoes   echoes

	// cluster is nil for an agent alone; messages then never has any.
	cluster   Cluster
	messages  <-chan cluster.Message
	questions questions      // of other nodes
	told      map[string]int // addresses shared with other nodes, as told
	pairsAt   time.Time      // zero: nothing new to tell
	asking    chan struct{}  // a slot for each query whose routes the kernel is asked for

	operations chan func()
	stopped    chan struct{}

	interfaces    map[detector.Interface]*podInterface
	early         []bpf.Record
	hostAddresses []links.HostAddress // as listed
	hostBindings  []hostAddress
	unobserved    []links.Interface
	ready         bool
	readyAt       time.Time

	verifyRate, refreshRate *rate.Limiter
	// Confirmations have a log limit of their own, so that no pod's ups and downs
	// keep another's out of the log.
	confirmedLog, otherLog *rate.Limiter
	unlogged               int
	floodLog               *rate.Limiter

	nextSample  time.Time
	goneRefused bpf.Counters // of interfaces that are no more
	saveAt      time.Time    // zero: all is saved

	watches   map[chan api.ConflictEvent]bool
	dropped   map[string]uint64 // by the reasons above
	solicited map[detector.Purpose]uint64
	// confirmed is told how long the way from the second holder's first packet took.
	confirmed func(took time.Duration)
	// effects waits for its turn while others are carried out.
	effects []detector.Effects
	busy    bool
}

func (l *loop) init() {
	l.operations = make(chan func())
	l.stopped = make(chan struct{})
	l.interfaces = make(map[detector.Interface]*podInterface)
	l.watches = make(map[chan api.ConflictEvent]bool)
	l.dropped = map[string]uint64{
		dropEarly: 0, dropGone: 0, dropVLANs: 0, dropLook: 0, dropAddresses: 0, dropRate: 0,
		dropQuestions: 0,
	}
	l.told = make(map[string]int)
	l.asking = make(chan struct{}, maxAsking)
	l.solicited = make(map[detector.Purpose]uint64)
	l.confirmedLog = rate.NewLimiter(10, 50)
	l.otherLog = rate.NewLimiter(5, 50)
	l.floodLog = rate.NewLimiter(rate.Every(time.Minute), 10)
	l.nextSample = time.Now().Add(sampleEvery)
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
			l.save()
			return nil
		case record := <-records:
			l.record(record)
			// What is there already is cheaper now than by a turn each.
			for range len(records) {
				l.record(<-records)
			}
		case event := <-l.watcher.Events():
			l.interfaceEvent(event)
		case change := <-l.pods.Changes():
			l.named(change)
		case message := <-l.messages:
			l.heard(message)
		case operation := <-l.operations:
			operation()
		case <-timer.C:
			l.apply(l.detector.Tick(time.Now()))
			l.solicitWanted()
			if next := l.nextEarly(); !next.IsZero() && !next.After(time.Now()) {
				l.replayEarly()
			}
			now := time.Now()
			l.advanceQuestions(now)
			if !l.pairsAt.IsZero() && !l.pairsAt.After(now) {
				l.countPairs()
			}
			if !l.nextSample.After(now) {
				l.sampleRefused(now)
			}
			if !l.saveAt.IsZero() && !l.saveAt.After(now) {
				l.save()
			}
		}
		l.lease()
		timer.Reset(time.Until(l.next()))
	}
}

// next returns when the loop has something to do without being told.
func (l *loop) next() time.Time {
	next := l.nextSample
	for _, at := range []time.Time{l.detector.Next(), l.nextWanted(), l.nextEarly(), l.questions.next(), l.saveAt, l.pairsAt} {
		next = earliest(next, at)
	}
	return next
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
		l.dropped[dropEarly]++
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
			l.dropped[dropGone]++
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
