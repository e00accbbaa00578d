package document

import (
	"net/netip"
	"time"
)

// InterfaceStatus is one pod interface in [Status].
type InterfaceStatus struct {
	Name       string   `json:"name"`
	Kind       string   `json:"kind,omitzero"` // macvlan, ipvlan or vlan: the device has no end on the node, and is in that of the pod
	Ifindex    int      `json:"ifindex"`       // in its netns
	Generation uint32   `json:"generation"`
	State      string   `json:"state"`
	Reason     string   `json:"reason,omitzero" text:"sentence"`
	Network    string   `json:"network,omitzero"`
	Peer       string   `json:"peer,omitzero"`      // name of the device at the other end, in the pod
	Primary    bool     `json:"primary,omitzero"`   // in the cluster's network: the pod's eth0, as RoleFrom says
	RoleFrom   string   `json:"roleFrom,omitzero"`  // "cni-result", "route" or "name"
	FirstPeer  string   `json:"firstPeer,omitzero"` // its first name, if the pod has renamed it
	Moved      bool     `json:"moved,omitzero"`     // the pod has moved it into another netns
	Netns      string   `json:"netns,omitzero"`
	Pid        int      `json:"pid,omitzero"`
	Pod        *Pod     `json:"pod,omitzero"`
	Refused    *Refused `json:"refused,omitzero"`
}

// Refused counts packets of one interface that made no record, by reason.
type Refused struct {
	Data      uint64 `json:"data"`
	Announced uint64 `json:"announced"`
	Answers   uint64 `json:"answers"`
	RingFull  uint64 `json:"ringFull"`
}

// Status is the response to GET /v1/status.
type Status struct {
	Node       string            `json:"node"`
	BootID     string            `json:"bootID"`
	Epoch      int64             `json:"epoch"` // see Node.Epoch
	Version    string            `json:"version"`
	Started    time.Time         `json:"started"`
	AttachMode string            `json:"attach"`
	MinOverlap string            `json:"minOverlap"`
	Ready      bool              `json:"ready"`
	Interfaces []InterfaceStatus `json:"interfaces"`
	ByState    map[string]int    `json:"interfacesByState"`
	Bindings   map[string]int    `json:"bindingsByEvidence"`
	Conflicts  map[string]int    `json:"openConflictsByState"`
	Drills     map[string]int    `json:"openDrillsByState"` // not in Conflicts, nor in Faded and Resolved
	Faded      uint64            `json:"suspicionsFaded"`
	Resolved   uint64            `json:"conflictsResolved"`
	// Suppressed counts suspicions that were not raised although an address has several holders, and those that were not confirmed because
	// of a live migration, by reason.
	Suppressed      map[string]uint64 `json:"suppressed"`
	Dropped         map[string]uint64 `json:"dropped"`
	LeftOut         map[string]uint64 `json:"leftOut,omitempty"` // no observations, but what there was too much of
	Pending         int               `json:"recordsPending"`    // records that wait for their interface to be scanned
	NetlinkOverruns int               `json:"netlinkOverruns"`
	// HostAddresses are the node's own addresses that are compared with those of pods. HostAddressesOmitted counts those that are not, in
	// all of their networks or some: there are more than 4,096, or a quarter of limits.bindings, each counted once in each network.
	HostAddresses        []string `json:"hostAddresses"`
	HostAddressesOmitted int      `json:"hostAddressesOmitted,omitzero"`
	// DADFailedAddresses counts the addresses of pods whose IPv6 duplicate address detection failed, so
	// that their kernels do not use them. DADFailed lists up to 100.
	DADFailedAddresses int         `json:"dadFailedAddresses"`
	DADFailed          []DADFailed `json:"dadFailed,omitzero"`

	Config  ConfigStatus  `json:"config"`
	State   StateStatus   `json:"state"`
	Runtime RuntimeStatus `json:"runtime"`
	// Books are those that say what IPAM has reserved on this node. BooksError is why their configuration cannot be read, or
	// not all of it.
	Books      []BookStatus `json:"books,omitzero"`
	BooksError string       `json:"booksError,omitzero" text:"sentence"`
	// Audit is the verdict of this node's audit, AuditUnchecked what was not looked for, and why, as in Audit.
	Audit          string          `json:"audit"`
	AuditUnchecked []string        `json:"auditUnchecked,omitzero" text:"sentence"`
	Metrics        string          `json:"metrics,omitzero"`  // address of /metrics, empty if disabled
	Networks       []NetworkStatus `json:"networks,omitzero"` // those in the configuration
	Cluster        ClusterStatus   `json:"cluster"`
	// Notifications are those whom the agent itself tells of conflicts.
	Notifications []NotificationStatus `json:"notifications,omitzero"`
	// Segments are those that the agent listens on, because other nodes are there or may be.
	Segments []SegmentStatus `json:"segments,omitzero"`
}

