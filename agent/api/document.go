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
	BootID    string `json:"boot,omitzero"` // the node's boot id
	Interface string `json:"interface,omitzero"`
	Bridge    string `json:"bridge,omitzero"` // or bond, or VRF: what Interface is a port of
	Ifindex   uint32 `json:"ifindex,omitzero"`
	// Generation distinguishes interfaces that had the same Ifindex. An agent uses each number once.
	Generation  uint32    `json:"generation,omitzero"`
	MAC         string    `json:"mac,omitzero"`
	Netns       string    `json:"netns,omitzero"`
	NetnsCookie uint64    `json:"netnsCookie,omitzero"`
	Evidence    string    `json:"evidence"`
	FirstSeen   time.Time `json:"firstSeen,omitzero"`
	LastSeen    time.Time `json:"lastSeen,omitzero"`
	// FoundAtStart: the agent found the interface when it started, so the holder may have had the address
	// long before FirstSeen.
	FoundAtStart bool `json:"foundAtStart,omitzero"`
	Unreachable  bool `json:"unreachable,omitzero"` // the holder's node does not answer
	// Gone: the holder of a confirmed conflict has gone, or did not answer the last probes.
	Gone bool `json:"gone,omitzero"`
	// Given says whether a network plugin gave the holder the address, by the books of its node; absent if they do not say.
	Given *bool `json:"given,omitzero"`
	Pod   *Pod  `json:"pod,omitzero"`
}

// Pod is a Kubernetes pod, as the container runtime reports it. It is absent if it is unknown.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitzero"`
	// CreatedAt is when the runtime made the pod's sandbox.
	CreatedAt time.Time `json:"createdAt,omitzero"`
	Sandbox   string    `json:"sandbox,omitzero"` // the first 13 characters of its id, as crictl prints it
	Stopped   bool      `json:"stopped,omitzero"` // the sandbox is not ready
}

// Conflict is one address that has, or had, several live holders. Holders that are gone are not in Holders,
// so a suspected or resolved conflict may have fewer than two.
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
	// Drill: the address is of 192.0.2.0/24 (TEST-NET-1) in network default, no network plugin gave it to a holder, and no
	// node has it. Pods have it on purpose, to see that conflicts are found, and nothing is to be done.
	Drill bool `json:"drill,omitzero"`
	// Pending is why a suspected conflict is not confirmed yet, a clause for people.
	Pending string `json:"pending,omitzero"`
	// Routes and Advice are present for the first 64 confirmed conflicts that are no drills, in /v1/conflicts and
	// /v1/explain.
	Routes []Route `json:"routes,omitzero"`
	Advice *Advice `json:"advice,omitzero"`
}

// Route is where the kernel of a node sends its own packets to the address of a conflict.
type Route struct {
	// Node includes the boot id if another node has the same name.
	Node string `json:"node"`
	// To is the kind of the destination:
	//   - "holder": the holder with the index Holder
	//   - "node": another node, ToNode
	//   - "away": a host that is no node of the cluster
	//   - "device": a device that leads to no known holder
	//   - "self": the node itself
	//   - "nowhere": there is no route
	//   - "unknown": a bridge that has no neighbour entry for the address
	To      string `json:"to"`
	Holder  *int   `json:"holder,omitzero"` // index in Conflict.Holders
	ToNode  string `json:"toNode,omitzero"`
	Device  string `json:"device,omitzero"`  // outgoing
	Gateway string `json:"gateway,omitzero"` // next hop, if any
}

// Advice is what to do about a conflict. It identifies a holder by its index in Conflict.Holders.
type Advice struct {
	// Newer is the holder that got the address last. Than is the holder that got it before Newer. Both are
	// absent if the order is unknown; Unknown is then the reason.
	Newer *int `json:"newer,omitzero"`
	Than  *int `json:"than,omitzero"`
	// Newer got the address AfterSeconds later than Than. By is the time that was compared: "created" (of
	// the sandboxes) or "firstSeen".
	By           string  `json:"by,omitzero"`
	AfterSeconds float64 `json:"afterSeconds,omitzero"`
	// Unknown is the reason why Newer is absent:
	//   - "found-at-start": an agent found the holder when it started, which tells no age
	//   - "together": the times are too close to each other
	//   - "another-order": the times of creation and of first seen contradict each other
	//   - "host": a node's own address has no age
	//   - "unreachable": a holder's node does not answer; check the node first
	//   - "two-nodes": two nodes run one pod; remove one of the nodes
	//   - "away": the newest holder came while its node and an elder one's had lost each other, see Away
	//   - "gone": with fewer than two live holders the conflict ends by itself
	Unknown string `json:"unknown,omitzero"`
	Away    *Away  `json:"away,omitzero"`
	// GivenByNodes: the newest holder was given the address by its own node, and only what other nodes report speaks
	// against it. Neither node can tell which holder is right: Remove is in order of age, and each may be the wrong one.
	GivenByNodes bool `json:"givenByNodes,omitzero"`
	// Held are the holders that prevent a removal now: their node does not answer, two nodes run their pod, or they have
	// gone.
	Held []int `json:"held,omitzero"`
	// Remove has all holders in the order in which to remove them, nodes last. The conflict ends when one
	// holder remains. Remove is empty if no holder should be removed now.
	Remove []Removal `json:"remove"`
}

