package document

import (
	"net/netip"
	"slices"
	"strings"
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

// Lacks reports whether the agent of a holder's node did not answer in time.
func (c Coverage) Lacks(b Binding) bool {
	return slices.ContainsFunc(c.Missing, func(name string) bool { return name == b.Node || strings.HasPrefix(name, b.Node+" (boot ") })
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

// Node is one agent of the cluster, or a reporter, which writes Events.
type Node struct {
	cluster.Member
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
	// Leader is the reporter that reads the books of the API server, in a document of a reporter.
	Leader string `json:"leader,omitzero"`
}

// ClusterStatus is this agent's view of the cluster.
type ClusterStatus struct {
	// Alone: this agent is in no cluster, and the rest is empty.
	Alone bool `json:"alone,omitzero"`
	cluster.Status
}
