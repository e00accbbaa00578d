// Package cluster has the types that the packages agent and gossip share without importing each
// other: plain values that agents send to each other.
//
// Times are on the local clock. Messages have ages, which the receiver converts to its own clock.
package cluster

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
)

// NodeID identifies one boot of a node; it is the Node of a [detector.HolderID]. An agent that
// restarts keeps it: the cookies of network namespaces are unique for a boot.
func NodeID(name, bootID string) string { return name + "/" + bootID }

// NodeName is the node's name in a NodeID, for people.
func NodeName(id string) string {
	name, _, _ := strings.Cut(id, "/")
	return name
}

// BootID is the kernel's boot id in a NodeID.
func BootID(id string) string {
	_, boot, _ := strings.Cut(id, "/")
	return boot
}

// Binding is a holder of an address, as its node reports it. The address is beside it.
type Binding struct {
	// Holder has ID and MAC; only in a [ProbeReply] and a [Document] also the rest.
	Holder    detector.Holder   `cbor:"1,keyasint,omitzero"`
	Evidence  detector.Evidence `cbor:"2,keyasint,omitzero"`
	FirstSeen time.Time         `cbor:"3,keyasint,omitzero"`
	// FoundAtStart is as in [detector.Binding], where Holder is complete.
	FoundAtStart bool `cbor:"4,keyasint,omitzero"`
	// LastSeen is when the holder's node confirmed the binding last.
	LastSeen time.Time `cbor:"5,keyasint,omitzero"`
	// Occurrences is how many conflicts of the address are resolved as far as the holder's node
	// knows, so that the next one has the same ID on all nodes.
	Occurrences int `cbor:"6,keyasint,omitzero"`
}

// Like reports that a binding of the same holder says nothing new.
func (b *Binding) Like(o *Binding) bool {
	return b.Holder.MAC == o.Holder.MAC && b.Evidence == o.Evidence && b.Occurrences == o.Occurrences
}

// Lease is a binding as sent to the keepers of its address.
type Lease struct {
	Key     detector.Key
	Binding Binding
}

// Message is what other nodes send to this one: a ConflictNotice, a ProbeRequest, a ProbeReply, a
// Query, Returned, or, to a reporter only, a Report.
type Message interface{ message() }

// ConflictNotice reports that an address that this node leased has holders on other nodes.
type ConflictNotice struct {
	Key      detector.Key
	Bindings []Binding
}

// ProbeRequest asks whether a holder of this node has an address now. The reply has the same ID.
type ProbeRequest struct {
	ID uint64
	// From is the NodeID of the sender.
	From   string
	Key    detector.Key
	Holder detector.HolderID
	// Bindings are the sender's own holders of the address.
	Bindings []Binding
}

// Outcome is the result of a probe request.
type Outcome uint8

// The outcomes of a probe request.
const (
	Answered    Outcome = iota + 1 // the holder answered its agent after the request had arrived
	Unanswered                     // it was probed and did not answer
	Forwards                       // it answered, but for an address it does not have
	Gone                           // the node has no such holder of the address, or not any more
	Refused                        // a guard forbids to probe it, for Reason and until RetryAt
	Unreachable                    // the node did not reply. Never on the wire
)

// ProbeReply is the reply to a probe request of this node, or a withdrawal that was not requested:
// then Outcome is Gone and Probe has Key and Holder only.
type ProbeReply struct {
	// Probe is what the request was about, unchanged.
	Probe   detector.Probe
	Outcome Outcome
	// At is when the holder answered, not before the request was sent.
	At time.Time
	// Binding is complete if the Outcome is Answered, Unanswered, Forwards or Refused.
	Binding Binding
	// Reason is a short clause for people. RetryAt is zero if no time is known.
	Reason  string
	RetryAt time.Time
}

// Returned reports that a node is alive again that had left probe requests of this one without a
// reply.
type Returned struct {
	// Node is its NodeID.
	Node string
}

