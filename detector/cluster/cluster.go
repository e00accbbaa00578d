// Package cluster has the types that the packages agent and gossip share without importing each
// other: plain values that agents send to each other.
//
// Times are on the local clock. Messages have ages, which the receiver converts to its own clock.
package cluster

import (
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
	// Holder has ID and MAC; only in a [ProbeReply] also the rest.
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
	// Life is as in [detector.Binding], in a [ProbeReply] only.
	Life uint64 `cbor:"7,keyasint,omitzero"`
}

// Like reports that a binding of the same holder says nothing new.
func (b *Binding) Like(o *Binding) bool {
	return b.Holder.MAC == o.Holder.MAC && b.Holder.Place == o.Holder.Place && b.Evidence == o.Evidence && b.Occurrences == o.Occurrences
}

// Lease is a binding as sent to the keepers of its address.
type Lease struct {
	Key     detector.Key
	Binding Binding
}

// Message is what other nodes send to this one: a ConflictNotice, a ProbeRequest, a ProbeReply, a
// Query, Returned, Stopped, or, to a reporter only, a Report.
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

// ProbeReply is the reply to a probe request of this node, or a withdrawal that was not requested:
// then Outcome is Gone and Probe has Key and Holder only.
type ProbeReply struct {
	// Probe is what the request was about, unchanged.
	Probe   detector.Probe
	Outcome detector.Outcome
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

// Stopped reports that the agent of a node has ended in order, and does not run again yet.
type Stopped struct {
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
	QueryCaptures
	QueryAck // also changes what the member knows: that somebody works on its conflicts of an address
)

// Query requests an answer of a member.
type Query struct {
	Kind QueryKind
	// Answer takes the answer for another node, one, without waiting: JSON packed by gzip, of at most Limit bytes. It is nil in a query
	// of this node.
	Answer chan<- []byte
	Limit  int
	// IP restricts it to one address; the zero Addr is all. Stories and captures need one.
	IP netip.Addr
	// All includes resolved conflicts.
	All bool
	// Only restricts bindings, conflicts and findings.
	Only Only
	// Node restricts a query of this node to the members with that node name.
	Node string
	// Ack is what a QueryAck says.
	Ack Ack
}

// Ack says that somebody works on conflicts of an address. It was said Age seconds ago, and holds for Seconds from then on; 0 ends an earlier one.
type Ack struct {
	By      string `cbor:"1,keyasint,omitzero"`
	Why     string `cbor:"2,keyasint,omitzero"`
	Seconds int    `cbor:"3,keyasint,omitzero"`
	Age     int    `cbor:"4,keyasint,omitzero"`
}

// Only is what a query is about; what is empty restricts nothing. A node that does not know it answers more.
type Only struct {
	Prefix    netip.Prefix `cbor:"1,keyasint,omitzero"`
	Namespace string       `cbor:"2,keyasint,omitzero"`
	Pod       string       `cbor:"3,keyasint,omitzero"` // "name" or "namespace/name"
	Network   string       `cbor:"4,keyasint,omitzero"`
	// Since is how long ago a resolved conflict may have ended.
	Since time.Duration `cbor:"5,keyasint,omitzero"`
}

// Summary is the state of one node, for reporters.
type Summary struct {
	Version    string         `cbor:"1,keyasint,omitzero"`
	Interfaces map[string]int `cbor:"2,keyasint,omitzero"` // by state
	Findings   map[string]int `cbor:"3,keyasint,omitzero"` // by kind
	Audit      string         `cbor:"4,keyasint,omitzero"` // the verdict of its audit
	// Bindings is a hash of who has which address on the node; zero if it is not known.
	Bindings uint64 `cbor:"5,keyasint,omitzero"`
	// Ranges are those that the node's book gives out addresses of the cluster's networks from, as "first-last".
	Ranges []string `cbor:"6,keyasint,omitzero"`
}

// Report is what an agent sends to a reporter, at At: Conflict or Summary is set. The conflict is JSON packed by gzip.
type Report struct {
	Node     string // its NodeID
	Epoch    int64  // that of the agent
	At       time.Time
	Conflict []byte
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

// Member is one incarnation of an agent, or a reporter. Its JSON is published.
type Member struct {
	// Name is the node's name; a reporter's is that of its pod.
	Name string `json:"name"`
	// Boot is the kernel's boot id; a reporter's is the UID of its pod.
	Boot string `json:"boot"`
	// Role is empty for an agent, "reporter" for what writes Events.
	Role Role `json:"role,omitzero"`
	// Epoch is the boot-time clock at the agent's start in nanoseconds.
	Epoch int64 `json:"epoch"`
	// Address is where it receives gossip, "10.0.0.1:7951".
	Address string `json:"address,omitzero"`
	Version string `json:"version,omitzero"` // the agent's
	Packs   bool   `json:"-"`                // it reads packed packets
	// Self: it is this node's own agent.
	Self bool `json:"self,omitzero"`
	// State is alive, suspect, dead or left.
	State State     `json:"state"`
	Since time.Time `json:"since,omitzero"` // when it took that state
	Known time.Time `json:"-"`              // since when its node is known, with this boot
	Heard time.Time `json:"heard,omitzero"` // when a message came from it last
	// Unacked counts the leases that it has not acknowledged as their keeper.
	Unacked int `json:"unacked"`
	// Namesake: another member of the same node name is alive, too. That is a finding of its own.
	Namesake bool `json:"namesake,omitzero"`
	// Doubled: another member of the same node name is there at another address, perhaps for a moment only.
	Doubled bool `json:"-"`
	// From AwayFrom to AwayUntil it, or this node, was cut off for the last time; zero if that never was, or for less than a
	// minute.
	AwayFrom  time.Time `json:"-"`
	AwayUntil time.Time `json:"-"`
}

// NodeID is the identity of the member's node.
func (m Member) NodeID() string { return NodeID(m.Name, m.Boot) }

// NamesakesAfter is how long two agents of one node name must be there together to be namesakes: one that ended without a word is taken to be
// there for a while.
const NamesakesAfter = 30 * time.Second

// Follows reports whether the member, which is there, is a later boot of a node of its name that went at a time, and not a namesake, which
// was there beside it.
func (m Member) Follows(went time.Time) bool { return went.Sub(m.Known) < NamesakesAfter }

// Live reports whether the member is taken to be running.
func (m Member) Live() bool { return m.State == Alive || m.State == Suspect }

// Status is the state of gossip at this node. Its JSON is published.
type Status struct {
	Label     string `json:"label,omitzero"`   // the cluster's name
	Address   string `json:"address,omitzero"` // where this node receives gossip
	Encrypted bool   `json:"encrypted"`        // a key is in use
	// Members counts the agents by state.
	Members map[State]int `json:"membersByState,omitzero"`
	// Reporters are those that are alive, by name; they are in no other list.
	Reporters []Member `json:"-"`
	Leases    int      `json:"leases"`        // this node's own
	Unacked   int      `json:"leasesUnacked"` // those that a keeper has not acknowledged for more than a few seconds
	Kept      int      `json:"leasesKept"`    // those that it keeps for others
	// Dropped counts messages that were not accepted or not sent, by reason.
	Dropped  map[string]uint64 `json:"dropped,omitzero"`
	Sent     map[string]uint64 `json:"sent,omitzero"`     // messages by type
	Received map[string]uint64 `json:"received,omitzero"` // messages by type
	// Problems are clauses for people that say what is wrong and what to do.
	Problems []string `json:"problems,omitzero" text:"sentence"`
}

func (ConflictNotice) message() {}
func (ProbeRequest) message()   {}
func (ProbeReply) message()     {}
func (Returned) message()       {}
func (Stopped) message()        {}
func (Query) message()          {}
func (Report) message()         {}
