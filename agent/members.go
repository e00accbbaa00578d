package agent

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/detector/cluster"
)

// Nodes implements [api.Backend].
func (a *Agent) Nodes(context.Context) (api.Nodes, error) {
	members := a.members()
	document := api.Nodes{Node: a.node.Name, Nodes: make([]api.Node, 0, len(members)), Cluster: a.clusterStatus()}
	for _, m := range members {
		document.Nodes = append(document.Nodes, api.NewNode(m))
	}
	return document, nil
}

// self is this agent as a member.
func (a *Agent) self() cluster.Member {
	return cluster.Member{
		Name:    a.node.Name,
		Boot:    a.node.BootID,
		Epoch:   a.node.Epoch,
		Version: a.opts.Version,
		Self:    true,
		State:   cluster.Alive,
		Since:   a.started,
	}
}

// members are the agents that are or were there, by node name; this one is always among
// them.
func (a *Agent) members() []cluster.Member {
	if a.cluster == nil {
		return []cluster.Member{a.self()}
	}
	members := slices.Clone(a.cluster.Members())
	if !slices.ContainsFunc(members, func(m cluster.Member) bool { return m.Self }) {
		members = append(members, a.self())
	}
	slices.SortFunc(members, func(x, y cluster.Member) int {
		return cmp.Or(
			strings.Compare(x.Name, y.Name),
			strings.Compare(x.Boot, y.Boot),
			cmp.Compare(x.Epoch, y.Epoch),
		)
	})
	return members
}

func (a *Agent) clusterStatus() api.ClusterStatus {
	if a.cluster == nil {
		return api.ClusterStatus{Alone: true}
	}
	return api.NewClusterStatus(a.cluster.Status())
}

// clusterStats are the figures of this agent's part in the cluster.
func (a *Agent) clusterStats(context.Context) (metrics.ClusterStats, error) {
	stats := metrics.ClusterStats{Status: a.cluster.Status()}
	for _, m := range a.cluster.Members() {
		if m.Namesake {
			stats.Namesakes++
		}
	}
	return stats, nil
}
