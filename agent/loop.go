package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dupip/dupip/agent/capture"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/agent/report"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/internal/schedule"
)

// loop owns the parts that share the agent's state and passes events between them. All its methods
// except do run in one goroutine.
type loop struct {
	log      *slog.Logger
	table    *observe.Table
	detector *detector.Detector
	exchange *exchange.Exchange
	prober   *probe.Prober
	captures *capture.Set // nil if that is switched off
	report   *report.Report

	events  <-chan links.Event
	settled func(generation uint32) // see links.Watcher.Settled
	pods    *pods.Resolver
	store   *state.Store
	cluster Cluster // nil for an agent alone

	forgetting forgetting
	scanning   scanning
	host       hostProbes
	operations chan func()
	stopped    chan struct{}
	saveAt     time.Time // zero: everything is saved
	// detected takes the time from the second holder's first packet to the confirmation.
	detected func(took time.Duration)
	ready    func()
}

// maxNames is how many names of pods are handled before what interfaces have sent meanwhile.
const maxNames = 16

func (l *loop) run(ctx context.Context, records <-chan bpf.Record, frames <-chan bpf.Frame) error {
	defer close(l.stopped)
	var messages <-chan cluster.Message // nil blocks for ever
	if l.cluster != nil {
		messages = l.cluster.Messages()
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		// What an interface has sent counts where it is now, so that comes first: an answer proves nothing in a network that it has left.
		for range len(l.events) {
			l.update(<-l.events, time.Now())
		}
		// What pods have sent comes before what follows from other nodes' words: a pod that probes its address must not be probed.
		for range len(records) {
			l.record(<-records)
		}
		l.turn()
		timer.Reset(time.Until(l.next()))
		select {
		case <-ctx.Done():
			l.report.Close()
			l.save()
			return nil
		case record := <-records:
			l.record(record)
		case frame := <-frames:
			l.captures.Add(frame)
		case event := <-l.events:
			l.update(event, time.Now())
		case <-l.pods.Changed():
			for _, change := range l.pods.Changes(maxNames) {
				l.name(change, time.Now())
			}
		case message := <-messages:
			if query, ok := message.(cluster.Query); ok {
				l.report.Reply(query)
			} else {
				l.exchange.Receive(message, time.Now())
			}
		case operation := <-l.operations:
			operation()
		case <-timer.C:
			l.tick(time.Now())
		}
	}
}

// turn carries out what the last events require.
func (l *loop) turn() {
	l.exchange.Publish()
	l.act()
	l.forgetting.run()
}

// next returns when tick has something to do.
func (l *loop) next() time.Time {
	next := l.table.Next()
	for _, at := range []time.Time{l.exchange.NextTick(), l.prober.Next(), l.host.due(), l.saveAt} {
		next = schedule.Earlier(next, at)
	}
	return next
}

func (l *loop) tick(now time.Time) {
	l.exchange.Tick(now)
	l.table.Tick(now)
	l.prober.Run(now)
	if !l.saveAt.IsZero() && !l.saveAt.After(now) {
		l.save()
	}
}

func (l *loop) record(r bpf.Record) {
	if o, ok := l.table.Record(r); ok {
		l.observed(&o, time.Now())
	}
}

// logRefused logs why the detector dropped a sighting, by what it had refused before.
func (l *loop) logRefused(s *detector.Sighting, before map[string]uint64) {
	for reason, n := range l.detector.Refused() {
		if n != before[reason] {
			l.log.Debug("record dropped", "ip", s.Key.IP, "network", s.Key.Network, "interface", s.Holder.InterfaceName,
				"mac", s.Holder.MAC, "reason", reason)
		}
	}
}

