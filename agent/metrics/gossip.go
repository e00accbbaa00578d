package metrics

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dupip/dupip/detector/cluster"
)

var (
	gossipMembersDesc = describe(GossipMembers,
		"Agents of the cluster as this one sees them, itself included, by state.", "state")
	gossipNamesakesDesc = describe(GossipNamesakes,
		"Live agents that share their node's name with another: two nodes of one name.")
	gossipLeasesDesc = describe(GossipLeases,
		"Bindings of this node that are told to their keepers.")
	gossipUnackedDesc = describe(GossipLeasesUnacked,
		"Of them those that a keeper has not acknowledged for more than a few seconds.")
	gossipKeptDesc = describe(GossipLeasesKept,
		"Bindings of all nodes that this agent keeps as a matchmaker.")
	gossipSentDesc = describe(GossipMessagesSentTotal,
		"Messages sent to other agents.", "type")
	gossipReceivedDesc = describe(GossipMessagesReceivedTotal,
		"Messages received from other agents.", "type")
	gossipDroppedDesc = describe(GossipDroppedTotal,
		"What was not taken in from other agents, or not sent to them.", "reason")
	gossipEncryptedDesc = describe(GossipEncrypted,
		"Whether gossip is encrypted, 1 or 0.")
	gossipProblemsDesc = describe(GossipProblems,
		"Things that are wrong with gossip now; dupip status says what.")
)

var (
	memberStates = []string{
		string(cluster.Alive), string(cluster.Suspect), string(cluster.Dead), string(cluster.Left),
	}
	// messageTypes are always there, so that a rate begins with the first message.
	messageTypes = []string{"lease", "ack", "rival", "ask", "verified", "query", "answer", "pair"}
)

func clusterSource(ask func(context.Context) (ClusterStats, error)) *source[ClusterStats] {
	return &source[ClusterStats]{
		name: "cluster",
		descs: []*prometheus.Desc{
			gossipMembersDesc, gossipNamesakesDesc, gossipLeasesDesc, gossipUnackedDesc, gossipKeptDesc,
			gossipSentDesc, gossipReceivedDesc, gossipDroppedDesc, gossipEncryptedDesc, gossipProblemsDesc,
		},
		export:   exportCluster,
		question: question[ClusterStats]{ask: ask},
	}
}

func exportCluster(s ClusterStats, out sink) {
	for _, state := range memberStates {
		out.gauge(gossipMembersDesc, float64(s.Status.Members[cluster.State(state)]), state)
	}
	out.gauge(gossipNamesakesDesc, float64(s.Namesakes))
	out.gauge(gossipLeasesDesc, float64(s.Status.Leases))
	out.gauge(gossipUnackedDesc, float64(s.Status.Unacked))
	out.gauge(gossipKeptDesc, float64(s.Status.Kept))
	exportMessages(gossipSentDesc, s.Status.Sent, out)
	exportMessages(gossipReceivedDesc, s.Status.Received, out)
	for reason, n := range byWord(s.Status.Dropped) {
		out.counter(gossipDroppedDesc, n, reason)
	}
	out.gauge(gossipEncryptedDesc, truth(s.Status.Encrypted))
	out.gauge(gossipProblemsDesc, float64(len(s.Status.Problems)))
}

func exportMessages(desc *prometheus.Desc, byType map[string]uint64, out sink) {
	figures := byWord(byType)
	for _, name := range messageTypes {
		out.counter(desc, figures[name], name)
	}
	for name, n := range figures {
		if !slices.Contains(messageTypes, name) {
			out.counter(desc, n, name)
		}
	}
}
