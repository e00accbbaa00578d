package events

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/report/merge"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// fewShared is how many addresses two nodes may share before their Events say that they give out the same range.
	fewShared = 3
	// nodesEvery is how often the notices of nodes are found again, at most.
	nodesEvery = time.Second
)

// findNodes finds which Events about nodes there should be.
func (p *Planner) findNodes(now time.Time) {
	wanted := make(map[string]bool)
	want := func(node, reason, about, note string) {
		name := eventName(cluster.NodeName(node), reason, about)
		wanted[name] = true
		if n := p.notices[name]; n != nil {
			n.note, n.ended = note, time.Time{}
		} else if len(p.notices) < maxNotices {
			n = &notice{name: name, reason: reason, regarding: nodeReference(node), note: note, began: now}
			p.adopt(n)
			p.notices[name] = n
		}
	}
	for node, count := range p.state.unreserved {
		want(node, ReasonUnreserved, "", fmt.Sprintf("Pods of this node have %s that IPAM has not reserved and will give out again. What to do: dupip audit --node %s",
			addresses(count), cluster.NodeName(node)))
	}
	var open []detector.Conflict
	for key := range p.state.conflicts {
		open = append(open, p.state.merged(key)...)
	}
	slices.SortFunc(open, func(a, b detector.Conflict) int { // for the examples
		return cmp.Or(a.Key.IP.Compare(b.Key.IP), cmp.Compare(a.Key.Network, b.Key.Network))
	})
	for _, pair := range merge.Pairs(open) {
		if pair.Addresses <= fewShared {
			continue
		}
		for i, node := range []string{pair.A, pair.B} { // pair.Nodes may have a boot id, for people
			other := pair.Nodes[1-i]
			want(node, ReasonRange, other, fmt.Sprintf("Pods of this node and of node %s have the same %s, for example %s: both nodes give out the same range. What to do: dupip conflicts --cluster",
				other, addresses(pair.Addresses), pair.Examples[0].IP))
		}
	}
	if p.crowded() {
		counts := make(map[string]int)
		for _, c := range open {
			nodes := make(map[string]bool)
			for _, b := range c.Holders {
				nodes[b.Holder.ID.Node] = true
			}
			for node := range nodes {
				counts[node]++
			}
		}
		for node, count := range counts {
			want(node, ReasonSummary, "", fmt.Sprintf("%d addresses of the cluster have two holders, %d of them on this node. Their pods get Events one after the other. What to do: dupip conflicts --cluster",
				len(open), count))
		}
	}
	for name, n := range p.notices {
		switch {
		case n.onPod() || wanted[name]:
		case !n.written:
			p.drop(name)
		case n.ended.IsZero(): // kept: what comes back soon gets no second Event
			n.ended = now
		}
	}
}

func addresses(n int) string {
	if n == 1 {
		return "1 address"
	}
	return fmt.Sprint(n, " addresses")
}