// QueryKind is what a query requests.
type QueryKind uint8

// The kinds of queries.
const (
	QueryBindings QueryKind = iota + 1
	QueryConflicts
	QueryStories
	QueryFindings
	QueryStatus
	QueryEvidence
)

// Query requests a [Document] of a member.
type Query struct {
	Kind QueryKind
	// Answer takes the document for another node, one, without waiting. It is nil in a query of this node.
	Answer chan<- Document
	// IP restricts it to one address; the zero Addr is all. Stories and evidence need one.
	IP netip.Addr
	// All includes resolved conflicts.
	All bool
	// Only restricts bindings, conflicts and findings.
	Only Only
	// Node restricts a query of this node to the members with that node name.
	Node string
}

// Only is what a query is about; what is empty restricts nothing. A node that does not know it answers more.
type Only struct {
	Prefix    netip.Prefix `cbor:"1,keyasint,omitzero"`
	Namespace string       `cbor:"2,keyasint,omitzero"`
	Pod       string       `cbor:"3,keyasint,omitzero"` // "name" or "namespace/name"
	Network   string       `cbor:"4,keyasint,omitzero"`
}

// Document is what one agent knows; fields that were not requested are empty.
type Document struct {
	Bindings  []detector.Binding  `cbor:"1,keyasint,omitempty"`
	Conflicts []detector.Conflict `cbor:"2,keyasint,omitempty"`
	Stories   []detector.Story    `cbor:"3,keyasint,omitempty"`
	// NextHops are where the node's kernel would send packets to these addresses.
	NextHops []NextHop `cbor:"4,keyasint,omitempty"`
	// Omitted counts what did not fit.
	Omitted int `cbor:"5,keyasint,omitempty"`
	// Findings are those of the node's books.
	Findings []Finding `cbor:"6,keyasint,omitempty"`
	// Unchecked says which findings the node did not look for, or which packets it did not capture, and why.
	Unchecked []string `cbor:"8,keyasint,omitempty"`
	// Checked are the networks of CNI's configuration whose books the node has compared with what the findings were asked for.
	Checked []string `cbor:"12,keyasint,omitempty"`
	// Books are what the node's books say of the address of its stories.
	Books []Book `cbor:"7,keyasint,omitempty"`
	// Away are the nodes with holders of its conflicts that the node had lost for a while.
	Away []Away `cbor:"9,keyasint,omitempty"`
	// Status is the document of the node's status, in JSON.
	Status []byte `cbor:"10,keyasint,omitempty"`
	// Captures are what the node's holders of the address sent.
	Captures []Capture `cbor:"11,keyasint,omitempty"`
}

// Capture is what one holder of a suspected address sent.
type Capture struct {
	// Conflict is its ID.
	Conflict string          `cbor:"1,keyasint,omitzero"`
	Key      detector.Key    `cbor:"2,keyasint,omitzero"`
	Holder   detector.Holder `cbor:"3,keyasint,omitzero"`
	// Since is when the capture began, with the suspicion or the holder, and Until when the conflict ended, or the holder
	// left it; zero if neither has.
	Since time.Time `cbor:"4,keyasint,omitzero"`
	Until time.Time `cbor:"5,keyasint,omitzero"`
	// Frames are in the order of time.
	Frames []Frame `cbor:"6,keyasint,omitempty"`
	// Lost counts the frames that were lost because many came at once.
	Lost int `cbor:"7,keyasint,omitzero"`
}

// Frame is an Ethernet frame of Length bytes, of which Data has the headers.
type Frame struct {
	At     time.Time `cbor:"1,keyasint,omitzero"`
	Length int       `cbor:"2,keyasint,omitzero"`
	Data   []byte    `cbor:"3,keyasint,omitempty"`
}

// Away is when a node, or the one that says so, was cut off, see [Member].AwayFrom.
type Away struct {
	Node  string    `cbor:"1,keyasint,omitzero"` // its NodeID
	From  time.Time `cbor:"2,keyasint,omitzero"`
	Until time.Time `cbor:"3,keyasint,omitzero"`
}

