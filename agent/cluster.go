package agent

import (
	"context"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Cluster is what the agent needs of the other nodes' agents. Its methods are safe for
// concurrent use and, but for Run and Query, never wait.
type Cluster interface {
	// Run takes part in the cluster until ctx ends, and leaves it in order.
	Run(ctx context.Context) error
	// Messages is what other nodes tell or ask. What is not taken in time is dropped
	// and counted.
	Messages() <-chan cluster.Message
	// Lease tells the keepers of an address that a holder of this node has it, and goes
	// on until Withdraw. Telling again changes the claim.
	Lease(cluster.Lease)
	// Withdraw ends a lease; rivals are the nodes that were told of the holder in a
	// conflict and are told of its end directly.
	Withdraw(key detector.Key, holder detector.HolderID, rivals []string)
	// Ask asks the node of a holder whether it has the address, and tells it of this
	// node's own holders. A Testimony with the same Solicitation follows within two
	// seconds, whatever happens.
	Ask(s detector.Solicitation, own []cluster.Claim)
	// Testify answers a Question.
	Testify(question uint64, t cluster.Testimony)
	// Pair tells all nodes how many addresses this node shares with another.
	Pair(cluster.Pair)
	// Query asks the members. It returns what there is when ctx ends, or when all have
	// answered; it fails only if nobody can be asked.
	Query(ctx context.Context, q cluster.Query) (cluster.Result, error)
	// Reply answers a Query that came as a message.
	Reply(query uint64, d cluster.Document)
	// Members are the agents that are or were there, by node name; Pairs the pairs of
	// nodes that share addresses.
	Members() []cluster.Member
	Pairs() []cluster.Pair
	Status() cluster.Status
}
