// Package api is the agent's local HTTP interface: its documents, its server on a
// Unix socket and the client that the commands use.
//
// The documents are a contract with scripts: fields are added, never renamed.
package api

import "time"

// Binding is one observed holder of one address.
type Binding struct {
	Network     string    `json:"network"`
	IP          string    `json:"ip"`
	Node        string    `json:"node"`
	Interface   string    `json:"interface,omitzero"`
	Ifindex     uint32    `json:"ifindex,omitzero"`
	MAC         string    `json:"mac,omitzero"`
	Netns       string    `json:"netns,omitzero"`
	NetnsCookie uint64    `json:"netnsCookie,omitzero"`
	Evidence    string    `json:"evidence"`
	FirstSeen   time.Time `json:"firstSeen,omitzero"`
	LastSeen    time.Time `json:"lastSeen,omitzero"`
	// Unreachable: the holder's node does not answer.
	Unreachable bool `json:"unreachable,omitzero"`
	Pod         *Pod `json:"pod,omitzero"`
}

// Pod names a workload. It is absent when unknown.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitzero"`
}

// Conflict is one address with two or more live holders.
type Conflict struct {
	ID          string    `json:"id"`
	Network     string    `json:"network"`
	IP          string    `json:"ip"`
	State       string    `json:"state"`
	Scope       string    `json:"scope"`
	SecondSeen  time.Time `json:"secondSeen,omitzero"`
	SuspectedAt time.Time `json:"suspectedAt,omitzero"`
	ConfirmedAt time.Time `json:"confirmedAt,omitzero"`
	ResolvedAt  time.Time `json:"resolvedAt,omitzero"`
	Holders     []Binding `json:"holders"`
}

// Bindings is the answer to GET /v1/bindings.
type Bindings struct {
	Node     string    `json:"node"`
	Bindings []Binding `json:"bindings"`
	Coverage `yaml:",inline"`
}

// Conflicts is the answer to GET /v1/conflicts.
type Conflicts struct {
	Node      string     `json:"node"`
	Conflicts []Conflict `json:"conflicts"`
	Pairs     []Pair     `json:"pairs,omitzero"`
	Coverage  `yaml:",inline"`
}

// BindingEvent is one line of GET /v1/bindings?watch=1. Type is added, changed or removed.
type BindingEvent struct {
	Type    string  `json:"type"`
	Binding Binding `json:"binding"`
}

// ConflictEvent is one line of GET /v1/conflicts?watch=1. Type is suspected,
// confirmed, changed, resolved or faded. A watch begins with the open conflicts,
// each by its present state.
type ConflictEvent struct {
	Type     string    `json:"type"`
	At       time.Time `json:"at"`
	Reason   string    `json:"reason,omitzero"`
	Conflict Conflict  `json:"conflict"`
}

// Note is one line in the story of an address, told by Node. HolderNode is there where
// it tells of a holder on another node.
type Note struct {
	At         time.Time `json:"at"`
	Kind       string    `json:"kind"`
	Node       string    `json:"node"`
	HolderNode string    `json:"holderNode,omitzero"`
	Interface  string    `json:"interface,omitzero"`
	Netns      string    `json:"netns,omitzero"`
	Pod        *Pod      `json:"pod,omitzero"`
	Text       string    `json:"text"`
}

// Story is what is known of one address in one network, by the named nodes.
type Story struct {
	Network string   `json:"network"`
	IP      string   `json:"ip"`
	Nodes   []string `json:"nodes"`
	Verdict string   `json:"verdict"`
	// Verdicts are all there are, where the nodes have different ones.
	Verdicts []Verdict `json:"verdicts,omitzero"`
	Bindings []Binding `json:"bindings"`
	Conflict *Conflict `json:"conflict,omitzero"`
	Notes    []Note    `json:"notes"`
}

// Verdict is what some nodes think of an address.
type Verdict struct {
	Nodes   []string `json:"nodes"`
	Verdict string   `json:"verdict"`
}

