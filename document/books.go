package document

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Book is what an IPAM says of an address: one of a node, or one of the whole cluster, which only a reporter reads.
type Book struct {
	Node       string `json:"node"` // empty for a book of the whole cluster
	BootID     string `json:"boot,omitzero"`
	Kind       string `json:"kind"`                // "host-local", "azure-cns", "calico", "whereabouts", "cilium", "azure"
	CNINetwork string `json:"cniNetwork,omitzero"` // in CNI's configuration
	Covers     bool   `json:"covers"`              // it gives out addresses of a range with this one, Range
	Range      string `json:"range,omitzero"`      // "first-last"
	// Reservation says who has it reserved, absent for nobody.
	Reservation *Reservation `json:"reservation,omitzero"`
	// Former is the reservation of a live holder that has ended, in a book of the whole cluster.
	Former *Reservation `json:"former,omitzero"`
	// OwnerUID is that of the Node that the object of the reservation's node belongs to, in a book of the whole cluster, if it is an earlier
	// Node of that name.
	OwnerUID string `json:"ownerUID,omitzero"`
	// Unreserved counts the pods of the node that were given addresses which the book has not reserved for them any more.
	Unreserved int    `json:"unreserved,omitzero"`
	Error      string `json:"error,omitzero" text:"sentence"` // why the book cannot be read
}

// NodeID identifies the node of the book, as [cluster.NodeID].
func (b Book) NodeID() string { return cluster.NodeID(b.Node, b.BootID) }

// Audit is the response to GET /v1/audit: where the books and the wire say different things.
type Audit struct {
	Node     string    `json:"node"`
	BootID   string    `json:"boot,omitzero"` // the node's boot id
	At       time.Time `json:"at,omitzero"`   // when this node's books were read
	Findings []Finding `json:"findings"`
	// Verdict is "findings" (there are some), "agree" (books and wire, and all that was asked for was compared), "partly checked"
	// (there is no finding in what was compared, which is not all) or "not checked" (nothing that was asked for was compared).
	// Checked are the networks of CNI's configuration whose books were compared with it.
	Verdict string   `json:"verdict"`
	Checked []string `json:"checked,omitzero"`
	// Books are those of this node. Unchecked says what was not looked for, and why; Error why CNI's configuration cannot be
	// read, or not all of it.
	Books     []BookStatus `json:"books,omitzero"`
	Unchecked []string     `json:"unchecked,omitzero" text:"sentence"`
	Error     string       `json:"error,omitzero" text:"sentence"`
	Coverage
}

// Kubernetes is the kind of the book that the Pods and Nodes of the API server are.
const Kubernetes = "kubernetes"

// The verdicts of an [Audit].
const (
	AuditFindings = "findings"
	AuditAgrees   = "agree"
	AuditPartly   = "partly checked"
	AuditNothing  = "not checked"
)

// The kinds of findings.
const (
	// Unreserved: a pod has the address, but nobody has it reserved. It may be given out again.
	Unreserved = "unreserved"
	// Mismatched: a pod has the address, but it is reserved for another pod that runs.
	Mismatched = "mismatched"
	// Unheld: the address is reserved for a sandbox that does not exist any more. The range has one address less.
	Unheld = "unheld"
	// Diverted: a node does not send packets to the address where the pod is, or answers ARP for it: by its own kernel.
	Diverted = "diverted"
	// Misrouted: the routes of nodes lead packets to the address to another node than the pod's.
	Misrouted = "misrouted"

	// TwoNodes: another node has an address of this node for itself, too, and they were not heard answering for it on one segment; or it is the
	// gateway of pods on one of them.
	TwoNodes = "two-nodes"
	// Stranger: somebody else announces an address of this node, or of a pod of it, on the segment that joins the nodes, or answers for it.
	Stranger = "stranger"

	// The others are found by a reporter.

	// Misbooked: the address is reserved for the pod that has it, but on another node: what frees leaked addresses takes it for one. Or a
	// book that has the addresses of nodes has it for another node, which may give it to a pod.
	Misbooked = "misbooked"
	// Stale: the book of a node belongs to an earlier node of its name, whose addresses it has.
	Stale = "stale"
	// Deleted: pods of a node run on that the API server has no more.
	Deleted = "deleted"
	// Overlapping: a node gives out addresses of a range that is another node's.
	Overlapping = "overlapping"
	// Twice: the API server has two live pods with the address.
	Twice = "twice"
	// Unlisted: a pod runs that the API server does not have.
	Unlisted = "unlisted"
)

