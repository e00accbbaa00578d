// Package observe turns what the kernel reports into sightings: it finds the interface, the
// network and the evidence of each record, and follows which pods and which of the node's own
// addresses there are.
//
// It owns the table of interfaces, the naming of networks and the list of mirrors. It sends
// nothing and decides nothing about conflicts.
package observe

import (
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
	// maxEarly bounds the records held back until their interface is announced.
	maxEarly = 4096
	// earlyFor is how long they are held: longer than the search for a netns takes.
	earlyFor = 15 * time.Second
	// maxQueue bounds the records of one interface that wait for a scan of its netns.
	maxQueue = 256
)

// The reasons for which records are dropped, as they are counted.
const (
	droppedEarly = "early"
	droppedGone  = "interface gone"
	droppedVLANs = "too many VLANs"
	droppedScan  = "waiting for a look"
)

// Options configures a [Table]. All fields must be set.
type Options struct {
	Log *slog.Logger
	// Host is the node itself as a holder; its Node is that of all holders here.
	Host detector.HolderID
	// MAC is the source of our own probes.
	MAC [6]byte
	// Probed reports whether an address was probed behind a holder shortly before a time.
	Probed func(id detector.HolderID, ip netip.Addr, at time.Time) bool
	// Pod returns what the runtime says of the pod in a netns, false if that is not known yet.
	Pod func(cookie uint64) (pods.Change, bool)
	// Rescan has the netns behind an interface scanned again.
	Rescan func(generation uint32)
	// Counters reads what the program counted at an interface. An error means that it is not
	// attached now.
	Counters func(ifindex int) (bpf.Counters, error)
	// Bindings lists the bindings that keep accepts, as [detector.Detector.Bindings].
	Bindings func(keep func(*detector.Binding) bool) []detector.Binding
}

// Table is what the packets and the netlink events of this node say. Create it with [New] and
// call [Table.Configure] first. It is not safe for concurrent use.
type Table struct {
	Options
	config     *config.Config
	interfaces map[detector.Interface]*Interface
	early      []bpf.Record
	mirrors    mirrors
	host       hostAddresses
	unobserved []links.Interface
	floods     floods
	dropped    map[string]uint64
}

// New returns an empty Table.
func New(opts Options) *Table {
	return &Table{
		Options:    opts,
		interfaces: make(map[detector.Interface]*Interface),
		floods:     floods{next: time.Now().Add(sampleEvery), lines: rate.NewLimiter(rate.Every(time.Minute), 10)},
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

// Observation is one thing that the node's packets or interfaces say.
type Observation struct {
	Kind      Kind
	Interface detector.Interface
	VLAN      bpf.VLAN
	Sighting  detector.Sighting
	Reason    string
}

// Record takes one record. It reports false if there is nothing to say of it, or not yet.
func (t *Table) Record(r bpf.Record) (Observation, bool) {
	i := t.interfaces[detector.Interface{Ifindex: r.Ifindex, Generation: r.Generation}]
	switch {
	case i != nil:
		return t.classify(i, r)
	case len(t.early) < maxEarly:
		t.early = append(t.early, r)
	default:
		t.dropped[droppedEarly]++
	}
	return Observation{}, false
}

// replayEarly takes the records that came before their interface was announced, and drops
// those whose interface never was.
func (t *Table) replayEarly(all []Observation) []Observation {
	waiting := t.early
	t.early = nil
	limit := time.Now().Add(-earlyFor)
	for _, r := range waiting {
		if !TimeOf(r.Time).After(limit) {
			t.dropped[droppedGone]++
		} else if o, ok := t.Record(r); ok {
			all = append(all, o)
		}
	}
	return all
}

// classify finds what a record is evidence of.
func (t *Table) classify(i *Interface, r bpf.Record) (Observation, bool) {
	at := TimeOf(r.Time)
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
			t.mirrors.add(i.Holder, at)
		}
		return o, false
	}
	s := &o.Sighting
	s.Key.Network = network(t.config, i.Interface, r.VLAN, r.IP)
	if !i.addVLAN(s.Key.Network, r.VLAN) {
		t.dropped[droppedVLANs]++
		return o, false
	}
	s.Holder, s.FoundAtStart = i.Describe(r.MAC), i.foundAtStart(r.IP, r.VLAN)
	s.Evidence = detector.Data
	if r.Kind != bpf.Data {
		s.Evidence, s.Answer = detector.Announced, r.Kind == bpf.Answer
	}
	// An answer does not prove that the pod has the address: Linux answers for every address
	// that it has on any interface, and for what it proxies. The list of addresses tells. Nor
	// does an answer of others prove it that a mirror sent back.
	if i.Seen && i.View.Holds(r.IP, r.VLAN.Outer, r.VLAN.Inner) {
		return o, true
	}
	if i.Seen && !i.View.Taken.After(at) {
		// It may have been added since the last scan; and a list that was empty then may be
		// longer now.
		if len(i.queue) < maxQueue {
			i.queue = append(i.queue, r)
			t.Rescan(i.Generation)
		} else {
			t.dropped[droppedScan]++
		}
		return o, false
	}
	if i.Seen && i.View.Covers(r.VLAN.Outer, r.VLAN.Inner) || t.mirrors.isMirror(i.Holder, at) {
		s.Evidence = detector.Forwarded
	}
	return o, true
}

