// Package observe turns records and netlink events into sightings: it finds the interface, the network
// and the evidence of each record, and tracks pod interfaces and the node's own addresses.
//
// It owns the table of interfaces and the names of networks. It sends nothing and
// decides nothing about conflicts.
package observe

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

const (
	// earlyFor is how long records wait for an event about their interface: longer than the search for a
	// netns takes.
	earlyFor = 15 * time.Second
	// maxEarly limits the interfaces whose records wait for that: new ones, which no pod can make.
	maxEarly = 512
	// maxQueue limits the records of one interface that wait for that, or for a scan of its netns. All
	// together they take at most 9 MB.
	maxQueue = 256
)

// The reasons for which records are dropped, as in the status and the metrics.
const (
	droppedEarly = "early"
	droppedGone  = "interface gone"
	droppedVLANs = "too many VLANs"
	droppedScan  = "waiting for a scan"
)

// Options configures a [Table]. All fields but TimeOf must be set.
type Options struct {
	Log *slog.Logger
	// Host is the node itself as a holder; all local holders have its Node.
	Host detector.HolderID
	// GossipAddress is where the node receives gossip, zero if it is alone.
	GossipAddress netip.Addr
	// MAC is the source of this agent's probes.
	MAC [6]byte
	// Probed reports whether a probe of an address was sent to a holder shortly before a time.
	Probed func(id detector.HolderID, ip netip.Addr, at time.Time) bool
	// Pod returns what the runtime reports about the pod in a netns, false if nothing is known yet; ByHostEnd about the one
	// whose CNI result names a host end.
	Pod       func(cookie uint64) (pods.Change, bool)
	ByHostEnd func(name string) (pods.Change, bool)
	// Leads reports whether the node's route to an address leads into an interface.
	Leads func(i *links.Interface, ip netip.Addr) bool
	// Rescan requests a new scan of the netns behind an interface.
	Rescan func(generation uint32)
	// Counters reads the counters of an interface. It fails if the program is not attached now.
	Counters func(ifindex int) (bpf.Counters, error)
	// Forget makes the observer report the address of a record again, because the record was dropped.
	Forget func(bpf.Record)
	// Bindings is [detector.Detector.Bindings].
	Bindings func(keep func(*detector.Binding) bool) []detector.Binding
	// TimeOf converts the time of a record; nil is [TimeOf]. A simulation has its own clock.
	TimeOf func(sinceBoot time.Duration) time.Time
}

// Table has the interfaces of this node. Create it with [New] and call [Table.Configure] first. It is
// not safe for concurrent use.
type Table struct {
	Options
	config     *config.Config
	interfaces map[detector.Interface]*Interface
	origins    map[HostEnd]*Origin
	rolesAt    time.Time // when to log those that are not known, zero afterwards
	subnets    map[segment][]netip.Prefix
	early      map[detector.Interface][]bpf.Record // those that wait for an event about their interface
	host       hostAddresses
	unobserved []links.Interface
	floods     floods
	// lostLines limits the lines about lost addresses; lostLeftOut are those that were left out since the last one.
	lostLines   *rate.Limiter
	lostLeftOut int
	dropped     map[string]uint64
	ready       bool // see Ready; it stays true
}

// New returns an empty Table.
func New(opts Options) *Table {
	if opts.TimeOf == nil {
		opts.TimeOf = TimeOf
	}
	return &Table{
		Options:    opts,
		interfaces: make(map[detector.Interface]*Interface),
		origins:    make(map[HostEnd]*Origin),
		early:      make(map[detector.Interface][]bpf.Record),
		floods:     floods{lines: rate.NewLimiter(rate.Every(time.Minute), 10)},
		lostLines:  rate.NewLimiter(rate.Every(time.Minute), 10),
		dropped:    map[string]uint64{droppedEarly: 0, droppedGone: 0, droppedVLANs: 0, droppedScan: 0},
	}
}

// Kind says what an [Observation] is.
type Kind uint8