// observed passes an observation to the other parts.
func (l *loop) observed(o *observe.Observation, now time.Time) {
	s := &o.Sighting
	switch o.Kind {
	case observe.Seen:
		l.prober.Observed(o.Interface, o.VLAN, s)
		if l.log.Enabled(context.Background(), slog.LevelDebug) {
			defer l.logRefused(s, l.detector.Refused())
		}
		l.exchange.Observe(*s, now)
	case observe.Tentative:
		l.prober.Tentative(o.Interface, s.Key.IP, o.VLAN, s.At)
	case observe.Withdrawn:
		l.saveWithin(saveInterval) // the state has who had the address
		l.exchange.Apply(l.detector.Withdraw(s.Key, s.Holder.ID, o.Reason, now), now)
	case observe.Gone:
		l.saveWithin(saveInterval)
		l.exchange.Apply(l.detector.WithdrawInterface(o.Interface, o.Reason, now), now)
	}
}

func (l *loop) observe(all []observe.Observation, now time.Time) {
	for i := range all {
		l.observed(&all[i], now)
	}
}

// update handles an event of the watcher.
func (l *loop) update(event links.Event, now time.Time) {
	wasReady := l.table.Ready()
	i, all := l.table.Update(event, now)
	if i != nil {
		l.saveWithin(saveInterval)
		l.settle(i)
		l.prober.Follow(probe.Interface{Ref: i.Ref, Holder: i.Holder, Link: i.Interface, Lost: i.Lost})
		for _, a := range l.scanning.take(i.Ref, i.View.Taken) { // before what the scan has found
			l.exchange.Probed(a, detector.ProbeRefusal{}, i.View.Taken)
		}
	}
	l.observe(all, now)
	switch {
	case i != nil:
		l.expect(i, now)
	case event.Kind == links.Removed:
		ref := detector.Interface{Ifindex: uint32(event.Interface.Index), Generation: event.Interface.Generation}
		l.prober.Forget(ref)
		delete(l.scanning, ref)
	}
	if !wasReady && l.table.Ready() {
		l.exchange.Ready(now)
		l.report.Started(now)
		l.ready()
	}
	l.prober.Run(now)
}

// expect passes the addresses that a pod should answer for to the prober.
func (l *loop) expect(i *observe.Interface, now time.Time) {
	l.prober.Expect(i.Ref, l.table.Configured(i), l.table.Left(i), now)
}

// settle tells the watcher when a pod is set up whose interface waits for that: CNI has its result once all plugins are done.
func (l *loop) settle(i *observe.Interface) {
	if i.State == links.Waiting && i.Pod.Result.Names(i.Name) {
		l.settled(i.Generation)
	}
}

// name sets the name of a pod.
func (l *loop) name(change pods.Change, now time.Time) {
	named, all := l.table.Name(change, now)
	l.observe(all, now)
	for _, i := range named {
		l.settle(i)
		l.expect(i, now)
		l.exchange.Apply(l.detector.Describe(i.Holder, func(key detector.Key, h *detector.Holder) {
			h.Pod, h.CreatedAt, h.Sandbox = i.Pod.Pod, i.Pod.CreatedAt, i.Pod.Sandbox
			h.Given = i.Given(key.IP)
		}, now), now)
	}
	l.saveWithin(saveInterval) // the state has the names of the holders
}

// act carries out the actions of the exchange, and those that follow.
func (l *loop) act() {
	for l.actOnce(); l.answerHost(time.Now()); l.actOnce() {
	}
}

func (l *loop) actOnce() {
	for a := l.exchange.Next(time.Now()); a != nil; a = l.exchange.Next(time.Now()) {
		switch a := a.(type) {
		case detector.Event:
			l.event(a)
		case exchange.Probe:
			l.probe(a, time.Now())
		case exchange.Ended:
			l.ended(a, time.Now())
		}
	}
}

// vlansOf returns the tags that packets of a network have on the interface of a holder, none if that is gone.
func (l *loop) vlansOf(h detector.Holder, network string) []bpf.VLAN {
	if i := l.table.Interface(h.Interface); i != nil && i.Holder == h.ID {
		return i.VLANs(network)
	}
	return nil
}

