package paths

import (
	"slices"

	"github.com/dupip/dupip/document"
)

// maxHops bounds the nodes that a packet is followed through: fewer than questions may be asked about one address.
const maxHops = 6

// end is where packets go that do not come to the holder's node: through these nodes, by NodeID, and what the last one does with them.
type end struct {
	through []string
	how     string // see [document.Finding.End]
	partly  bool   // a node on the way has other routes, too
}

func (e *end) is(o *end) bool {
	return e != nil && o != nil && e.how == o.how && slices.Equal(e.through, o.through)
}

// walk follows the packets of one node to an address.
type walk struct {
	self, holder string // NodeIDs
	// ask asks a node for its routes; none if they are not known. Each is asked once.
	ask    func(node string) []document.Route
	routes map[string][]document.Route
	silent bool // a node has not said
}

// follow returns where packets go that do not come to the holder's node; nil if all do, as far as that is known. What leads to no node is not
// known.
func (w *walk) follow(node string, through []string) *end {
	routes, asked := w.routes[node]
	if !asked {
		routes = w.ask(node)
		w.routes[node] = routes
	}
	w.silent = w.silent || len(routes) == 0
	for _, r := range routes {
		next, isNode := r.ToNodeID(), r.To == document.ToNode
		var found *end
		switch {
		case !r.Policy && isNode && next == w.holder:
		case !r.Policy && isNode && (next == w.self || slices.Contains(through, next)):
			found = &end{append(slices.Clip(through), next), document.EndsInLoop, false}
		case !r.Policy && isNode && len(through) < maxHops:
			found = w.follow(next, append(slices.Clip(through), next))
		case !r.Policy && r.Ends && len(through) > 0: // else it is diverted
			found = &end{through, document.EndsAtPods, false}
		case !r.Policy && r.To == document.ToNowhere:
			found = &end{through, document.EndsNowhere, false}
		}
		if found != nil {
			found.partly = found.partly || len(routes) > 1
			return found
		}
	}
	return nil
}