// The kinds of observations.
const (
	// Seen: Sighting, on Interface with VLAN; the node's own addresses have neither.
	Seen Kind = iota + 1
	// Tentative: the pod probes Sighting.Key.IP itself before it takes it.
	Tentative
	// Withdrawn: Sighting.Holder.ID does not have Sighting.Key any more, for Reason.
	Withdrawn
	// Gone: all that was seen on Interface has ended, for Reason.
	Gone
)

// Observation is a sighting, or the end of one.
type Observation struct {
	Kind      Kind
	Interface detector.Interface
	VLAN      bpf.VLAN
	Sighting  detector.Sighting
	Reason    string
}

func withdrawn(key detector.Key, id detector.HolderID, reason string) Observation {
	return Observation{
		Kind: Withdrawn, Sighting: detector.Sighting{Key: key, Holder: detector.Holder{ID: id}}, Reason: reason,
	}
}

// Record handles one record. It reports false if there is no observation, or not yet.
func (t *Table) Record(r bpf.Record) (Observation, bool) {
	ref := detector.Interface{Ifindex: r.Ifindex, Generation: r.Generation}
	if i := t.interfaces[ref]; i != nil {
		return t.classify(i, r)
	}
	// A pod that floods must not displace the records of others.
	if waiting, known := t.early[ref]; len(waiting) < maxQueue && (known || len(t.early) < maxEarly) {
		t.early[ref] = append(waiting, r)
	} else {
		t.drop(r, droppedEarly)
	}
	return Observation{}, false
}

func (t *Table) drop(r bpf.Record, reason string) {
	t.dropped[reason]++
	t.Forget(r)
	t.logDrop(&r, reason)
}

// logDrop logs why a record makes no observation.
func (t *Table) logDrop(r *bpf.Record, reason string) {
	if !t.Log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	name := ""
	if i := t.interfaces[detector.Interface{Ifindex: r.Ifindex, Generation: r.Generation}]; i != nil {
		name = i.Name
	}
	t.Log.Debug("record dropped", "ip", r.IP, "kind", r.Kind, "interface", name, "ifindex", r.Ifindex, "vlan", r.VLAN.Outer,
		"innerVLAN", r.VLAN.Inner, "mac", detector.MAC(r.MAC), "reason", reason)
}

// classify finds what a record is evidence of.
func (t *Table) classify(i *Interface, r bpf.Record) (Observation, bool) {
	at := t.TimeOf(r.Time)
	o := Observation{
		Kind: Seen, Interface: i.Ref, VLAN: r.VLAN,
		Sighting: detector.Sighting{Key: detector.Key{IP: r.IP}, At: at},
	}
	if r.Kind == bpf.Tentative {
		if r.MAC != t.MAC {
			o.Kind = Tentative
			return o, true
		}
		if t.Probed(i.Holder, r.IP, at) {
			i.mirrored = at
		}
		t.logDrop(&r, "it is a probe of this agent")
		return o, false
	}
	s := &o.Sighting
	s.Key.Network = t.network(i, r.VLAN, r.IP)
	if !i.addVLAN(s.Key.Network, r.VLAN) {
		t.dropped[droppedVLANs]++
		t.logDrop(&r, droppedVLANs)
		return o, false
	}
	// An answer does not prove that the pod has the address: Linux answers on each interface for all
	// its addresses and for those that it proxies, and a mirror sends the answers of others back. So
	// the list of addresses decides.
	listed := i.Seen && i.View.HoldsAddress(r.IP, r.VLAN.Outer, r.VLAN.Inner)
	if i.Seen && !listed && !i.View.Taken.After(at) {
		// The address may have been added since the last scan, or a route removed.
		if len(i.queue) < maxQueue {
			i.queue = append(i.queue, r)
			t.Rescan(i.Generation)
		} else {
			t.drop(r, droppedScan)
		}
		return o, false
	}
	s.Holder, s.FoundAtStart = i.Describe(r.MAC), i.foundAtStart(r.IP, r.VLAN)
	s.Holder.Given = i.Given(r.IP)
	s.Evidence = detector.Data
	if r.Kind != bpf.Data {
		// A gratuitous packet answers no probe of ours.
		s.Evidence, s.Answer = detector.Announced, r.Kind == bpf.Answer
	}
	if listed || i.Seen && i.View.Holds(r.IP, r.VLAN.Outer, r.VLAN.Inner) {
		return o, true
	}
	if t.claims(i, r, at) {
		s.Evidence = detector.Claimed
		return o, true
	}
	if i.Seen && i.View.Covers(r.VLAN.Outer, r.VLAN.Inner) || t.isMirror(i, at) {
		s.Evidence = detector.Forwarded
	}
	return o, true
}

