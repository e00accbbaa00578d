package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Sources are the functions that a scrape calls, each at most once a second for all clients, and never
// while an earlier call still runs. Each should return when its context ends, after 5 s. A function must
// not change what it returned. A function that is nil has no metrics. If one fails or is late, the scrape
// lacks its metrics, and dupip_scrape_errors_total counts that.
type Sources struct {
	// Version is the agent's, Node and BootID are the node's name and boot id, Attach is the attach mode.
	Version, Node, BootID, Attach string

	Detector   func(context.Context) (DetectorStats, error)
	Interfaces func(context.Context) (InterfaceStats, error)
	Agent      func(context.Context) (AgentStats, error)
	Cluster    func(context.Context) (ClusterStats, error)
	Pods       func(context.Context) (PodStats, error)
	State      func(context.Context) (StateStats, error)
	Config     func(context.Context) (ConfigStats, error)
	Books      func(context.Context) (BookStats, error)

	Log *slog.Logger // for failed sources, at debug level; may be nil
}

// DetectorStats are the detector's figures.
type DetectorStats struct {
	Counts detector.Counts
	Open   []detector.Conflict // in any order
}

// InterfaceStats are the pod interfaces and their refused packets.
type InterfaceStats struct {
	// States counts interfaces by state, as in the status document.
	States map[string]int
	// DADFailed counts addresses of pods whose IPv6 duplicate address detection failed.
	DADFailed int
	// Observed are the interfaces that the program is attached to.
	Observed []InterfaceRefusals
	// Total is the sum for all interfaces, also for those that are no longer in Observed, since the agent's start.
	Total Refused
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

// AgentStats are the figures of the agent's loop. The maps have all of their keys from the start.
type AgentStats struct {
	// Dropped counts records, bindings, probes and requests that the agent dropped, by reason.
	Dropped map[string]uint64
	// Suppressed counts suspicions that were not raised although an address has several holders, by
	// reason: "shared", "forwarded".
	Suppressed map[string]uint64
	// Solicitations counts probes.
	Solicitations   map[detector.Purpose]uint64
	Pending         int    // records that wait for their interface to be scanned
	HostOmitted     int    // addresses of the node that are not compared, because there are too many
	NetlinkOverruns uint64 // see links.Watcher.Overruns
}

// ClusterStats are the figures of the cluster. The maps have all of their keys from the start.
type ClusterStats struct {
	Status    cluster.Status
	Namesakes int // live members whose node name another member has
}

// PodStats describe the container runtime, from which the agent has the names of pods.
type PodStats struct {
	Connected bool
	Known     int // network namespaces with a pod's name
}

// StateStats describe the state on disk.
type StateStats struct {
	LastWrite time.Time // zero before the first
	Err       error     // of the latest write
	Bytes     int
}

// ConfigStats describe the configuration file.
type ConfigStats struct {
	LoadedAt time.Time // the active configuration
	Err      error     // what is wrong with the file now
}

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
