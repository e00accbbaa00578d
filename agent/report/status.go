package report

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/bounds"
)

// maxDADFailed limits the addresses that the status lists: pods can have any number of them.
const maxDADFailed = 100

// Status implements [api.Backend].
func (r *Report) Status(ctx context.Context, q document.Query) (document.Status, error) {
	if q.Node != "" && q.Node != r.Self.Name {
		c, err := r.collect(ctx, q, cluster.QueryStatus)
		if err != nil {
			return document.Status{}, err
		}
		return c.Status(q.Node)
	}
	doc := document.Status{
		Node:            r.Self.Name,
		BootID:          r.Self.Boot,
		Epoch:           r.Self.Epoch,
		Version:         r.Self.Version,
		Started:         r.Self.Since.Round(0),
		AttachMode:      r.Attach,
		MinOverlap:      r.MinOverlap,
		Bindings:        make(map[string]int),
		Conflicts:       make(map[string]int),
		Drills:          make(map[string]int),
		NetlinkOverruns: r.Watcher.Overruns(),
		Interfaces:      []document.InterfaceStatus{},
		HostAddresses:   []string{},
		Cluster:         r.clusterStatus(),
		Metrics:         r.Metrics,
		Notifications:   r.Notifications(),
	}
	loadedAt, err := r.Config.Status()
	doc.Config = document.ConfigStatus{Path: r.ConfigPath, LoadedAt: loadedAt.Round(0), Error: text(err)}
	written, _, err := r.Store.Status()
	doc.State = document.StateStatus{Dir: r.StateDir, WrittenAt: written.Round(0), Error: text(err)}
	doc.Runtime = r.Pods.Status().RuntimeStatus
	last := r.Books.Last()
	doc.Books, doc.BooksError = bookStatus(last), text(last.Err)
	own := r.ownAudit()
	doc.Audit, doc.AuditUnchecked = own.Verdict, own.Unchecked
	if r.Segments != nil {
		for _, d := range r.Segments() {
			doc.Segments = append(doc.Segments, document.SegmentStatus{Device: d.Name, Error: text(d.Err)})
		}
	}
	err = r.Do(ctx, func() { r.addParts(&doc) })
	slices.SortFunc(doc.Interfaces, func(x, y document.InterfaceStatus) int {
		return cmp.Compare(x.Ifindex, y.Ifindex)
	})
	return doc, err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// addParts adds what the parts know. Call it in the goroutine that owns them.
func (r *Report) addParts(doc *document.Status) {
	doc.Ready = r.Table.Ready()
	for _, n := range r.Table.Config().Networks() {
		doc.Networks = append(doc.Networks, document.NetworkStatus{Name: n.Name, Scope: string(n.Scope), Solicit: n.Solicit})
	}
	doc.ByState = r.byState()
	for i := range r.Table.All() {
		doc.Interfaces = append(doc.Interfaces, r.interfaceStatus(i))
	}
	for _, device := range r.Table.Unobserved() {
		doc.Interfaces = append(doc.Interfaces, document.InterfaceStatus{
			Name: device.Name, Ifindex: device.Index, State: string(device.State), Reason: device.Reason,
			Netns: device.Netns.Label(), Pid: device.Netns.Pid,
		})
	}
	doc.HostAddressesOmitted = r.Table.Own.Omitted()
	for _, ip := range r.Table.Own.IPs() {
		doc.HostAddresses = append(doc.HostAddresses, ip.String())
	}
	own, _ := r.Table.Own.Segment()
	for n, g := range doc.Segments {
		doc.Segments[n].Inferred = g.Device != own.Device
	}
	lost, n := r.Table.Lost(maxDADFailed)
	doc.DADFailedAddresses = n
	for _, a := range lost {
		doc.DADFailed = append(doc.DADFailed, document.DADFailed{
			Network: a.Key.Network, IP: a.Key.IP, Interface: a.Interface.Name, Netns: a.Interface.Netns.Label(),
			Pod: document.NewPod(a.Interface.Pod.Pod),
		})
	}
	counts := r.Detector.Counts()
	for evidence, n := range counts.Bindings {
		doc.Bindings[evidence.String()] = n
	}
	for at, n := range counts.Open {
		if n > 0 {
			doc.Conflicts[at.State.String()] += n
		}
	}
	for state, n := range counts.Drills {
		if n > 0 {
			doc.Drills[state.String()] = n
		}
	}
	doc.Faded, doc.Resolved = counts.Faded, counts.Resolved
	doc.Suppressed = counts.Suppressed
	doc.Pending = r.Table.Records.Pending()
	doc.Dropped = r.dropped(counts)
	doc.LeftOut = bounds.Counts()
	total := r.Table.Refusals.Total()
	doc.Dropped["packets over the limits"] = total.RefusedData + total.RefusedAnnounced + total.RefusedAnswers
	doc.Dropped["packets while the ring was full"] = total.RingFull
	doc.Dropped["log lines about conflicts"] = r.events.leftOut
}

// byState counts the interfaces by state; those whose netns cannot be seen, those whose network is compared on this node only, and
// those whose pod has moved or renamed its end, are counted again.
func (r *Report) byState() map[string]int {
	states := make(map[string]int)
	for i := range r.Table.All() {
		states[string(i.State)]++
		if !i.Seen {
			states["unseen netns"]++
		}
		if r.Table.Config().Scope(i.Network()) == config.Node {
			states["node only"]++
		}
		if i.Moved() {
			states["moved"]++
		}
		if i.Renamed() {
			states["renamed"]++
		}
	}
	for _, device := range r.Table.Unobserved() {
		states[string(device.State)]++
	}
	return states
}

// dropped counts what the parts have dropped because of their limits, by reason.
func (r *Report) dropped(counts detector.Counts) map[string]uint64 {
	dropped := r.Table.Records.Dropped()
	maps.Copy(dropped, r.Prober.Dropped())
	dropped["probe requests of other nodes"] = r.Exchange.Dropped
	for reason, n := range counts.Refused {
		dropped[reason] += n
	}
	for reason, n := range counts.Evicted {
		dropped["evicted: "+reason] = n
	}
	return dropped
}

func (r *Report) interfaceStatus(i *observe.Interface) document.InterfaceStatus {
	status := document.InterfaceStatus{
		Name: i.Name, Kind: i.Kind, Ifindex: cmp.Or(i.InnerIndex, i.Index), Generation: i.Generation, State: string(i.State), Reason: i.Reason,
		Network: i.Network(), Pod: document.NewPod(i.Pod.Pod), Moved: i.Moved(),
		Primary: i.Primary(), RoleFrom: i.Origin.Role.From(), Peer: i.View.Peer, Netns: i.Netns.Label(), Pid: i.Netns.Pid,
	}
	if i.Renamed() {
		status.FirstPeer = i.Origin.Peer
	}
	if c := r.Table.Refusals.Of(i); c != (bpf.Counters{}) {
		status.Refused = &document.Refused{Data: c.RefusedData, Announced: c.RefusedAnnounced, Answers: c.RefusedAnswers, RingFull: c.RingFull}
	}
	return status
}