// The kinds of findings.
const (
	// Unreserved: a pod has the address, but nobody has it reserved. It may be given out again.
	Unreserved = "unreserved"
	// Mismatched: a pod has the address, but it is reserved for another pod that runs.
	Mismatched = "mismatched"
	// Unheld: the address is reserved for a sandbox that does not exist any more. The range has one address less.
	Unheld = "unheld"
)

// FindingKinds are all kinds of findings, the most urgent first. Agents of other versions may know more.
var FindingKinds = []string{Mismatched, Unreserved, Unheld}

// Finding is an address of which a book of a node and the wire say different things.
type Finding struct {
	Kind string     `cbor:"1,keyasint,omitzero"`
	IP   netip.Addr `cbor:"2,keyasint,omitzero"`
	// Book is its kind, Network its name in CNI's configuration, Store its path on the node.
	Book    string    `cbor:"3,keyasint,omitzero"`
	Network string    `cbor:"4,keyasint,omitzero"`
	Store   string    `cbor:"5,keyasint,omitzero"`
	Since   time.Time `cbor:"6,keyasint,omitzero"` // when it was found
	// The holder: its interface, netns, pod and sandbox, in full if the book has it. They are empty if there is none.
	Interface string         `cbor:"7,keyasint,omitzero"`
	Netns     string         `cbor:"8,keyasint,omitzero"`
	Pod       detector.Pod   `cbor:"9,keyasint,omitzero"`
	Sandbox   string         `cbor:"10,keyasint,omitzero"`
	Given     detector.Given `cbor:"11,keyasint,omitzero"`
	// ReservedFor is the sandbox that has the reservation, ReservedPod its pod if that is known.
	ReservedFor string       `cbor:"12,keyasint,omitzero"`
	ReservedPod detector.Pod `cbor:"13,keyasint,omitzero"`
}

// Book is what a book of a node says of an address.
type Book struct {
	Kind    string `cbor:"1,keyasint,omitzero"`
	Network string `cbor:"2,keyasint,omitzero"` // in CNI's configuration
	// First and Last are the range that the address is given out from, invalid if there is none.
	First netip.Addr `cbor:"3,keyasint,omitzero"`
	Last  netip.Addr `cbor:"4,keyasint,omitzero"`
	// Reserved: the address is reserved, since Since, for the sandbox with an id that begins so, and for its pod if that runs.
	Reserved bool         `cbor:"5,keyasint,omitzero"`
	Since    time.Time    `cbor:"6,keyasint,omitzero"`
	Sandbox  string       `cbor:"7,keyasint,omitzero"`
	Pod      detector.Pod `cbor:"8,keyasint,omitzero"`
	// Unreserved counts the addresses that pods of the node were given and that the book has not reserved for them any more.
	Unreserved int `cbor:"9,keyasint,omitzero"`
	// Error is why the book cannot be read.
	Error string `cbor:"10,keyasint,omitzero"`
}

// NextHopKind is where packets to an address go.
type NextHopKind uint8

// The kinds of next hops.
const (
	NextHopUnknown NextHopKind = iota + 1 // into Device; the kernel has no neighbour entry for the address now
	NextHopHolder                         // to Holder, on this node or another
	NextHopNode                           // to the node Node, by Device and Gateway
	NextHopAway                           // off the node, by Device and Gateway
	NextHopDevice                         // into Device, which leads to no known holder
	NextHopSelf                           // to the node itself
	NextHopNone                           // there is no route, or one that drops packets
)

var nextHopNames = map[NextHopKind]string{
	NextHopHolder: "holder", NextHopNode: "node", NextHopAway: "away", NextHopDevice: "device", NextHopSelf: "self", NextHopNone: "nowhere",
}

// String returns the name of the kind, as documents have it; of one that this version does not know, "unknown".
func (k NextHopKind) String() string { return cmp.Or(nextHopNames[k], "unknown") }

