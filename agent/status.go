package agent

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

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
		Suppressed:  make(map[string]uint64),
		Dropped:     make(map[string]uint64),
		Resyncs:     a.watcher.Overruns(),
		Interfaces:  []api.InterfaceStatus{},
		HostHolders: []string{},
	}
	err := a.loop.do(ctx, func() { a.loop.status(&document) })
	a.surroundings(&document)
	slices.SortFunc(document.Interfaces, func(x, y api.InterfaceStatus) int {
		return cmp.Compare(x.Ifindex, y.Ifindex)
	})
	return document, err
}

// surroundings tells of what the agent has beside its tables.
func (a *Agent) surroundings(document *api.Status) {
	loadedAt, err := a.config.Status()
	document.Config = api.ConfigStatus{Path: a.opts.Config, LoadedAt: loadedAt.Round(0), Error: text(err)}
	written, _, err := a.store.Status()
	document.State = api.StateStatus{Dir: a.opts.StateDir, WrittenAt: written.Round(0), Error: text(err)}
	runtime := a.pods.Status()
	document.Runtime = api.RuntimeStatus{
		Socket:    runtime.Socket,
		Name:      runtime.Runtime,
		Version:   runtime.Version,
		Connected: runtime.Connected,
		Error:     runtime.LastError,
		Sandboxes: runtime.Sandboxes,
	}
	document.Cluster = a.clusterStatus()
	if a.scrapes != nil {
		document.Metrics = a.scrapes.Addr().String()
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (l *loop) status(document *api.Status) {
	document.Ready = l.ready
	for _, n := range l.config.Networks() {
		document.Networks = append(document.Networks, api.NetworkStatus{
			Name: n.Name, Scope: string(n.Scope), Solicit: n.Solicit,
		})
	}
	document.ByState = l.byState()
	for _, i := range l.interfaces {
		document.Interfaces = append(document.Interfaces, l.interfaceStatus(i))
	}
	for _, device := range l.unobserved {
		document.Interfaces = append(document.Interfaces, api.InterfaceStatus{
			Name:    device.Name,
			Ifindex: device.Index,
			State:   string(device.State),
			Reason:  device.Reason,
			Netns:   label(device.Place),
			Pid:     device.Place.Pid,
		})
	}
	document.HostHolders = l.hostIPs()
	counts := l.detector.Counts()
	for evidence, n := range counts.Bindings {
		document.Bindings[evidence.String()] = n
	}
	for _, c := range l.detector.Conflicts(false) {
		document.Conflicts[c.State.String()]++
	}
	document.Faded, document.Resolved = counts.Faded, counts.Resolved
	for reason, n := range counts.Suppressed {
		document.Suppressed[reason.String()] = n
	}
	document.Pending = l.pending()
	document.Dropped = l.droppedByReason(counts)
	total := l.goneRefused
	for _, i := range l.interfaces {
		total = plus(total, i.refused.total())
	}
	document.Dropped["packets over the limits"] = sum(total) - total.RingFull
	document.Dropped["packets while the ring was full"] = total.RingFull
}

// byState counts the interfaces; one whose netns is not seen counts twice.
func (l *loop) byState() map[string]int {
	states := make(map[string]int)
	for _, i := range l.interfaces {
		states[string(i.State)]++
		if !i.Seen {
			states["unseen netns"]++
		}
	}
	for _, device := range l.unobserved {
		states[string(device.State)]++
	}
	return states
}

// droppedByReason counts what found no room in the agent's and the detector's tables.
func (l *loop) droppedByReason(counts detector.Counts) map[string]uint64 {
	dropped := maps.Clone(l.dropped)
	for reason, n := range counts.Refused {
		dropped[reason.String()] += n
	}
	for reason, n := range counts.Evicted {
		dropped["evicted: "+reason.String()] = n
	}
	return dropped
}

// pending counts the records that wait until more is known of their interface.
func (l *loop) pending() int {
	n := len(l.early)
	for _, i := range l.interfaces {
		n += len(i.queue)
	}
	return n
}

func (l *loop) interfaceStatus(i *podInterface) api.InterfaceStatus {
	status := api.InterfaceStatus{
		Name:       i.Name,
		Ifindex:    i.Index,
		Generation: i.Generation,
		State:      string(i.State),
		Reason:     i.Reason,
		Network:    network(l.config, i.Interface, bpf.VLAN{}, netip.Addr{}),
		Pod:        api.NewPod(i.pod),
	}
	if i.Seen {
		status.Peer, status.Netns, status.Pid = i.View.Peer, i.Place.Label(), i.Place.Pid
	}
	if c, err := l.observer.Counters(i.Index); err == nil {
		i.refused.read(c)
	}
	c := i.refused.total()
	refused := api.Refused{
		Data: c.RefusedData, Announced: c.RefusedAnnounced, Answers: c.RefusedAnswers, RingFull: c.RingFull,
	}
	if refused != (api.Refused{}) {
		status.Refused = &refused
	}
	return status
}