// Configure sets the configuration. At a reload, bindings move into the networks that their addresses
// belong to now.
func (t *Table) Configure(c *config.Config, now time.Time) []Observation {
	first := t.config == nil
	t.config = c
	if first {
		t.rolesAt, t.floods.next = now.Add(time.Minute), now.Add(sampleEvery)
		return nil
	}
	t.host.stale = true
	for _, i := range t.interfaces {
		i.moves = true
	}
	return t.settle(nil, now)
}

// Name sets the pod in a netns, and returns the interfaces that lead there or were set up for it.
func (t *Table) Name(pod pods.Change, now time.Time) (named []*Interface, all []Observation) {
	for _, i := range t.interfaces {
		if i.Seen && i.View.Cookie == pod.Cookie || pod.Result.Names(i.Name) {
			named = append(named, i)
			t.named(i, pod)
		}
	}
	return named, t.settle(nil, now)
}

// Config is the current configuration.
func (t *Table) Config() *config.Config { return t.config }

// Interface returns an interface, nil if it does not exist.
func (t *Table) Interface(ref detector.Interface) *Interface { return t.interfaces[ref] }

// All returns the interfaces that lead into pods, in no order.
func (t *Table) All() iter.Seq[*Interface] { return maps.Values(t.interfaces) }

// Ready reports whether the watcher has attached to all interfaces that existed at the start, or failed to.
func (t *Table) Ready() bool {
	if !t.ready && t.host.listedBefore {
		t.ready = true
		for _, i := range t.interfaces {
			t.ready = t.ready && (!i.Listed || i.State != links.Pending && i.State != links.Waiting)
		}
	}
	return t.ready
}

// Unobserved returns the pod devices that cannot be observed or are ignored.
func (t *Table) Unobserved() []links.Interface { return t.unobserved }

// Dropped counts the records that were dropped, by reason.
func (t *Table) Dropped() map[string]uint64 { return maps.Clone(t.dropped) }

// Pending counts the records that wait for an event about their interface.
func (t *Table) Pending() int {
	n := 0
	for _, waiting := range t.early {
		n += len(waiting)
	}
	for _, i := range t.interfaces {
		n += len(i.queue)
	}
	return n
}

// Next returns when [Table.Tick] has something to do.
func (t *Table) Next() time.Time {
	next := t.floods.next
	for _, waiting := range t.early {
		if at := t.expiry(waiting); at.Before(next) {
			next = at
		}
	}
	return next
}

// expiry is when the first of the early records of an interface has waited too long. There may never be an
// event: the interface may already be gone.
func (t *Table) expiry(early []bpf.Record) time.Time { return t.TimeOf(early[0].Time).Add(earlyFor) }

// Tick drops early records that are too old, and reads the counters of all interfaces if that is due.
func (t *Table) Tick(now time.Time) {
	for ref, waiting := range t.early {
		for len(waiting) > 0 && !t.expiry(waiting).After(now) {
			t.drop(waiting[0], droppedGone)
			waiting = waiting[1:]
		}
		t.early[ref] = waiting
		if len(waiting) == 0 {
			delete(t.early, ref)
		}
	}
	if !t.floods.next.After(now) {
		t.floods.next = now.Add(sampleEvery)
		for _, i := range t.interfaces {
			t.sample(i)
			t.logFlood(i, now)
		}
		t.logUnknownRoles(now)
	}
}

// TimeOf converts a time of the observer (CLOCK_MONOTONIC) to a time of Go, which has the same clock
// inside. It reads both clocks each time, because the wall clock may be stepped. If the thread is
// interrupted between them, the result is too late, never too early: an answer must not precede its
// probe.
func TimeOf(sinceBoot time.Duration) time.Time {
	var clock unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock)
	return time.Now().Add(sinceBoot - time.Duration(clock.Nano()))
}