// Configured is a pod interface whose netns lists an address, whatever was seen of it.
type Configured struct {
	Network   string `json:"network"`
	Interface string `json:"interface"`
	Netns     string `json:"netns"`
	Pod       *Pod   `json:"pod,omitzero"`
	// Device is "peer", "loopback" or "elsewhere": only the first two answer for the
	// address on the interface by right.
	Device  string `json:"device"`
	Settled bool   `json:"settled"`
	// Unanswered counts the solicitations of an address that was never heard of.
	Unanswered int `json:"unanswered,omitzero"`
}

// Explanation is the answer to GET /v1/explain?ip=.
type Explanation struct {
	Node       string       `json:"node"`
	IP         string       `json:"ip"`
	Stories    []Story      `json:"stories"`
	Configured []Configured `json:"configured,omitzero"`
	Coverage   `yaml:",inline"`
}

// InterfaceStatus is one pod interface in [Status].
type InterfaceStatus struct {
	Name       string   `json:"name"`
	Ifindex    int      `json:"ifindex"`
	Generation uint32   `json:"generation"`
	State      string   `json:"state"`
	Reason     string   `json:"reason,omitzero"`
	Network    string   `json:"network,omitzero"`
	Peer       string   `json:"peer,omitzero"`
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

// Status is the answer to GET /v1/status.
type Status struct {
	Node       string            `json:"node"`
	BootID     string            `json:"bootID"`
	Epoch      int64             `json:"epoch"`
	Version    string            `json:"version"`
	Started    time.Time         `json:"started"`
	Attach     string            `json:"attach"`
	MinOverlap string            `json:"minOverlap"`
	Ready      bool              `json:"ready"`
	Interfaces []InterfaceStatus `json:"interfaces"`
	ByState    map[string]int    `json:"interfacesByState"`
	Bindings   map[string]int    `json:"bindingsByEvidence"`
	Conflicts  map[string]int    `json:"openConflictsByState"`
	Faded      uint64            `json:"suspicionsFaded"`
	Resolved   uint64            `json:"conflictsResolved"`
	// Suppressed counts suspicions that were not raised, by reason.
	Suppressed map[string]uint64 `json:"suppressed"`
	Dropped    map[string]uint64 `json:"dropped"`
	// Pending are records that wait until more is known of their interface.
	Pending     int      `json:"recordsPending"`
	Resyncs     int      `json:"netlinkOverruns"`
	HostHolders []string `json:"hostAddresses"`

	Config  ConfigStatus  `json:"config"`
	State   StateStatus   `json:"state"`
	Runtime RuntimeStatus `json:"runtime"`
	// Metrics is the address of /metrics, empty if it is switched off.
	Metrics string `json:"metrics,omitzero"`
	// Networks are those that the configuration names.
	Networks []NetworkStatus `json:"networks,omitzero"`
	// Cluster is this agent's part in the cluster.
	Cluster ClusterStatus `json:"cluster"`
}

// ConfigStatus is about the configuration file. Error is what is wrong with it now;
// the one that was loaded before stays in force.
type ConfigStatus struct {
	Path     string    `json:"path,omitzero"`
	LoadedAt time.Time `json:"loadedAt,omitzero"`
	Error    string    `json:"error,omitzero"`
}

// StateStatus is about the conflicts on disk. Error is why the last write failed.
type StateStatus struct {
	Dir       string    `json:"dir"`
	WrittenAt time.Time `json:"writtenAt,omitzero"`
	Error     string    `json:"error,omitzero"`
}

// RuntimeStatus is about the container runtime that names the pods.
type RuntimeStatus struct {
	Socket    string `json:"socket,omitzero"`
	Name      string `json:"name,omitzero"`
	Version   string `json:"version,omitzero"`
	Connected bool   `json:"connected"`
	Error     string `json:"error,omitzero"`
	Sandboxes int    `json:"sandboxes"`
}

// NetworkStatus is a network that the configuration names.
type NetworkStatus struct {
	Name    string `json:"name"`
	Scope   string `json:"scope"`
	Solicit bool   `json:"solicit"`
}

// Error is the body of every answer that is not 200.
type Error struct {
	Error string `json:"error"`
}
