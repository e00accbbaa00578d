// Package cluster has what the agents of a cluster tell and ask each other, as plain
// values: the words that package agent, which has the holders, and package gossip,
// which carries the words, share without knowing each other.
//
// Times are on the clock of whoever holds the value: between nodes ages travel, and the
// receiver turns them into times of its own.
package cluster

import (
	"net/netip"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
)

// NodeID identifies one boot of a node; it is the Node of a [detector.HolderID]. An agent
// that restarts keeps it: the cookies of network namespaces are unique for a boot.
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

// Claim says that a holder has an address.
type Claim struct {
	// Holder has ID and MAC; only in a [Testimony] and a [Document] also the rest.
	Holder    detector.Holder
	Evidence  detector.Evidence
	FirstSeen time.Time
	// FoundAtStart is as in [detector.Binding], where Holder is told in full.
	FoundAtStart bool
	// LastSeen is when the holder's node last stood by the claim.
	LastSeen time.Time
	// Episodes counts the conflicts of the address that are resolved as far as the
	// holder's node knows, so that all holders' nodes give the next one the same id.
	Episodes int
}

// Lease is a claim to an address as it is told to the keepers of the address.
type Lease struct {
	Key   detector.Key
	Claim Claim
}

// Message is what other nodes tell or ask this one: a Rival, a Question, a Testimony, a
// Query, or that one has Returned.
type Message interface{ message() }

// Rival tells that an address which this node leased has other holders on other nodes.
type Rival struct {
	Key    detector.Key
	Claims []Claim
	// Total counts all holders that the keeper knows, those of this node too; there may
	// be more than Claims tells of.
	Total int
}

// Question asks whether a holder of this node has an address now. The answer goes to
// the same ID.
type Question struct {
	ID uint64
	// From is the NodeID of the asker.
	From   string
	Key    detector.Key
	Holder detector.HolderID
	// Claims are the asker's own holders of the address: it is a rival, too.
	Claims []Claim
}

// Outcome is what came of a question.
type Outcome uint8

// The outcomes of a question.
const (
	// Answered: the holder answered its own agent after the question had arrived.
	Answered Outcome = iota + 1
	// Unanswered: it was asked and did not answer.
	Unanswered
	// Forwards: it answered, but for an address it does not have.
	Forwards
	// Gone: the node has no such holder of the address, or not any more.
	Gone
	// Refused: a safeguard forbids to ask it, for Reason and until RetryAt.
	Refused
	// Unreachable: the node did not answer. Never on the wire.
	Unreachable
)

// Testimony is the answer to a question of this node, or news that nobody asked for: then
// the Outcome is Gone and Solicitation has Key and Holder only.
type Testimony struct {
	// Solicitation is what was asked, unchanged.
	Solicitation detector.Solicitation
	Outcome      Outcome
	// At is when the holder answered, not before the question was sent.
	At time.Time
	// Claim describes the holder in full, where the Outcome is Answered, Unanswered,
	// Forwards or Refused.
	Claim Claim
	// Reason is one short clause for people. RetryAt is zero where only something new
	// can change the outcome.
	Reason  string
	RetryAt time.Time
}

// Returned tells that a node is heard again that had left questions of this one unanswered.
type Returned struct {
	// Node is its NodeID.
	Node string
}

// QueryKind says what a query asks for.
type QueryKind uint8

// The kinds of queries.
const (
	QueryBindings QueryKind = iota + 1
	QueryConflicts
	QueryStories
)

// Query asks a member for what its agent knows.
type Query struct {
	// ID names a query that came from another node, for the reply.
	ID   uint64
	Kind QueryKind
	// IP restricts it to one address; the zero Addr is all. Stories need one.
	IP netip.Addr
	// All asks for resolved conflicts, too.
	All bool
	// Node restricts a query of this node to the members with that node name.
	Node string
}

// Document is what one agent knows; the fields that were not asked for are empty.
type Document struct {
	Bindings  []detector.Binding
	Conflicts []detector.Conflict
	Stories   []detector.Story
	// Leads say where the node's kernel would send packets to addresses of the above.
	Leads []Lead
	// Omitted counts what did not fit.
	Omitted int
}

// LeadKind says where packets to an address go.
type LeadKind uint8

// The kinds of leads.
const (
	// LeadUnknown: into Device, and the kernel does not know now to whom there.
	LeadUnknown LeadKind = iota + 1
	// LeadHolder: to Holder, on this node or another.
	LeadHolder
	// LeadNode: to the node Node, by Device and Gateway.
	LeadNode
	// LeadAway: off the node, by Device and Gateway.
	LeadAway
	// LeadDevice: into Device, which leads to none of the holders that are known.
	LeadDevice
	// LeadSelf: to the node itself.
	LeadSelf
	// LeadNowhere: there is no route, or one that lets nothing pass.
	LeadNowhere
)

// Lead is where the kernel of a node would send a packet to an address now.
type Lead struct {
	Key  detector.Key
	Kind LeadKind
	// Holder is set with LeadHolder only, and Node, a NodeID, with LeadNode only.
	Holder detector.HolderID
	Node   string
	// Device is how the packet leaves the kernel's hands: an interface, a bridge, an uplink.
	Device string
	// Gateway is the next hop, where that is not the address itself.
	Gateway netip.Addr
}

// Answer is the document of one member.
type Answer struct {
	Member   Member
	Document Document
}

// Result is what came of a query: the answers, and the members that gave none in time.
type Result struct {
	Answers []Answer
	Missing []Member
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

// Member is one incarnation of an agent.
type Member struct {
	// Name is the node's name, Boot the kernel's boot id, Epoch the boot-time clock at
	// the agent's start in nanoseconds.
	Name  string
	Boot  string
	Epoch int64
	// Address is where it takes gossip, "10.0.0.1:7951". Version is the agent's.
	Address string
	Version string
	// Self marks this node's own agent.
	Self  bool
	State State
	// Since is when it took that state, Heard when a message came from it last.
	Since, Heard time.Time
	// Unacked counts the leases that it has not acknowledged as their keeper.
	Unacked int
	// Namesake marks a member that is alive beside another of the same node name: a
	// finding of its own.
	Namesake bool
}

// NodeID is the identity of the member's node.
func (m Member) NodeID() string { return NodeID(m.Name, m.Boot) }

// Pair tells how many addresses two nodes share in confirmed conflicts.
type Pair struct {
	// A and B are NodeIDs, A the lesser one.
	A, B string
	// Addresses counts them; 0 says that there are none any more. Examples are three of
	// them at most.
	Addresses int
	Examples  []detector.Key
	// Since is when the first was confirmed, Heard when this node was told last.
	Since, Heard time.Time
}

// Status is how this node's part in the cluster is doing.
type Status struct {
	// Address is where this node takes gossip. Encrypted says that a key is in use.
	Address   string
	Label     string
	Encrypted bool
	Members   map[State]int
	// Leases counts this node's own, Unacked those that a keeper has not acknowledged
	// for more than a few seconds, Kept those that it keeps for others.
	Leases, Unacked, Kept int
	// Dropped counts what was not taken in or not sent, by reason. Sent and Received
	// count messages by type.
	Dropped, Sent, Received map[string]uint64
	// Problems are clauses for people that say what is wrong and what to do; empty when
	// all is well.
	Problems []string
}

func (Rival) message()     {}
func (Question) message()  {}
func (Testimony) message() {}
func (Returned) message()  {}
func (Query) message()     {}
