package report

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// Nodes implements [api.Backend].
func (r *Report) Nodes(_ context.Context, q document.Query) (document.Nodes, error) {
	members := r.members()
	doc := document.Nodes{Node: r.Self.Name, Nodes: make([]document.Node, 0, len(members)), Cluster: r.clusterStatus()}
	if !r.alone() {
		members = append(members, r.Cluster.Status().Reporters...)
	}
	for _, m := range members {
		if q.State == "" || q.State == string(m.State) {
			doc.Nodes = append(doc.Nodes, document.Node{Member: m})
		}
	}
	return doc, nil
}

// members returns the agents that are or were in the cluster, always with this one, by node name.
func (r *Report) members() []cluster.Member {
	if r.alone() {
		return []cluster.Member{r.Self}
	}
	members := slices.Clone(r.Cluster.Members())
	if !slices.ContainsFunc(members, func(m cluster.Member) bool { return m.Self }) {
		members = append(members, r.Self)
	}
	slices.SortFunc(members, func(x, y cluster.Member) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.Boot, y.Boot), cmp.Compare(x.Epoch, y.Epoch))
	})
	return members
}

func (r *Report) clusterStatus() document.ClusterStatus {
	if r.alone() {
		return document.ClusterStatus{Alone: true}
	}
	return document.ClusterStatus{Status: r.Cluster.Status()}
}