// Configure takes a configuration. At a reload, bindings move into the networks that their
// addresses belong to now.
func (t *Table) Configure(c *config.Config, now time.Time) []Observation {
	first := t.config == nil
	t.config = c
	if first {
		return nil
	}
	all := t.setHost(t.host.listed, now)
	for _, i := range t.interfaces {
		all = t.move(i, all)
	}
	return all
}

// Name takes the name of the pod in a netns and returns the interfaces that lead there.
func (t *Table) Name(change pods.Change) (named []*Interface) {
	for _, i := range t.Of(detector.HolderID{Node: t.Host.Node, Netns: change.Cookie}) {
		i.Pod = change
		named = append(named, i)
	}
	return named
}

// Config is the configuration in force.
func (t *Table) Config() *config.Config { return t.config }

// Interface returns an interface, nil if it is not there.
func (t *Table) Interface(ref detector.Interface) *Interface { return t.interfaces[ref] }

// All returns the interfaces that lead into pods, in no order.
func (t *Table) All() iter.Seq[*Interface] { return maps.Values(t.interfaces) }

// Of returns the interfaces that lead to a holder.
func (t *Table) Of(id detector.HolderID) (all []*Interface) {
	for _, i := range t.interfaces {
		if i.Holder == id {
			all = append(all, i)
		}
	}
	return all
}

// Ready reports whether all that was there when the agent started has been found.
func (t *Table) Ready() bool { return t.host.ready }

// Unobserved returns the pod devices that cannot be or are not to be observed.
func (t *Table) Unobserved() []links.Interface { return t.unobserved }

// Dropped counts the records that were dropped, by reason.
func (t *Table) Dropped() map[string]uint64 { return maps.Clone(t.dropped) }

// Pending counts the records that wait until more is known of their interface.
func (t *Table) Pending() int {
	n := len(t.early)
	for _, i := range t.interfaces {
		n += len(i.queue)
	}
	return n
}

// Next returns when [Table.Tick] has something to do.
func (t *Table) Next() time.Time {
	if len(t.early) > 0 {
		// An interface that went before it was announced sends no event.
		if at := TimeOf(t.early[0].Time).Add(earlyFor); at.Before(t.floods.next) {
			return at
		}
	}
	return t.floods.next
}

// Tick drops the early records that are too old, and reads the counters of all interfaces when
// that is due.
func (t *Table) Tick(now time.Time) (all []Observation) {
	if len(t.early) > 0 && !TimeOf(t.early[0].Time).Add(earlyFor).After(now) {
		all = t.replayEarly(nil)
	}
	if !t.floods.next.After(now) {
		t.floods.next = now.Add(sampleEvery)
		for _, i := range t.interfaces {
			t.sample(i)
			t.logFlood(i, now)
		}
	}
	return all
}

// TimeOf translates the observer's times, CLOCK_MONOTONIC since boot, to Go's times, which carry
// the same clock inside. The pair of clocks is read anew each time, because the wall clock may
// be stepped. Should the thread be interrupted between the two, the result is a little late and
// never early: an answer must not precede its probe.
func TimeOf(sinceBoot time.Duration) time.Time {
	var clock unix.Timespec
	// It fails for no clock that exists.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock)
	return time.Now().Add(sinceBoot - time.Duration(clock.Nano()))
}