// Away says that the nodes of two holders had lost each other when the newer one came: if the elder's node was given up
// meanwhile, its pod is an orphan, and the newer one is there in its place.
type Away struct {
	Elder int       `json:"elder"`
	Newer int       `json:"newer"`
	Nodes []string  `json:"nodes"` // the elder's and the newer one's
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
}

// Removal says how to remove a holder.
type Removal struct {
	Holder int `json:"holder"`
	// Because is the reason to remove this holder before those that follow: "stopped" (its sandbox is
	// stopped), "replaced" (a later sandbox has its pod's name), "not-given" (no network plugin gave it the address,
	// but one gave it to another holder), "newer" (it got the address last), "dark"
	// (no node sends packets to it), or "pod" (another holder is a node).
	Because string `json:"because,omitzero"`
	// Command removes the holder. It is safe for a shell. Run it on the node On, or anywhere if On is
	// empty. It is absent if the holder is a node, or no command is known.
	Command string `json:"command,omitzero"`
	On      string `json:"on,omitzero"`
	Address string `json:"address,omitzero"` // of On's agent, if known
	// Then are the commands to run after Command, for nodes whose neighbour entry has the holder's MAC.
	Then []Flush `json:"then,omitzero"`
}

// Flush removes the node On's neighbour entry for the address on Device. Command and Device are safe for
// a shell.
type Flush struct {
	Command string `json:"command"`
	On      string `json:"on"`
	Device  string `json:"device"`
}

// Bindings is the response to GET /v1/bindings.
type Bindings struct {
	Node     string           `json:"node"`
	Bindings []Binding        `json:"bindings"`
	Coverage `yaml:",inline"` // its fields are fields of this document, in JSON and YAML
}

// Conflicts is the response to GET /v1/conflicts.
type Conflicts struct {
	Node      string     `json:"node"`
	Conflicts []Conflict `json:"conflicts"`
	Pairs     []Pair     `json:"pairs,omitzero"`
	Coverage  `yaml:",inline"`
}

// BindingEvent is one line of GET /v1/bindings?watch=1. Type is added, changed or removed.
type BindingEvent struct {
	Type    string    `json:"type"`
	At      time.Time `json:"at"`
	Binding Binding   `json:"binding"`
}

// ConflictEvent is one line of GET /v1/conflicts?watch=1. Type is suspected, confirmed, changed,
// resolved or faded. A watch begins with the open conflicts; Type is then their state.
type ConflictEvent struct {
	Type     string    `json:"type"`
	At       time.Time `json:"at"`
	Reason   string    `json:"reason,omitzero"`
	Conflict Conflict  `json:"conflict"`
}

// Note is one event in the story of an address, recorded by Node. HolderNode is present if the holder is
// on another node.
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

// Story is what Nodes know about one address in one network: verdict, bindings, conflict and past events.
type Story struct {
	Network  string    `json:"network"`
	IP       string    `json:"ip"`
	Nodes    []string  `json:"nodes"`
	Verdict  string    `json:"verdict"`
	Verdicts []Verdict `json:"verdicts,omitzero"` // if the nodes have different ones
	Bindings []Binding `json:"bindings"`
	Conflict *Conflict `json:"conflict,omitzero"`
	Notes    []Note    `json:"notes"`
}

// Verdict is the verdict of those nodes.
type Verdict struct {
	Nodes   []string `json:"nodes"`
	Verdict string   `json:"verdict"`
}

// Configured is a pod interface of this node whose netns has the address, or a local route to it, by the kernel's lists and
// not by observed packets.
type Configured struct {
	Network   string `json:"network"`
	Interface string `json:"interface"`
	Netns     string `json:"netns"`
	Pod       *Pod   `json:"pod,omitzero"`
	// Device is the kind of the device in the pod that has the address: "peer" (the other end of the
	// interface), "loopback" or "elsewhere". The pod is a holder only by an address on the first two.
	Device     string `json:"device"`
	Settled    bool   `json:"settled"`             // duplicate address detection has ended, and the address is in use
	Lost       bool   `json:"lost,omitzero"`       // duplicate address detection failed: the kernel does not use the address
	Unanswered int    `json:"unanswered,omitzero"` // unanswered probes, if the address was never observed
}

