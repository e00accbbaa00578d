package api

import (
	"math"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// NewBinding returns the document of a binding.
func NewBinding(b detector.Binding) Binding {
	doc := Binding{
		Network:     b.Key.Network,
		IP:          b.Key.IP.String(),
		Node:        cluster.NodeName(b.Holder.ID.Node),
		BootID:      cluster.BootID(b.Holder.ID.Node),
		Interface:   b.Holder.InterfaceName,
		Bridge:      b.Holder.Bridge,
		Ifindex:     nodeIfindex(b.Holder.Interface.Ifindex),
		Generation:  b.Holder.Interface.Generation,
		MAC:         b.Holder.MAC.String(),
		Netns:       b.Holder.NetnsName,
		NetnsCookie: b.Holder.ID.Netns,
		Evidence:    b.Evidence.String(),
		FirstSeen:   b.FirstSeen.Round(0),
		LastSeen:    b.LastSeen.Round(0),
		Unreachable: b.Unreachable,

		FoundAtStart: b.FoundAtStart,
		Gone:         b.Gone,
		Given:        NewGiven(b.Holder.Given),
	}
	if doc.Pod = NewPod(b.Holder.Pod); doc.Pod != nil {
		doc.Pod.CreatedAt = b.Holder.CreatedAt.Round(0)
		doc.Pod.Sandbox, doc.Pod.Stopped = b.Holder.Sandbox.ID, b.Holder.Sandbox.Stopped
	}
	return doc
}

// nodeIfindex returns the ifindex of a device of the node, 0 for the number of one that has no end on the node.
func nodeIfindex(number uint32) uint32 {
	if number > math.MaxInt32 {
		return 0
	}
	return number
}

// NewPod returns the document of a pod, nil if it is unknown.
func NewPod(pod detector.Pod) *Pod {
	if pod == (detector.Pod{}) {
		return nil
	}
	return &Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// NewGiven returns what the books say, nil if they do not.
func NewGiven(given detector.Given) *bool {
	if given == detector.GivenUnknown {
		return nil
	}
	return new(given == detector.GivenYes)
}

// String returns "namespace/name".
func (p *Pod) String() string { return p.Namespace + "/" + p.Name }

// NewConflict returns the document of a conflict.
func NewConflict(c detector.Conflict) Conflict {
	doc := Conflict{
		ID:          c.ID,
		Network:     c.Key.Network,
		IP:          c.Key.IP.String(),
		State:       c.State.String(),
		Scope:       c.Scope.String(),
		SecondSeen:  c.SecondSeen.Round(0),
		SuspectedAt: c.SuspectedAt.Round(0),
		ConfirmedAt: c.ConfirmedAt.Round(0),
		ResolvedAt:  c.ResolvedAt.Round(0),
		Holders:     make([]Binding, 0, len(c.Holders)),
		Drill:       c.IsDrill(),
		Pending:     c.Pending,
	}
	for _, holder := range c.Holders {
		doc.Holders = append(doc.Holders, NewBinding(holder))
	}
	return doc
}
