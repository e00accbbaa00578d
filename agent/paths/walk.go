package paths

import (
	"slices"

	"github.com/dupip/dupip/document"
)

// maxHops bounds the nodes that a packet is followed through.
const maxHops = 8

// end is where packets go that do not come to the holder's node: through these nodes, by NodeID, and what the last one does with them.
type end struct {
	through []string
	how     string // see [document.Finding.End]
}

// walk follows the packets of one node to an address.
type walk struct {
	self, holder string // NodeIDs
	// routes returns the routes of a node, none if they are not known.
	routes func(node string) []document.Route
}

// follow returns where packets go that do not come to the holder's node; nil if all do, as far as that is known. What leads to no node,
// or to one that does not say where it sends them, is not known.
func (w *walk) follow(node string, through []string) *end {
	for _, r := range w.routes(node) {
		next := r.ToNodeID()
		switch {
		case r.Policy, r.To == document.ToNode && next == w.holder:
		case r.To == document.ToNode && (next == w.self || slices.Contains(through, next)):
			return &end{append(slices.Clip(through), next), document.EndsInLoop}
		case r.To == document.ToNode && len(through) == maxHops:
		case r.To == document.ToNode:
			if found := w.follow(next, append(slices.Clip(through), next)); found != nil {
				return found
			}
		case r.Ends:
			return &end{through, document.EndsAtPods}
		// A node without a route of its own to other nodes' pods is no router for them.
		case r.To == document.ToNowhere && node != w.self:
			return &end{through, document.EndsNowhere}
		}
	}
	return nil
}
