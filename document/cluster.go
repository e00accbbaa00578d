package document

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/detector/cluster"
)

// Coverage reports which agents contributed to a document about the cluster. It is empty in the document
// of a single agent.
type Coverage struct {
	// Alone: the request was for the cluster, but this agent is in none.
	Alone bool `json:"alone,omitzero"`
	// Asked counts the agents that got the request, including this one.
	Asked int `json:"asked,omitzero"`
	// Missing names the nodes whose agents did not answer in time.
	Missing []string `json:"missing,omitzero"`
	// Omitted counts the elements beyond the limit of a document.
	Omitted int  `json:"omitted,omitzero"`
	Partial bool `json:"partial,omitzero"` // something is missing or omitted
}

// Address is an address in its network.
type Address struct {
	Network string     `json:"network"`
	IP      netip.Addr `json:"ip"`
}

// FewShared is how many addresses two nodes may share before that is one fault, of ranges.
const FewShared = 3

// Pair is two nodes that both have holders of the same addresses, in confirmed conflicts.
type Pair struct {
	Nodes     []string  `json:"nodes"`     // two
	Addresses int       `json:"addresses"` // how many
	Examples  []Address `json:"examples"`  // some of them
	Since     time.Time `json:"since,omitzero"`
}

// Node is one agent of the cluster, or a reporter.
type Node struct {
	Name   string `json:"name"`
	BootID string `json:"boot"`
	// Role is "reporter" for what writes Events: Name is a pod's then, and BootID its UID. It is empty for agents.
	Role string `json:"role,omitzero"`
	// Epoch is the boot-time clock in nanoseconds when the agent started.
	Epoch   int64  `json:"epoch"`
	Address string `json:"address,omitzero"`
	Version string `json:"version,omitzero"`
	Self    bool   `json:"self,omitzero"`
	// State is alive, suspect, dead or left, since Since.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Heard is when this agent received the last message of it.
	Heard time.Time `json:"heard,omitzero"`
	// Unacked counts the leases that it has not acknowledged.
	Unacked int `json:"unacked"`
	// Namesake: another live agent has this node name and another boot.
	Namesake bool `json:"namesake,omitzero"`
	// What the node's agent last told a reporter, at Reported: its interfaces by state, how many findings it has by kind, and the
	// verdict of its audit. An agent does not have that of others. Two nodes may count the same conflict.
	Interfaces map[string]int `json:"interfaces,omitzero"`
	Findings   map[string]int `json:"findings,omitzero"`
	Audit      string         `json:"audit,omitzero"`
	Reported   time.Time      `json:"reported,omitzero"`
}

// Nodes is the response to GET /v1/nodes.
type Nodes struct {
	Node    string        `json:"node"`
	Nodes   []Node        `json:"nodes"`
	Cluster ClusterStatus `json:"cluster"`
}

// ClusterStatus is this agent's view of the cluster.
type ClusterStatus struct {
	// Alone: this agent is in no cluster, and the rest is empty.
	Alone     bool   `json:"alone,omitzero"`
	Label     string `json:"label,omitzero"`   // the cluster's name
	Address   string `json:"address,omitzero"` // where this agent receives gossip
	Encrypted bool   `json:"encrypted"`
	// Members counts the agents by state.
	Members map[string]int `json:"membersByState,omitzero"`
	// Leases counts the leases of this node's bindings. Unacked counts those that a keeper has not
	// acknowledged for more than a few seconds. Kept counts the leases that this agent keeps.
	Leases  int `json:"leases"`
	Unacked int `json:"leasesUnacked"`
	Kept    int `json:"leasesKept"`
	// Dropped counts dropped messages by reason, Sent and Received count messages by type.
	Dropped  map[string]uint64 `json:"dropped,omitzero"`
	Sent     map[string]uint64 `json:"sent,omitzero"`
	Received map[string]uint64 `json:"received,omitzero"`
	// Problems describe what is wrong and what to do.
	Problems []string `json:"problems,omitzero" text:"sentence"`
}

// NewNode returns the document of a member.
func NewNode(m cluster.Member) Node {
	return Node{
		Name:     m.Name,
		BootID:   m.Boot,
		Role:     string(m.Role),
		Epoch:    m.Epoch,
		Address:  m.Address,
		Version:  m.Version,
		Self:     m.Self,
		State:    string(m.State),
		Since:    m.Since.Round(0),
		Heard:    m.LastReceived.Round(0),
		Unacked:  m.Unacked,
		Namesake: m.Namesake,
	}
}

// NewClusterStatus returns the document of a status.
func NewClusterStatus(s cluster.Status) ClusterStatus {
	doc := ClusterStatus{
		Label:     s.Label,
		Address:   s.Address,
		Encrypted: s.Encrypted,
		Members:   make(map[string]int, len(s.Members)),
		Leases:    s.Leases,
		Unacked:   s.Unacked,
		Kept:      s.Kept,
		Dropped:   s.Dropped,
		Sent:      s.Sent,
		Received:  s.Received,
		Problems:  s.Problems,
	}
	for state, n := range s.Members {
		doc.Members[string(state)] = n
	}
	return doc
}
