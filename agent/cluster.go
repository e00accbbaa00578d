package agent

import (
	"context"

	"github.com/dupip/dupip/agent/peer"
	"github.com/dupip/dupip/agent/report"
	"github.com/dupip/dupip/detector/cluster"
)

// Cluster is what the agent needs of the other nodes' agents. Its methods are safe for
// concurrent use and, but for Run and Query, never wait.
type Cluster interface {
	peer.Cluster
	report.Cluster
	// Run takes part in the cluster until ctx ends, and leaves it in order.
	Run(ctx context.Context) error
	// Messages is what other nodes tell or ask. What is not taken in time is dropped
	// and counted.
	Messages() <-chan cluster.Message
}
