// Package observe turns records and netlink events into sightings: it finds the interface, the network
// and the evidence of each record, and tracks pod interfaces and the node's own addresses.
//
// It owns the table of interfaces and the names of networks. It sends nothing and
// decides nothing about conflicts.
package observe

import (
	"io"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// Options configures a [Table]. All fields but TimeOf must be set.
type Options struct {
	Log *slog.Logger
	// Host is the node itself as a holder; all local holders have its Node.
	Host detector.HolderID
	// GossipAddress is where the node receives gossip, zero if it is alone.
	GossipAddress netip.Addr
	// Asked returns to whom this agent has sent a probe with a source, and when; zero if it is not known. ours is whether the source
	// is like those of this agent.
	Asked func(source [6]byte) (id detector.HolderID, sent time.Time, ours bool)
	// Watch has the observer record the answers that are delivered to an interface, until that is closed.
	Watch func(ifindex int) (io.Closer, error)
	// Pod returns what the runtime reports about the pod in a netns, false if nothing is known yet; ByHostEnd about the one
	// whose CNI result names a host end.
	Pod       func(cookie uint64) (pods.Change, bool)
	ByHostEnd func(name string) (pods.Change, bool)
	// Readdressed asks the engine of a container, no earlier than at a time, which addresses it has given it; nil if nobody knows any.
	Readdressed func(cookie uint64, at time.Time)
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
	// Now is the present time.
	Now func() time.Time
	// TimeOf converts the time of a record; nil is [TimeOf]. A simulation has its own clock.
	TimeOf func(sinceBoot time.Duration) time.Time
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
	// To is the MAC that an answer was sent to.
	To     [6]byte
	Reason string
}

func withdrawn(key detector.Key, id detector.HolderID, reason string) Observation {
	return Observation{
		Kind: Withdrawn, Sighting: detector.Sighting{Key: key, Holder: detector.Holder{ID: id}}, Reason: reason,
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
