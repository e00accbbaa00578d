package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/config"
	agentmetrics "github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/report/collect"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/cmd/reporter/books"
	"github.com/dupip/dupip/cmd/reporter/events"
	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/cmd/reporter/lead"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/gossip"
)

const (
	// tick is how often the loop looks whether there is something to write.
	tick = 200 * time.Millisecond
	// membersEvery is how often it looks whose agents are alive.
	membersEvery = 10 * time.Second
	// After a report of a conflict the members are read again if the last reading is older than membersAgain: the judgement depends on them.
	membersAgain = time.Second
	// findingsEvery is how often the findings in the books make Events, at most.
	findingsEvery = 2 * time.Second
	// maxExisting bounds the Events that are read when leading begins.
	maxExisting = 20_000
	// readAgain is how long the reporter waits if the Events cannot be read; after maxUnread failures it begins without them.
	readAgain, maxUnread = 5 * time.Second, 3
	// logEvery is how often a write that failed is logged: the API server can refuse thousands.
	logEvery = 10 * time.Second
	// stale is how old the last sign of life of a part may be.
	stale = 30 * time.Second
)

// reporter is the running program. The loop owns the planner.
type reporter struct {
	log       *slog.Logger
	gossip    *gossip.Gossip
	api       *kube.Client
	election  *lead.Election
	planner   *events.Planner
	metrics   *metrics
	documents *documents
	books     *books.Books

	unbook   func() // ends the reading of books; nil while this replica does not lead
	busy     bool
	leading  bool
	results  chan func() // of the one request under way
	looked   time.Time
	found    time.Time    // when the findings in the books were looked at last
	reported bool         // conflicts were, since then
	retry    time.Time    // when the Events may be read again
	unread   int          // how often that failed since this replica has the Lease
	logged   time.Time    // when a write that failed was logged last
	silent   int          // how many have failed since then
	waiting  atomic.Bool  // this replica has the Lease and does not write yet
	turned   atomic.Int64 // when the loop turned last, Unix seconds
	agents   atomic.Int64 // that are alive
}

// run runs the program until ctx ends.
func (s *settings) run(ctx context.Context) error {
	log, err := s.check()
	if err != nil {
		return err
	}
	_, configured, err := config.Open(config.Options{Path: s.config})
	if err != nil {
		return err
	}
	rules := collect.Rules(configured)
	names, auto, err := books.Parse(s.books)
	if err != nil {
		return err
	}
	server, err := kube.InCluster()
	if err != nil {
		return err
	}
	listener, err := agentmetrics.Listen(s.metrics)
	if err != nil {
		return err
	}
	// Loopback only: a port-forward is what proves a right to read everything.
	local, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(api.ReporterPort)))
	if err != nil {
		return errors.Join(fmt.Errorf("opening the port of the documents: %w", err), listener.Close())
	}
	g, err := s.join(log)
	if err != nil {
		return errors.Join(err, listener.Close(), local.Close())
	}
	r := &reporter{
		log: log, gossip: g, api: server, metrics: newMetrics(), results: make(chan func(), 1),
		election: &lead.Election{API: server, Namespace: s.namespace, Name: s.name, Identity: s.members.Node + "_" + s.members.Boot},
		planner:  events.New(s.members.Node, cli.Plugin(s.namespace), s.renew, rules),
	}
	r.books = books.New(books.Options{Log: log, API: server, Names: names, Auto: auto, Nodes: g, Rules: rules, Answers: r.answered})
	r.documents = newDocuments(cluster.Member{Name: s.members.Node, Boot: s.members.Boot, Role: cluster.Reporter}, g, rules, r.books, r.election.Leader)
	r.planner.About = r.books.About
	r.metrics.addBooks(r.books.Stats)
	// The parts that ctx ends; gossip, and with it the process, if one of them fails.
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return g.Run(ctx) })
	parts.Go(func() error { return agentmetrics.Serve(ctx, listener, r.pages(), log) })
	parts.Go(func() error { return api.Serve(ctx, local, r.documents.handler(cli.Plugin(s.namespace)), log) })
	if s.acks != "" {
		told := &acks{log: log, api: server, namespace: s.namespace, name: s.acks, ask: g.Query, leads: func() bool { return time.Now().Before(r.election.Until()) }}
		parts.Go(func() error { told.run(ctx); return nil })
	}
	candidate := make(chan struct{})
	go func() { defer close(candidate); r.election.Run(ctx) }()
	r.loop(ctx)
	if r.unbook != nil {
		r.unbook()
	}
	<-candidate
	release, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer done()
	if err := r.election.Release(release); err != nil {
		log.Warn("the Lease was not released; another replica takes it in 15 s", "error", err)
	}
	return parts.Wait()
}

// loop passes reports to the planner and makes the requests that it wants, one at a time.
func (r *reporter) loop(ctx context.Context) {
	for ticks := time.Tick(tick); ; {
		select {
		case <-ctx.Done():
			if r.busy {
				(<-r.results)()
			}
			return
		case m := <-r.gossip.Messages():
			if report, ok := m.(cluster.Report); ok {
				r.take(report, time.Now())
			}
			continue
		case apply := <-r.results:
			r.busy = false
			apply()
		case <-ticks:
		}
		r.turn(ctx, time.Now())
	}
}

