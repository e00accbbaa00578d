package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Sources are where a scrape reads, once a second at most for all clients. Those that are nil have no metrics; Loop must be there.
type Sources struct {
	// Version is the agent's, Node and BootID are the node's name and boot id, Attach is the attach mode.
	Version, Node, BootID, Attach string
	// Holders has the pods of confirmed conflicts exported.
	Holders bool

	// Loop returns the figures of the agent's loop. It is never called while an earlier call still runs, should return when its
	// context ends, after 5 s, and must not change what it returned. If it fails or is late, the scrape lacks these figures, and
	// dupip_scrape_errors_total counts that.
	Loop func(context.Context) (LoopStats, error)

	// These do not wait for the loop, and do not block.
	Cluster interface {
		Status() cluster.Status
		Members() []cluster.Member
	}
	Pods   func() (connected bool, known int)               // whether the container runtime answers; namespaces with a pod's name
	State  func() (written time.Time, bytes int, err error) // as [state.Store.Status]
	Config func() (loadedAt time.Time, err error)           // as [config.Watcher.Status]
	Books  func(open []detector.Conflict) BookStats         // open are those of LoopStats, nil if Loop has failed

	Log *slog.Logger // for a failure of Loop, at debug level; may be nil
}

// LoopStats are the figures of the agent's loop. The maps of counters have all of their keys from the start.
type LoopStats struct {
	// Counts and Open are the detector's, Open in any order.
	Counts detector.Counts
	Open   []detector.Conflict

	// States counts the pod interfaces by state, as in the status document.
	States map[string]int
	// DADFailed counts addresses of pods whose IPv6 duplicate address detection failed.
	DADFailed int
	// Observed are the interfaces that the program is attached to.
	Observed []InterfaceRefusals
	// Refused is the sum for all interfaces, also for those that are no longer in Observed, since the agent's start.
	Refused Refused

	// Dropped counts records, bindings, probes and requests that the agent dropped, by reason.
	Dropped map[string]uint64
	// Solicitations counts probes.
	Solicitations   map[detector.Purpose]uint64
	Pending         int    // records that wait for their interface to be scanned
	HostOmitted     int    // addresses of the node that are not compared, because there are too many
	NetlinkOverruns uint64 // see links.Watcher.Overruns
	// ResyncFound counts what a list of everything found, by kind.
	ResyncFound map[string]uint64
}

// InterfaceRefusals are the refused packets of one interface.
type InterfaceRefusals struct {
	Generation uint32 // identifies the interface in the life of the agent
	Name       string
	Netns      string       // empty if unknown
	Pod        detector.Pod // empty if unknown
	Refused    Refused
}

// Refused counts packets that made no record: data, announcements and answers beyond the limits of their kind, and all kinds
// while the ring was full. The numbers never decrease.
type Refused [len(refusedKinds)]uint64

// BookStats describe what the books of the node say.
type BookStats struct {
	Findings map[string]int // by kind, with all kinds that were looked for
	Left     []RangeLeft
}

// RangeLeft is which part of the range of a network is not reserved.
type RangeLeft struct {
	Book, Network string
	Ratio         float64
}