// event reports a change of a conflict. It comes before the probes that the change requires, so that their answers are
// captured.
func (l *loop) event(e detector.Event) {
	if l.captures != nil {
		l.captures.Update(e)
	}
	if e.Kind == detector.EventConfirmed {
		if !e.Restored && !e.Conflict.IsDrill() {
			l.detected(e.Conflict.ConfirmedAt.Sub(e.Conflict.SecondSeen))
		}
		l.pods.Relist() // the judgement depends on which sandboxes have stopped
		for _, b := range e.Conflict.Holders {
			if h := b.Holder; h.ID.Node == l.table.Host.Node && h.Pod == (detector.Pod{}) {
				l.pods.Renew(h.ID.Netns) // and on who they are
			}
		}
	}
	if e.Conflict.State == detector.Suspected {
		l.saveWithin(saveInterval)
	} else {
		l.saveWithin(saveDelay)
	}
	l.report.Publish(e)
}

// probe probes a holder of this node.
func (l *loop) probe(a exchange.Probe, now time.Time) {
	if a.Holder == l.table.Host {
		l.probeHost(a, now)
		return
	}
	refusal := detector.ProbeRefusal{Reason: "the interface is gone"}
	if i := l.table.Interface(a.Interface); i != nil {
		refusal.Reason = "the interface has left the network"
		if vlan, ok := i.VLAN(a.Key); ok {
			refusal = l.prober.Probe(a.Probe, vlan, a.ForOther, now)
			if refusal == (detector.ProbeRefusal{}) && i.Mute() != "" {
				l.scanning.add(a, now)
				return
			}
		}
	}
	l.exchange.Probed(a, refusal, now)
}

// configure applies a configuration, at the start and after each reload.
func (l *loop) configure(c *config.Config, now time.Time) {
	limits := c.Limits()
	l.detector.SetLimits(limits.Bindings, limits.BindingsPerInterface, limits.History)
	l.prober.Budget = probe.NewBudget(limits.VerifyPerSecond, limits.RefreshPerSecond)
	l.exchange.Apply(l.detector.SetShared(func(key detector.Key) bool { return c.Shared(key.IP) }, now), now)
	l.observe(l.table.Configure(c, now), now)
	l.exchange.Configure(func(network string) bool { return c.Scope(network) == config.Cluster }, now)
	for i := range l.table.All() {
		l.expect(i, now)
	}
	l.prober.Run(now)
}

// The delays before changes are saved. Suspicions and names have the longer one: most suspicions end
// sooner, and losing them does little harm.
const (
	saveDelay    = time.Second
	saveInterval = 10 * time.Second
)

// saveWithin saves the conflicts after wait at the latest.
func (l *loop) saveWithin(wait time.Duration) {
	if at := time.Now().Add(wait); l.saveAt.IsZero() || at.Before(l.saveAt) {
		l.saveAt = at
	}
}

// save passes the state to the store; it does not wait for the disk.
func (l *loop) save() {
	l.saveAt = time.Time{}
	s := state.State{Snapshot: l.detector.Snapshot(), Interfaces: l.table.Origins()}
	s.Books, s.Facts = l.report.Kept(s.Snapshot)
	l.store.Save(s)
}

// restore restores the conflicts of an earlier agent; the open ones are verified again.
func (l *loop) restore(snapshot detector.Snapshot) {
	now := time.Now()
	effects, dropped := l.detector.Restore(snapshot, now)
	if open, history := len(snapshot.Open), len(snapshot.History); open+history > 0 {
		l.log.Info("restored the conflicts of the previous agent; open ones are verified again",
			"open", open, "resolved", history, "unusable", dropped)
	}
	l.exchange.Apply(effects, now)
	l.saveWithin(saveDelay) // finds out early whether the directory can be written
}

var errStopped = errors.New("the agent is stopping")

// do runs f in the loop's goroutine and waits for it.
func (l *loop) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case l.operations <- func() { f(); close(done) }:
	case <-l.stopped:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done // the loop runs f to its end
	return nil
}
