package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

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

// Bindings implements [api.Backend].
func (a *Agent) Bindings(ctx context.Context, ip netip.Addr) (api.Bindings, error) {
	var keep func(*detector.Binding) bool
	if ip.IsValid() {
		keep = func(b *detector.Binding) bool { return b.Key.IP == ip }
	}
	var bindings []detector.Binding
	err := a.loop.ask(ctx, func() { bindings = a.loop.detector.Bindings(keep) })
	document := api.Bindings{Node: a.node.Name, Bindings: make([]api.Binding, 0, len(bindings))}
	for _, b := range bindings {
		document.Bindings = append(document.Bindings, api.NewBinding(a.node.Name, b))
	}
	return document, err
}

// Conflicts implements [api.Backend].
func (a *Agent) Conflicts(ctx context.Context, all bool) (api.Conflicts, error) {
	var conflicts []detector.Conflict
	err := a.loop.ask(ctx, func() { conflicts = a.loop.detector.Conflicts(all) })
	document := api.Conflicts{Node: a.node.Name, Conflicts: make([]api.Conflict, 0, len(conflicts))}
	for _, c := range conflicts {
		document.Conflicts = append(document.Conflicts, api.NewConflict(a.node.Name, c))
	}
	return document, err
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
			watch <- api.ConflictEvent{Type: c.State.String(), At: at.Round(0), Conflict: api.NewConflict(a.node.Name, c)}
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

// Explain implements [api.Backend].
func (a *Agent) Explain(ctx context.Context, ip netip.Addr) (api.Explanation, error) {
	var stories []detector.Story
	document := api.Explanation{Node: a.node.Name, IP: ip.String()}
	present := make(map[detector.HolderID]named)
	err := a.loop.ask(ctx, func() {
		stories = a.loop.detector.Explain(ip)
		for _, i := range a.loop.interfaces {
			present[i.holder] = named{i.Name, i.Place.Label(), i.pod}
			for _, address := range i.View.Addresses {
				if address.IP == ip {
					document.Configured = append(document.Configured, a.loop.configured(i, address))
				}
			}
		}
	})
	slices.SortFunc(document.Configured, func(x, y api.Configured) int { return cmp.Compare(x.Interface, y.Interface) })
	document.Stories = make([]api.Story, 0, len(stories))
	for _, story := range stories {
		document.Stories = append(document.Stories, a.story(story, present))
	}
	return document, err
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

// named is how people know a holder.
type named struct {
	iface, netns string
	pod          detector.Pod
}

// story makes the document of a story. A holder that is gone is named from what
// the story itself says of it.
func (a *Agent) story(story detector.Story, present map[detector.HolderID]named) api.Story {
	document := api.Story{
		Network:  story.Key.Network,
		IP:       story.Key.IP.String(),
		Verdict:  story.Verdict,
		Bindings: make([]api.Binding, 0, len(story.Bindings)),
		Notes:    make([]api.Note, 0, len(story.Notes)),
	}
	names := maps.Clone(present)
	name := func(h detector.Holder) { names[h.ID] = named{h.InterfaceName, h.NetnsName, h.Pod} }
	if story.Conflict != nil {
		conflict := api.NewConflict(a.node.Name, *story.Conflict)
		document.Conflict = &conflict
		for _, holder := range story.Conflict.Holders {
			name(holder.Holder)
		}
	}
	for _, b := range story.Bindings {
		document.Bindings = append(document.Bindings, api.NewBinding(a.node.Name, b))
		name(b.Holder)
	}
	for _, note := range story.Notes {
		document.Notes = append(document.Notes, api.Note{
			At:        note.At.Round(0),
			Kind:      note.Kind.String(),
			Interface: names[note.Holder].iface,
			Netns:     names[note.Holder].netns,
			Pod:       api.NewPod(names[note.Holder].pod),
			Text:      note.Text,
		})
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
