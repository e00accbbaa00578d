package agent

import (
	"context"
	"errors"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// watchBuffer is how many events a slow watch may be behind.
const watchBuffer = 1024

var (
	errStopped = errors.New("the agent is stopping")
	// errStarting keeps "no conflict" from meaning "not looked yet".
	errStarting = errors.New("the agent is still starting; try again in a moment")
)

// ask is do for questions about the tables, which say nothing before the agent has
// attached to what was there when it started.
func (l *loop) ask(ctx context.Context, f func()) error {
	ready := false
	err := l.do(ctx, func() {
		if ready = l.ready; ready {
			f()
		}
	})
	if err == nil && !ready {
		err = errStarting
	}
	return err
}

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
	<-done // the loop has taken it and does not stop half-way
	return nil
}

// send hands an event to every watch; one that has no room is closed.
func (l *loop) send(event api.ConflictEvent) {
	for watch := range l.watches {
		select {
		case watch <- event:
		default:
			delete(l.watches, watch)
			close(watch)
		}
	}
}

// WatchConflicts implements [api.Backend].
func (a *Agent) WatchConflicts(ctx context.Context) (<-chan api.ConflictEvent, error) {
	var watch chan api.ConflictEvent
	err := a.loop.do(ctx, func() {
		open := a.loop.detector.Conflicts(false)
		watch = make(chan api.ConflictEvent, len(open)+watchBuffer)
		for _, c := range open {
			at := c.SuspectedAt
			if c.State == detector.Confirmed {
				at = c.ConfirmedAt
			}
			watch <- api.ConflictEvent{Type: c.State.String(), At: at.Round(0), Conflict: api.NewConflict(c)}
		}
		a.loop.watches[watch] = true
	})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() {
		// When the loop is gone it has closed the watch itself.
		_ = a.loop.do(context.Background(), func() {
			if a.loop.watches[watch] {
				delete(a.loop.watches, watch)
				close(watch)
			}
		})
	})
	return watch, nil
}

func (l *loop) configured(i *podInterface, address netns.Address) api.Configured {
	device := map[netns.Where]string{
		netns.OnPeer: "peer", netns.OnLoopback: "loopback", netns.Elsewhere: "elsewhere",
	}[address.Where]
	vlan := bpf.VLAN{Outer: address.OuterVLAN, Inner: address.InnerVLAN}
	document := api.Configured{
		Network:   network(l.config, i.Interface, vlan, address.IP),
		Interface: i.Name,
		Netns:     i.Place.Label(),
		Pod:       api.NewPod(i.pod),
		Device:    device,
		Settled:   address.Settled,
	}
	if w := i.wanted[segmentAddress{address.IP, vlan}]; w != nil {
		document.Unanswered = w.tries
	}
	return document
}

var _ api.Backend = (*Agent)(nil)

// label names a netns, or is empty for the lack of one.
func label(place netns.Place) string {
	if place == (netns.Place{}) {
		return ""
	}
	return place.Label()
}
