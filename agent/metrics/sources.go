package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Sources are the functions that a scrape calls, each at most once a second for all clients,
// and never while an earlier call still runs. Each should return when its context ends,
// which has a deadline of 5 s; what it returns must not be changed afterwards. A function
// that is nil has no metrics. If one fails or is late, its metrics are left out of that
// page, and a counter says so.
type Sources struct {
	// Version, Node, BootID and Attach are constant in the life of an agent: its
	// version, the node's name and boot id, and the way the observer attaches.
	Version, Node, BootID, Attach string

	Detector   func(context.Context) (DetectorStats, error)
	Interfaces func(context.Context) (InterfaceStats, error)
	Agent      func(context.Context) (AgentStats, error)
	Cluster    func(context.Context) (ClusterStats, error)
	Pods       func(context.Context) (PodStats, error)
	State      func(context.Context) (StateStats, error)
	Config     func(context.Context) (ConfigStats, error)

	// Log gets the reasons of failed sources, at debug level; nil for none.
	Log *slog.Logger
}

// DetectorStats are the detector's figures.
type DetectorStats struct {
	Counts detector.Counts
	// Open are the open conflicts in any order.
	Open []detector.Conflict
}

// InterfaceStats are the pod interfaces and what was refused at them.
type InterfaceStats struct {
	// States counts interfaces by state in the words of the status document.
	States map[string]int
	// Observed are the interfaces that the program is attached to.
	Observed []InterfaceRefusals
	// Gone is what was refused, since the agent started, at interfaces that are no
	// longer in Observed. An interface's last counters are added to it, read before the
	// program is detached: else the totals would stand still until they are made up for.
	Gone Refused
}

// InterfaceRefusals tells what was refused at one interface.
type InterfaceRefusals struct {
	// Generation identifies the interface in the life of the agent.
	Generation uint32
	Name       string
	// Netns and Pod say who is behind it, empty where unknown.
	Netns   string
	Pod     detector.Pod
	Refused Refused
}

// Refused counts packets that made no record, by reason.
type Refused struct {
	// Data, Announced and Answers were over the limits of their kind.
	Data, Announced, Answers uint64
	// RingFull found no room in the ring, because the reader was behind.
	RingFull uint64
}

// AgentStats are the figures of the agent's own loop. The keys of the maps are words of
// our own code, and are there from the start with 0.
type AgentStats struct {
	// Dropped counts what found no room in queues and tables, packets apart, by reason.
	Dropped map[string]uint64
	// Suppressed counts suspicions that were not raised, and conflicts that cannot be
	// confirmed, by reason: "shared", "forwarded", ….
	Suppressed map[string]uint64
	// Solicitations counts the questions sent. Where it is nil nobody counts them.
	Solicitations map[detector.Purpose]uint64
	// Pending are records that wait until more is known of their interface.
	Pending int
	// NetlinkOverruns counts lost notifications, each with a full resync.
	NetlinkOverruns uint64
}

// ClusterStats are the figures of this agent's part in the cluster. The keys of the maps
// are words of our own code, and are there from the start with 0.
type ClusterStats struct {
	Status cluster.Status
	// Namesakes counts live members of which another one has the node name.
	Namesakes int
}

// PodStats tells of the container runtime that names pods.
type PodStats struct {
	Connected bool
	// Known is the number of network namespaces with a pod's name.
	Known int
}

// StateStats tells of the state on disk.
type StateStats struct {
	// LastWrite is zero before the first.
	LastWrite time.Time
	// Err is why the latest write failed, nil if it did not.
	Err error
	// Bytes is the size of the document.
	Bytes int
}

// ConfigStats tells of the configuration file.
type ConfigStats struct {
	// LoadedAt is when the configuration in force was read.
	LoadedAt time.Time
	// Err is what is wrong with the file now, nil if nothing is.
	Err error
}