// take takes what an agent reports.
func (r *reporter) take(report cluster.Report, now time.Time) {
	if s := report.Summary; s != nil {
		r.planner.Summary(report.Node, *s)
		r.documents.summarize(report.Node, *s, now)
		r.books.Summary(report.Node, *s)
		return
	}
	conflict, err := document.DecodeReport(report.Conflict, report.Node, report.At)
	if err != nil {
		r.metrics.refused.Inc()
		r.log.Debug("a report was refused", "error", err)
		return
	}
	r.reported = true
	r.planner.Conflict(report, conflict, now)
}

// turn begins the next request, if there is one to make.
func (r *reporter) turn(ctx context.Context, now time.Time) {
	r.turned.Store(now.Unix())
	if age := now.Sub(r.looked); age >= membersEvery || r.reported && age >= membersAgain || r.agents.Load() == 0 {
		r.looked, r.reported = now, false
		members := r.gossip.Members()
		r.agents.Store(int64(r.planner.Members(members, now)))
		r.documents.forget(members)
		r.books.Members(members)
	}
	until := r.election.Until()
	holds := now.Before(until)
	if !holds {
		r.unread = 0
	}
	if r.leading && !holds {
		r.leading = false
		r.planner.Follow()
		r.unbook()
		r.log.Info("another replica may write Events now")
	}
	r.waiting.Store(holds && !r.leading)
	if r.leading && now.Sub(r.found) >= findingsEvery {
		r.found = now
		r.planner.Findings(r.books.Findings().Findings)
	}
	if !r.busy {
		if holds && !r.leading && !now.Before(r.retry) {
			r.begin(ctx, until)
		} else if w := r.planner.Next(now); w != nil {
			r.write(ctx, w, until)
		}
	}
	r.metrics.set(r.planner.Stats(), r.leading, int(r.agents.Load()))
	r.metrics.judgements.Store(new(r.planner.Judgements(now)))
}

// request makes a request in the background, if this replica may still write then, and applies its result in the loop.
func (r *reporter) request(ctx context.Context, until time.Time, do func(context.Context) func()) {
	r.busy = true
	go func() {
		ctx, cancel := context.WithDeadline(ctx, until.Add(lead.Margin))
		defer cancel()
		r.results <- do(ctx)
	}()
}

// begin reads what others have written. The Lease bounds the time that it takes.
func (r *reporter) begin(ctx context.Context, until time.Time) {
	r.request(ctx, until, func(requesting context.Context) func() {
		existing, err := r.api.Events(requesting, events.Controller, maxExisting)
		return func() {
			if err != nil {
				r.metrics.failed.Inc()
				if r.unread++; r.unread < maxUnread {
					r.retry = time.Now().Add(readAgain)
					r.log.Warn("reading Events failed, trying again", "after", readAgain, "error", err)
					return
				}
				// To know them saves requests: an Event that is made again is found there.
				r.metrics.unread.Inc()
				r.log.Warn("reading Events failed, this replica begins without the others and counts their series from the beginning",
					"read", len(existing), "error", err)
			}
			r.leading = true
			r.planner.Lead(existing, time.Now())
			r.readBooks(ctx)
			r.log.Info("this replica writes Events", "present", len(existing))
		}
	})
}

// write makes one Event, or renews it.
func (r *reporter) write(ctx context.Context, w *events.Write, until time.Time) {
	r.request(ctx, until, func(ctx context.Context) func() {
		err := ctx.Err()
		if err == nil {
			err = r.api.WriteEvent(ctx, w.Event)
		}
		return func() { r.wrote(w, err, time.Now()) }
	})
}

// wrote notes the result of a write.
func (r *reporter) wrote(w *events.Write, err error, now time.Time) {
	if r.planner.Done(w, err, now) {
		r.metrics.written.WithLabelValues(w.Event.Reason).Inc()
		return
	}
	r.metrics.failed.Inc()
	if now.Sub(r.logged) < logEvery {
		r.silent++
		return
	}
	r.log.Warn("writing an Event failed", "reason", w.Event.Reason, "namespace", w.Event.Metadata.Namespace, "about", w.Event.Regarding.Name,
		"error", err, "notLogged", r.silent)
	r.logged, r.silent = now, 0
}

// healthy returns an error if the loop stands still.
func (r *reporter) healthy() error {
	if age := time.Since(time.Unix(r.turned.Load(), 0)); age > stale {
		return errors.New("the loop stands still")
	}
	return nil
}

// ready returns an error while the reporter has no agents or no API server, or has the Lease and does not write yet. A replica
// that waits for the Lease is ready.
func (r *reporter) ready() error {
	if r.agents.Load() == 0 {
		return errors.New("no agent is reached: check --join, --cluster and the gossip key")
	}
	if at, err := r.election.State(); time.Since(at) > stale {
		return fmt.Errorf("the API server does not answer: %w", cmp.Or(err, errors.New("not since the start")))
	}
	if r.waiting.Load() {
		return errors.New("this replica has the Lease and does not write yet: it reads which Events are there; see its log")
	}
	return r.healthy()
}
