// Package api is the agent's local HTTP interface: its documents, its server on a
// Unix socket and the client that the commands use.
//
// The documents are a contract with scripts: fields are added, never renamed.
package api

import "time"

// Binding is one observed holder of one address.
type Binding struct {
	Network   string `json:"network"`
	IP        string `json:"ip"`
	Node      string `json:"node"`
	Boot      string `json:"boot,omitzero"` // the node's boot id
	Interface string `json:"interface,omitzero"`
	Ifindex   uint32 `json:"ifindex,omitzero"`
	// Generation tells lives of one Ifindex apart; it is unique in the life of an agent.
	Generation  uint32    `json:"generation,omitzero"`
	MAC         string    `json:"mac,omitzero"`
	Netns       string    `json:"netns,omitzero"`
	NetnsCookie uint64    `json:"netnsCookie,omitzero"`
	Evidence    string    `json:"evidence"`
	FirstSeen   time.Time `json:"firstSeen,omitzero"`
	LastSeen    time.Time `json:"lastSeen,omitzero"`
	// FoundAtStart: it was there when its node's agent began to look at the interface, and
	// may have had the address for long before FirstSeen.
	FoundAtStart bool `json:"foundAtStart,omitzero"`
	// Unreachable: the holder's node does not answer.
	Unreachable bool `json:"unreachable,omitzero"`
	Pod         *Pod `json:"pod,omitzero"`
}

// Pod names a workload. It is absent when unknown.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitzero"`
	// CreatedAt is when the runtime made the pod's sandbox.
	CreatedAt time.Time `json:"createdAt,omitzero"`
	// Sandbox is how the sandbox's id begins, as crictl prints it. Stopped: the runtime says
	// that it is not ready.
	Sandbox string `json:"sandbox,omitzero"`
	Stopped bool   `json:"stopped,omitzero"`
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
	// Routes and Advice are there for the first 64 that are confirmed, when the conflicts
	// or the story of one address are asked for.
	Routes []Route `json:"routes,omitzero"`
	Advice *Advice `json:"advice,omitzero"`
}

// Route is where the kernel of a node sends packets of its own to the address of a conflict.
type Route struct {
	// Node is told apart by its boot where another has the same name.
	Node string `json:"node"`
	// To is "holder", "node" (ToNode), "away" (off the node), "device" (into one that leads
	// to no holder that is known), "self", "nowhere" (no route), or "unknown": into a
	// bridge that has no neighbour entry for the address now.
	To string `json:"to"`
	// Holder is the place in the conflict's holders, from 0.
	Holder *int   `json:"holder,omitzero"`
	ToNode string `json:"toNode,omitzero"`
	// Device is what they leave by, Gateway the next hop if there is one.
	Device  string `json:"device,omitzero"`
	Gateway string `json:"gateway,omitzero"`
}

// Advice is what to do about a conflict. Holders are named by their places, from 0.
type Advice struct {
	// Newer is the one that has the address for the shortest time, Than the one next to it;
	// absent where that is not known, for the reason in Unknown.
	Newer *int `json:"newer,omitzero"`
	Than  *int `json:"than,omitzero"`
	// By is "created", of the sandboxes, or "firstSeen". AfterSeconds is by how much.
	By           string  `json:"by,omitzero"`
	AfterSeconds float64 `json:"afterSeconds,omitzero"`
	// Unknown is "found-at-start", "together", "another-order" (by creation than by first
	// seen), "host": a node's own address has no age, "unreachable": a holder's node does
	// not answer, and nothing is to be removed before it is known what is there, or
	// "two-nodes" run one pod, and one of the nodes has to go.
	Unknown string `json:"unknown,omitzero"`
	// Held are the holders because of which nothing is to be removed now: those whose nodes
	// do not answer, or of the pod that two nodes run.
	Held []int `json:"held,omitzero"`
	// Remove is in the order in which to remove them. All but the last, unless that is
	// a node itself, have to go to end the conflict. It is empty where nothing is to be
	// removed now.
	Remove []Removal `json:"remove"`
}

// Removal says how to remove a holder.
type Removal struct {
	Holder int `json:"holder"`
	// Because says why it is before the others: "stopped" (its sandbox is), "replaced" (a
	// later sandbox has its pod's name), "newer", "dark" (no node sends packets to it), or
	// "pod" (the other is a node).
	Because string `json:"because,omitzero"`
	// Command is fit for a shell. It is for the node On, or for anywhere. It is absent where
	// nothing can be said, and for a node itself.
	Command string `json:"command,omitzero"`
	On      string `json:"on,omitzero"`
	// Address is that of On's agent, where that is known.
	Address string `json:"address,omitzero"`
	// Then is for nodes that find the holder by a neighbour entry, and would go on sending
	// to its MAC for a while.
	Then []Flush `json:"then,omitzero"`
}

// Flush makes the node On forget the neighbour entry for the address on Device. Command is fit
// for a shell, as is Device.
type Flush struct {
	Command string `json:"command"`
	On      string `json:"on"`
	Device  string `json:"device"`
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
