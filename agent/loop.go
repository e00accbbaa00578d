package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/capture"
	"github.com/dupip/dupip/agent/core"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/report"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/agent/wire"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// loop owns the core and the parts that share the agent's state, and passes events between them. All its methods except do run in one
// goroutine.
type loop struct {
	*core.Core
	captures *capture.Set // nil if that is switched off
	report   *report.Report

	events   <-chan links.Event
	pods     *pods.Resolver
	store    *state.Store
	heard    <-chan wire.Heard
	listen   func(devices []string, own []netip.Addr) // [wire.Wire.Listen], nil if nothing is listened to
	segments []string                                 // that are listened to
	cluster  Cluster                                  // nil for an agent alone

	operations chan func()
	stopped    chan struct{}
	// detected takes the time from the second holder's first packet to the confirmation.
	detected func(took time.Duration)
	ready    func()
}

// newLoop returns a loop whose core has these options, with the loop's own.
func newLoop(opts core.Options) *loop {
	l := &loop{operations: make(chan func()), stopped: make(chan struct{})}
	opts.Now, opts.Event, opts.Ready, opts.Save = time.Now, l.event, l.begin, l.save
	l.Core = core.New(opts)
	return l
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
			l.update(<-l.events)
		}
		// What pods have sent comes before what follows from other nodes' words: a pod that probes its address must not be probed.
		for range len(records) {
			l.Record(<-records)
		}
		l.Turn()
		timer.Reset(time.Until(l.Next()))
		select {
		case <-ctx.Done():
			l.report.Close()
			l.SaveNow()
			return nil
		case record := <-records:
			l.Record(record)
		case frame := <-frames:
			l.captures.Add(frame)
		case event := <-l.events:
			l.update(event)
		case heard := <-l.heard:
			l.Heard(heard.Device, heard.IP, heard.MAC, heard.At)
		case <-l.pods.Changed():
			for _, change := range l.pods.Changes(maxNames) {
				l.Name(change)
			}
		case message := <-messages:
			if query, ok := message.(cluster.Query); ok {
				l.report.Reply(query)
			} else {
				l.Exchange.Receive(message, time.Now())
			}
		case operation := <-l.operations:
			operation()
		case <-timer.C:
			l.Tick()
		}
	}
}

// update takes an event of the watcher.
func (l *loop) update(event links.Event) {
	l.Update(event)
	if segments := l.Table.Own.Segments(); l.listen != nil && (event.Kind == links.HostAddresses || !slices.Equal(segments, l.segments)) {
		l.segments = segments
		l.listen(segments, l.OnSegment())
	}
}

// begin notes that everything is known that was there at the start.
func (l *loop) begin() {
	l.report.Started(time.Now())
	l.ready()
}

// vlansOf returns the tags that packets of a network have on the interface of a holder, none if that is gone.
func (l *loop) vlansOf(h detector.Holder, network string) []bpf.VLAN {
	if i := l.Table.Interface(h.Interface); i != nil && i.Holder == h.ID {
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
			if h := b.Holder; h.ID.Node == l.Table.Host.Node && h.Pod == (detector.Pod{}) {
				l.pods.Renew(h.ID.Netns) // and on who they are
			}
		}
	}
	l.report.Publish(e)
}

// save passes the state to the store; it does not wait for the disk.
func (l *loop) save() {
	s := state.State{Snapshot: l.Detector.Snapshot(), Interfaces: l.Table.Origins.Saved(l.Table.Ready())}
	s.Books, s.Facts, s.Acks = l.report.Kept(s.Snapshot)
	l.store.Save(s)
}

// restore restores the conflicts of an earlier agent.
func (l *loop) restore(s detector.Snapshot) {
	dropped := l.Restore(s)
	if open, history := len(s.Open), len(s.History); open+history > 0 {
		l.Log.Info("restored the conflicts of the previous agent; open ones are verified again",
			"open", open, "resolved", history, "unusable", dropped)
	}
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