// NextHop is where the kernel of a node would send a packet to an address now.
type NextHop struct {
	Key  detector.Key `cbor:"1,keyasint,omitzero"`
	Kind NextHopKind  `cbor:"2,keyasint,omitzero"`
	// Holder is set with NextHopHolder only, and Node, a NodeID, with NextHopNode only.
	Holder detector.HolderID `cbor:"3,keyasint,omitzero"`
	Node   string            `cbor:"4,keyasint,omitzero"`
	// Device is the interface, bridge or uplink that the packet leaves by.
	Device string `cbor:"5,keyasint,omitzero"`
	// Gateway is the next hop, if that is not the address itself.
	Gateway netip.Addr `cbor:"6,keyasint,omitzero"`
}

// Answer is the document of one member.
type Answer struct {
	Member   Member
	Document Document
}

// Summary is the state of one node, for reporters.
type Summary struct {
	Version    string         `cbor:"1,keyasint,omitzero"`
	Interfaces map[string]int `cbor:"2,keyasint,omitzero"` // by state
	Findings   map[string]int `cbor:"3,keyasint,omitzero"` // by kind
	Audit      string         `cbor:"4,keyasint,omitzero"` // the verdict of its audit
}

// Report is what an agent sends to a reporter: Conflict or Summary is set.
type Report struct {
	Node     string // its NodeID
	Conflict *detector.Conflict
	Summary  *Summary
}

// State is a member's state as this node sees it.
type State string

// The states of a member.
const (
	Alive   State = "alive"
	Suspect State = "suspect"
	Dead    State = "dead"
	Left    State = "left"
)

// Role is what a member does.
type Role string

// The roles.
const (
	Agent Role = ""
	// A Reporter gets open conflicts and summaries of all nodes, and keeps no leases.
	Reporter Role = "reporter"
)

// Member is one incarnation of an agent.
type Member struct {
	// Name is the node's name, Boot the kernel's boot id, Epoch the boot-time clock at the agent's
	// start in nanoseconds.
	Name  string
	Boot  string
	Epoch int64
	// Address is where it receives gossip, "10.0.0.1:7951". Version is the agent's.
	Address string
	Version string
	Role    Role
	// Self: it is this node's own agent.
	Self  bool
	State State
	// Since is when it took that state, LastReceived when a message came from it last.
	Since, LastReceived time.Time
	// From AwayFrom to AwayUntil it, or this node, was cut off for the last time; zero if that never was, or for less than a
	// minute.
	AwayFrom, AwayUntil time.Time
	// Unacked counts the leases that it has not acknowledged as their keeper.
	Unacked int
	// Namesake: another member of the same node name is alive, too. That is a finding of its own.
	Namesake bool
}

// NodeID is the identity of the member's node.
func (m Member) NodeID() string { return NodeID(m.Name, m.Boot) }

// Live reports whether the member is taken to be running.
func (m Member) Live() bool { return m.State == Alive || m.State == Suspect }

// Status is the state of gossip at this node.
type Status struct {
	// Address is where this node receives gossip. Encrypted: a key is in use.
	Address   string
	Label     string
	Encrypted bool
	Members   map[State]int
	// Reporters are those that are alive, by name; they are in no other list.
	Reporters []Member
	// Leases are this node's own, Unacked those that a keeper has not acknowledged for more than a
	// few seconds, Kept those that it keeps for others.
	Leases, Unacked, Kept int
	// Dropped counts messages that were not accepted or not sent, by reason. Sent and Received
	// count messages by type.
	Dropped, Sent, Received map[string]uint64
	// Problems are clauses for people that say what is wrong and what to do.
	Problems []string
}

func (ConflictNotice) message() {}
func (ProbeRequest) message()   {}
func (ProbeReply) message()     {}
func (Returned) message()       {}
func (Query) message()          {}
func (Report) message()         {}