// InConflict is how metrics count the findings whose address has collided: a conflict tells of them, with its own alert.
const InConflict = "in_conflict"

// OfReporters are the kinds of findings that only a reporter has: no agent reads the API server's books.
var OfReporters = []string{Misbooked, Stale, Deleted, Overlapping, Twice, Unlisted}

// FindingKinds are all kinds of findings, the most urgent first. Agents of other versions may know more.
var FindingKinds = []string{Misbooked, Stale, Deleted, Overlapping, Mismatched, Unreserved, Diverted, TwoNodes, Stranger, Misrouted, Twice, Unlisted, Unheld}

// Where packets go that do not come to the holder of a [Misrouted] or [Diverted] address.
const (
	EndsNowhere = "nowhere" // the last node has no route for them
	EndsAtPods  = "pods"    // it sends them to its own pods, of a diverted address: others than the holder
	EndsInLoop  = "loop"    // it is one that had them before
	EndsAtSelf  = "self"    // the node takes them for its own
	EndsAtNode  = "node"    // it sends them to another node, but the holder is its own pod
	// It answers ARP or NS for the address, and sends what comes elsewhere: by a proxy entry of the address, or as a device or all devices
	// have proxy_arp.
	EndsByProxy    = "proxy"
	EndsByProxyARP = "proxy_arp"
	EndsByProxyAll = "proxy_arp all"
)