// SegmentStatus is a segment behind a device of the node.
type SegmentStatus struct {
	Device string `json:"device"`
	// Inferred: nobody has said that it joins nodes. Pods there are compared with those of nodes that are heard there.
	Inferred bool `json:"inferred,omitzero"`
	// Error is why nothing is heard there.
	Error string `json:"error,omitzero" text:"sentence"`
}

// NotificationStatus is one whom the agent tells of conflicts. The numbers count notifications since its start.
type NotificationStatus struct {
	Kind    string    `json:"kind"` // "alertmanager" or "program"
	To      string    `json:"to"`   // its URL or path
	Sent    uint64    `json:"sent"`
	Failed  uint64    `json:"failed"`
	Dropped uint64    `json:"dropped"`
	SentAt  time.Time `json:"sentAt,omitzero"`
	// Error is why the last one failed.
	Error string `json:"error,omitzero" text:"sentence"`
}

// DADFailed is an address of a pod whose IPv6 duplicate address detection failed.
type DADFailed struct {
	Network   string     `json:"network"`
	IP        netip.Addr `json:"ip"`
	Interface string     `json:"interface"`
	Netns     string     `json:"netns"`
	Pod       *Pod       `json:"pod,omitzero"`
}

// ConfigStatus describes the configuration file. Error is what is wrong with the file now; the previous
// content stays active.
type ConfigStatus struct {
	Path     string    `json:"path,omitzero"`
	LoadedAt time.Time `json:"loadedAt,omitzero"`
	Error    string    `json:"error,omitzero" text:"sentence"`
}

// StateStatus describes the conflicts on disk. Error is the error of the last write.
type StateStatus struct {
	Dir       string    `json:"dir"`
	WrittenAt time.Time `json:"writtenAt,omitzero"`
	Error     string    `json:"error,omitzero" text:"sentence"`
}

// RuntimeStatus describes the container runtime, from which the agent has the names of pods.
type RuntimeStatus struct {
	Socket    string `json:"socket,omitzero"`
	Name      string `json:"name,omitzero"`
	Version   string `json:"version,omitzero"`
	Connected bool   `json:"connected"`
	Error     string `json:"error,omitzero" text:"sentence"`
	Sandboxes int    `json:"sandboxes"`
	// SandboxesOmitted counts those of them that the agent does not know, because there are too many.
	SandboxesOmitted int `json:"sandboxesOmitted,omitzero"`
	// CacheError is why libcni's cache, which says which interface is a pod's primary one, cannot be read.
	CacheError string `json:"cacheError,omitzero" text:"sentence"`
	// Engines are the container engines without CRI that answer, or cannot.
	Engines []EngineStatus `json:"engines,omitzero"`
}

// EngineStatus describes a container engine without CRI, from which the agent has the names of containers.
type EngineStatus struct {
	Socket     string `json:"socket"`
	Name       string `json:"name,omitzero"`
	Version    string `json:"version,omitzero"`
	Containers int    `json:"containers"` // those that run
	Error      string `json:"error,omitzero" text:"sentence"`
}

// NetworkStatus is a network that the configuration names.
type NetworkStatus struct {
	Name    string `json:"name"`
	Scope   string `json:"scope"`
	Solicit bool   `json:"solicit"`
}

// NormalDrops explains the reasons in [Status].Dropped that are no problem.
var NormalDrops = map[string]string{
	"interface gone":            "the last packets of a pod",
	"older than the TTL":        "packets that were read too late to count",
	"no holder here":            "notices of other nodes about a holder that had left this node by then",
	"log lines about conflicts": "a burst of conflicts has a summary in the log instead",
	"unanswered":                "notices of other nodes about a holder there that did not answer",
}

// Configuration is what "dupip config check" prints: what a configuration file says, with the defaults.
type Configuration struct {
	File      string          `json:"file"`
	Networks  []NetworkStatus `json:"networks"`
	Shared    []string        `json:"shared"`    // addresses and CIDRs
	Exclusive []string        `json:"exclusive"` // the same
	Segments  SegmentRules    `json:"segments"`
	Ignored   []string        `json:"ignoredInterfaces"` // patterns
	Limits    Limits          `json:"limits"`
}

// SegmentRules says what is done on segments that nodes are on.
type SegmentRules struct {
	Ask   bool `json:"ask"`   // somebody is asked there
	Infer bool `json:"infer"` // which second segments are one is found out
}

// Limits are those of the configuration, by the keys of the file.
type Limits struct {
	Bindings             int `json:"bindings"`
	BindingsPerInterface int `json:"bindingsPerInterface"`
	History              int `json:"history"`
	VerifyPerSecond      int `json:"verifyPerSecond"`
	RefreshPerSecond     int `json:"refreshPerSecond"`
}
