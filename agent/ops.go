package agent

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/links"
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
	holders := make(map[detector.HolderID]*links.Interface)
	err := a.loop.ask(ctx, func() {
		stories = a.loop.detector.Explain(ip)
		for _, i := range a.loop.interfaces {
			holders[i.holder] = i.Interface
			for _, address := range i.View.Addresses {
				if address.IP == ip {
					document.Configured = append(document.Configured, configured(i, address))
				}
			}
		}
	})
	slices.SortFunc(document.Configured, func(x, y api.Configured) int { return cmp.Compare(x.Interface, y.Interface) })
	document.Stories = make([]api.Story, 0, len(stories))
	for _, story := range stories {
		document.Stories = append(document.Stories, a.story(story, holders))
	}
	return document, err
}

func configured(i *podInterface, address netns.Address) api.Configured {
	device := map[netns.Where]string{
		netns.OnPeer: "peer", netns.OnLoopback: "loopback", netns.Elsewhere: "elsewhere",
	}[address.Where]
	vlan := bpf.VLAN{Outer: address.OuterVLAN, Inner: address.InnerVLAN}
	document := api.Configured{
		Network:   network(i.Interface, vlan),
		Interface: i.Name,
		Netns:     i.Place.Label(),
		Device:    device,
		Settled:   address.Settled,
	}
	if w := i.wanted[segmentAddress{address.IP, vlan}]; w != nil {
		document.Unanswered = w.tries
	}
	return document
}

// story makes the document of a story. A holder that is gone is named from what
// the story itself says of it.
func (a *Agent) story(story detector.Story, present map[detector.HolderID]*links.Interface) api.Story {
	document := api.Story{
		Network:  story.Key.Network,
		IP:       story.Key.IP.String(),
		Verdict:  story.Verdict,
		Bindings: make([]api.Binding, 0, len(story.Bindings)),
		Notes:    make([]api.Note, 0, len(story.Notes)),
	}
	names := make(map[detector.HolderID][2]string)
	name := func(h detector.Holder) { names[h.ID] = [2]string{h.InterfaceName, h.NetnsName} }
	for id, i := range present {
		names[id] = [2]string{i.Name, i.Place.Label()}
	}
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
			Interface: names[note.Holder][0],
			Netns:     names[note.Holder][1],
			Text:      note.Text,
		})
	}
	return document
}

// Status implements [api.Backend].
func (a *Agent) Status(ctx context.Context) (api.Status, error) {
	document := api.Status{
		Node:        a.node.Name,
		BootID:      a.node.BootID,
		Epoch:       a.node.Epoch,
		Version:     a.opts.Version,
		Started:     a.started.Round(0),
		Attach:      string(a.observer.Mode()),
		MinOverlap:  a.opts.MinOverlap.String(),
		ByState:     make(map[string]int),
		Bindings:    make(map[string]int),
		Conflicts:   make(map[string]int),
		Dropped:     make(map[string]uint64),
		Resyncs:     a.watcher.Overruns(),
		Interfaces:  []api.InterfaceStatus{},
		HostHolders: []string{},
	}
	err := a.loop.do(ctx, func() { a.loop.status(&document) })
	slices.SortFunc(document.Interfaces, func(x, y api.InterfaceStatus) int {
		return cmp.Compare(x.Ifindex, y.Ifindex)
	})
	return document, err
}

func (l *loop) status(document *api.Status) {
	document.Ready = l.ready
	for _, i := range l.interfaces {
		document.Interfaces = append(document.Interfaces, l.interfaceStatus(i))
		document.ByState[string(i.State)]++
		if !i.Seen {
			document.ByState["unseen netns"]++
		}
	}
	for _, device := range l.unsupported {
		document.Interfaces = append(document.Interfaces, api.InterfaceStatus{
			Name:    device.Name,
			Ifindex: device.Index,
			State:   string(device.State),
			Reason:  device.Reason,
			Netns:   device.Place.Label(),
			Pid:     device.Place.Pid,
		})
		document.ByState[string(device.State)]++
	}
	for _, address := range l.hostAddresses {
		document.HostHolders = append(document.HostHolders, address.IP.String())
	}
	counts := l.detector.Counts()
	for evidence, n := range counts.Bindings {
		document.Bindings[evidence.String()] = n
	}
	for _, c := range l.detector.Conflicts(false) {
		document.Conflicts[c.State.String()]++
	}
	document.Faded, document.Resolved = counts.Faded, counts.Resolved
	for reason, n := range counts.Refused {
		document.Dropped[reason.String()] = n
	}
	for reason, n := range l.dropped {
		document.Dropped[reason] += n
	}
	document.Pending = len(l.early)
	for _, i := range l.interfaces {
		document.Pending += len(i.queue)
	}
	for reason, n := range counts.Evicted {
		document.Dropped["evicted: "+reason.String()] = n
	}
	for _, i := range document.Interfaces {
		if r := i.Refused; r != nil {
			document.Dropped["packets over the limits"] += r.Data + r.Announced + r.Answers
			document.Dropped["packets while the ring was full"] += r.RingFull
		}
	}
}

func (l *loop) interfaceStatus(i *podInterface) api.InterfaceStatus {
	status := api.InterfaceStatus{
		Name:       i.Name,
		Ifindex:    i.Index,
		Generation: i.Generation,
		State:      string(i.State),
		Reason:     i.Reason,
		Network:    baseNetwork(i.Interface),
	}
	if i.Seen {
		status.Peer, status.Netns, status.Pid = i.View.Peer, i.Place.Label(), i.Place.Pid
	}
	if c, err := l.observer.Counters(i.Index); err == nil {
		refused := api.Refused{
			Data: c.RefusedData, Announced: c.RefusedAnnounced, Answers: c.RefusedAnswers, RingFull: c.RingFull,
		}
		if refused != (api.Refused{}) {
			status.Refused = &refused
		}
	}
	return status
}

var _ api.Backend = (*Agent)(nil)