// Finding is an address of which a book and the wire say different things. Its Holder is the pod that has the address; if Kind is [Unheld]
// there mostly is none, and only the node is known. Of [Stale], [Deleted] and [Overlapping] there is one for a node, without an address.
type Finding struct {
	// Kind is "unreserved" (a pod has the address, nobody has it reserved: it may be given out again), "mismatched" (it is
	// reserved for another pod that runs), "unheld" (it is reserved for a sandbox that does not exist any more), "misrouted" (packets to it go to another node), "diverted" (the kernel of the node itself sends them elsewhere),
	// "two-nodes" (another node has it for itself, too), "stranger" (somebody else announces it, or answers for it), "misbooked" (it is reserved
	// for the pod, but on another node, or for that node), "stale" (the book of the node belongs to an earlier node of its name), "deleted" (the API server has no such node, and pods run there), "overlapping" (the node gives out
	// a range of another one), "twice" (the API server has two live pods with the address) or "unlisted" (it does not have the pod).
	Kind       string     `json:"kind"`
	IP         netip.Addr `json:"ip,omitzero"`
	CNINetwork string     `json:"cniNetwork"` // in CNI's configuration, or the pool
	Book       string     `json:"book"`       // its kind: "host-local", "azure-cns", "kubernetes", or that of a book of the cluster, such as "calico"
	Store      string     `json:"store"`      // its path on the node, empty for a book of the whole cluster
	Since      time.Time  `json:"since"`
	Holder
	Sandbox string `json:"sandbox,omitzero"` // the whole id
	// ReservedFor is the id of the sandbox that has the reservation; ReservedPod is its pod, if that runs.
	ReservedFor string `json:"reservedFor,omitzero"`
	ReservedPod *Pod   `json:"reservedPod,omitzero"`
	// ReservedNode is the node that the reservation is for, in a book of the whole cluster; or the node whose range it is.
	ReservedNode string `json:"reservedNode,omitzero"`
	// FreedBy is when at the latest the reservation is freed by what looks for leaked addresses.
	FreedBy  time.Time `json:"freedBy,omitzero"`
	Ranges   []string  `json:"ranges,omitzero"`   // those that overlap
	OwnerUID string    `json:"ownerUID,omitzero"` // of [Stale]: that of the Node that the book's object belongs to
	Pods     int       `json:"pods,omitzero"`     // that run on a deleted node; of [TwoNodes] those of the node with addresses of Prefix, if it is a gateway
	// Of [Misrouted]: HeldBy is the node of the pod, and Node the one whose packets were followed, Through the nodes after it. End is what
	// the last one does with them: "nowhere", "pods" or "loop".
	HeldBy  string   `json:"heldBy,omitzero"`
	Through []string `json:"through,omitzero"`
	End     string   `json:"end,omitzero"`
	Partly  bool     `json:"partly,omitzero"` // only some packets go there: there are other routes, too
	// Of [Diverted]: HeldBy is the node of the pod, and Node the one that diverts packets, by the route for Route in Table, which Protocol has
	// put there, and by Device; with a proxy the device on which the node answers. Through is the other node that gets them, if End is "node".
	Device   string       `json:"device,omitzero"`
	Route    netip.Prefix `json:"route,omitzero"`
	Table    int          `json:"table,omitzero"`
	Protocol string       `json:"protocol,omitzero"`
	// Of [TwoNodes]: HeldBy is the other node, Prefix the address with its subnet on the node's Interface, and Gateway whether it is that of pods.
	Prefix  netip.Prefix `json:"prefix,omitzero"`
	Gateway bool         `json:"gateway,omitzero"`
	// Of [Stranger]: By is the MAC that is heard, and HeldBy the node that has it, empty if none has.
	By detector.MAC `json:"by,omitzero"`
	// Contested: the address is in a confirmed conflict that is open, whose judgement says what to do.
	Contested bool `json:"contested,omitzero"`
}

// Reservation is an address that is reserved for a sandbox.
type Reservation struct {
	Sandbox string `json:"sandbox"` // the first 13 characters of its id
	// Sandboxes are all that the book has it for if these are several, of which one has it; then Sandbox is empty.
	Sandboxes []string  `json:"sandboxes,omitzero"`
	Pod       *Pod      `json:"pod,omitzero"`  // absent if the sandbox is none of the pods behind observed interfaces, or if only the node is known
	Node      string    `json:"node,omitzero"` // in a book of the whole cluster
	Since     time.Time `json:"since,omitzero"`
	Until     time.Time `json:"until,omitzero"` // when it ended
}

// Listing is what the API server says of a holder. Only a reporter asks it.
type Listing struct {
	// Pod is "listed", "ending" (it was deleted) or "unlisted" (there is no such pod), empty if that is not known.
	Pod string `json:"pod,omitzero"`
	// NodeDeleted is since when there is no Node of the holder's node, at the latest; zero if there is one.
	NodeDeleted time.Time `json:"nodeDeleted,omitzero"`
}

// What the API server says of pods.
const (
	PodListed   = "listed"
	PodEnding   = "ending"
	PodUnlisted = "unlisted"
)

// BookStatus describes what an IPAM says of one network of CNI's configuration.
type BookStatus struct {
	Kind       string `json:"kind"` // of the IPAM: "host-local", "azure-cns"
	CNINetwork string `json:"cniNetwork"`
	Store      string `json:"store"` // its path on the node
	// Ranges are those that addresses are given out from, as "first-last"; none if they are not known.
	Ranges   []string `json:"ranges,omitzero"`
	Reserved int      `json:"reserved"`
	// LeftPercent is how much of the ranges is not reserved, absent if they are not known.
	LeftPercent *float64 `json:"leftPercent,omitzero"`
	Error       string   `json:"error,omitzero" text:"sentence"` // why the store cannot be read
}