// Explanation is the response to GET /v1/explain?ip=.
type Explanation struct {
	Node   string `json:"node"`
	BootID string `json:"boot,omitzero"` // of the node, because another one may have its name
	IP     string `json:"ip"`
	// NeverCompared says what the address is if its holders are never compared: "loopback", "link-local", "multicast" or
	// "unspecified".
	NeverCompared string       `json:"neverCompared,omitzero"`
	Stories       []Story      `json:"stories"`
	Configured    []Configured `json:"configured,omitzero"`
	Books         []Book       `json:"books,omitzero"` // those that cover the address or have it, of all nodes that were asked
	Coverage      `yaml:",inline"`
}

// InterfaceStatus is one pod interface in [Status].
type InterfaceStatus struct {
	Name       string   `json:"name"`
	Kind       string   `json:"kind,omitzero"` // macvlan, ipvlan or vlan: the device has no end on the node, and is in that of the pod
	Ifindex    int      `json:"ifindex"`       // in its netns
	Generation uint32   `json:"generation"`
	State      string   `json:"state"`
	Reason     string   `json:"reason,omitzero"`
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
	// Suppressed counts suspicions that were not raised although an address has several holders, by reason.
	Suppressed      map[string]uint64 `json:"suppressed"`
	Dropped         map[string]uint64 `json:"dropped"`
	Pending         int               `json:"recordsPending"` // records that wait for their interface to be scanned
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
	BooksError string       `json:"booksError,omitzero"`
	// Audit is the verdict of this node's audit, AuditUnchecked what was not looked for, and why, as in Audit.
	Audit          string          `json:"audit"`
	AuditUnchecked []string        `json:"auditUnchecked,omitzero"`
	Metrics        string          `json:"metrics,omitzero"`  // address of /metrics, empty if disabled
	Networks       []NetworkStatus `json:"networks,omitzero"` // those in the configuration
	Cluster        ClusterStatus   `json:"cluster"`
}

// DADFailed is an address of a pod whose IPv6 duplicate address detection failed.
type DADFailed struct {
	Network   string `json:"network"`
	IP        string `json:"ip"`
	Interface string `json:"interface"`
	Netns     string `json:"netns"`
	Pod       *Pod   `json:"pod,omitzero"`
}

// ConfigStatus describes the configuration file. Error is what is wrong with the file now; the previous
// content stays active.
type ConfigStatus struct {
	Path     string    `json:"path,omitzero"`
	LoadedAt time.Time `json:"loadedAt,omitzero"`
	Error    string    `json:"error,omitzero"`
}

// StateStatus describes the conflicts on disk. Error is the error of the last write.
type StateStatus struct {
	Dir       string    `json:"dir"`
	WrittenAt time.Time `json:"writtenAt,omitzero"`
	Error     string    `json:"error,omitzero"`
}

// RuntimeStatus describes the container runtime, from which the agent has the names of pods.
type RuntimeStatus struct {
	Socket    string `json:"socket,omitzero"`
	Name      string `json:"name,omitzero"`
	Version   string `json:"version,omitzero"`
	Connected bool   `json:"connected"`
	Error     string `json:"error,omitzero"`
	Sandboxes int    `json:"sandboxes"`
	// SandboxesOmitted counts those of them that the agent does not know, because there are too many.
	SandboxesOmitted int `json:"sandboxesOmitted,omitzero"`
	// CacheError is why libcni's cache, which says which interface is a pod's primary one, cannot be read.
	CacheError string `json:"cacheError,omitzero"`
}

// NetworkStatus is a network that the configuration names.
type NetworkStatus struct {
	Name    string `json:"name"`
	Scope   string `json:"scope"`
	Solicit bool   `json:"solicit"`
}

// Configuration is what "dupip config check" prints: what a configuration file says, with the defaults.
type Configuration struct {
	File     string          `json:"file"`
	Networks []NetworkStatus `json:"networks"`
	Shared   []string        `json:"shared"`            // addresses and CIDRs
	Ignored  []string        `json:"ignoredInterfaces"` // patterns
	Limits   Limits          `json:"limits"`
}

// Limits are those of the configuration, by the keys of the file.
type Limits struct {
	Bindings             int `json:"bindings"`
	BindingsPerInterface int `json:"bindingsPerInterface"`
	History              int `json:"history"`
	VerifyPerSecond      int `json:"verifyPerSecond"`
	RefreshPerSecond     int `json:"refreshPerSecond"`
}

// Error is the body of every response whose status is not 200.
type Error struct {
	Error string `json:"error"`
}

// Version is what "dupip version -o json" prints.
type Version struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	Arch    string `json:"arch"`
}

// NormalDrops explains the reasons in [Status].Dropped that are no problem.
var NormalDrops = map[string]string{
	"interface gone":            "the last packets of a pod",
	"older than the TTL":        "packets that were read too late to count",
	"no holder here":            "notices of other nodes about a holder that had left this node by then",
	"log lines about conflicts": "a burst of conflicts has a summary in the log instead",
	"unanswered":                "notices of other nodes about a holder there that did not answer",
}
