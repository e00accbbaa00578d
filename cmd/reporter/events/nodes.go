package events

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// nodesEvery is how often the notices of nodes are found again, at most.
const nodesEvery = time.Second

// findingEvent is the Event of a kind of findings. In the note OTHER is the other node.
type findingEvent struct{ reason, note string }

const elsewhere = "Another machine has an address of this node, or of a pod on it, too."

const unreserved = "Pods of this node have addresses that IPAM has not reserved and may give out again."

// agentEvents are those of findings that agents have, by kind.
var agentEvents = map[string]findingEvent{
	document.Unreserved: {ReasonUnreserved, unreserved},
	document.TwoNodes:   {ReasonElsewhere, elsewhere},
	document.Stranger:   {ReasonElsewhere, elsewhere},
	document.Diverted:   {ReasonDiverted, "This node takes packets to live pods for its own, sends them elsewhere, or answers ARP for them."},
	document.Misrouted:  {ReasonMisrouted, "Packets from this node to pods of other nodes go to another node than the pod's."},
}

// bookEvents are those of findings of the API server's books, by kind.
var bookEvents = map[string]findingEvent{
	document.Misbooked:   {ReasonMisbooked, "IPAM has addresses of this node's pods reserved on node OTHER: it may give them out again."},
	document.Stale:       {ReasonStale, "The IPAM's object of this node belongs to an earlier node of its name: another node may have its addresses, too."},
	document.Unreserved:  {ReasonUnreserved, unreserved},
	document.Mismatched:  {ReasonUnreserved, "Pods of this node have addresses that IPAM has reserved for others, on node OTHER."},
	document.Overlapping: {ReasonRange, "This node gives out addresses of a range that is node OTHER's, too."},
	document.Deleted:     {ReasonDeleted, "The Node was deleted, and its machine still runs pods: their addresses may be given out again."},
	document.Twice:       {ReasonTwice, "The API server has two live pods with one address, on this node and on node OTHER."},
	document.Unlisted:    {ReasonUnlisted, "Pods run on this node that the API server does not have."},
}

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
		} else {
			p.stats.Skipped++
		}
	}
	// What an Event says cannot be changed later: it has no numbers.
	for on := range p.state.found {
		e := agentEvents[on.kind]
		want(on.node, e.reason, "", e.note+" What to do: "+p.Program+" audit --node "+cluster.NodeName(on.node))
	}
	for on, other := range p.found {
		if e, ok := bookEvents[on.kind]; ok {
			want(on.node, e.reason, other, strings.ReplaceAll(e.note, "OTHER", other)+" What to do: "+p.Program+" audit --node "+on.node)
		}
	}
	var open []document.Conflict
	for key := range p.state.conflicts {
		open = append(open, p.state.merged(key)...)
	}
	slices.SortFunc(open, func(a, b document.Conflict) int { // for the examples
		return cmp.Or(a.IP.Compare(b.IP), cmp.Compare(a.Network, b.Network))
	})
	for _, pair := range merge.Pairs(open) {
		if pair.Addresses <= document.FewShared {
			continue
		}
		for i, node := range []string{pair.A, pair.B} { // pair.Nodes may have a boot id, for people
			other := pair.Nodes[1-i]
			want(node, ReasonRange, other, fmt.Sprintf("Pods of this node and of node %s have the same addresses, more than %d, for example %s: probably both nodes give out the same range. What to do: %s conflicts",
				other, document.FewShared, pair.Examples[0].IP, p.Program))
		}
	}
	if p.crowded() {
		nodes := make(map[string]bool)
		for _, c := range open {
			for _, b := range c.Holders {
				nodes[b.NodeID()] = true
			}
		}
		for node := range nodes {
			want(node, ReasonSummary, "", fmt.Sprintf("More than %d addresses of the cluster have two holders, some of them on this node. "+
				"Their pods get Events one after the other. What to do: %s conflicts", maxOpen, p.Program))
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
