package say

import (
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// routes says where packets go, and which holders get none.
func (v *voice) routes() string {
	c, names, nodes := *v.c, v.brief, v.nodes
	if len(c.Routes) == 0 {
		return ""
	}
	targets, from := grouped(c.Routes,
		func(r document.Route) string { return target(c, r, names, nodes) }, func(r document.Route) string { return sender(c, r, nodes) })
	parts := each(targets, func(target string) string { return "from " + Conjoin(from[target]) + " " + target })
	text := "Packets to it go " + Conjoin(parts) + "."
	for n, name := range names {
		if from := withoutTraffic(c, n, nodes); len(from) == len(c.Routes) {
			text += " " + capital(name) + " gets no traffic from " + Conjoin(from) + "."
		}
	}
	return text
}

// to is the holder that a route leads to, negative for none.
func to(c document.Conflict, r document.Route) int {
	if r.To != document.ToHolder || r.Holder == nil || *r.Holder < 0 || *r.Holder >= len(c.Holders) {
		return -1
	}
	return *r.Holder
}

// overBridge reports whether packets reach a holder by the neighbour entry on a bridge, or on
// another device that is not the holder's own.
func overBridge(c document.Conflict, r document.Route) bool {
	n := to(c, r)
	return n >= 0 && r.Device != "" && r.Device != c.Holders[n].Interface
}

func target(c document.Conflict, r document.Route, names []string, nodes map[string]string) string {
	by := ""
	if r.Device != "" {
		by = " by " + r.Device
	}
	if r.Gateway.IsValid() {
		by += " via " + r.Gateway.String()
	}
	n := to(c, r)
	switch {
	case n >= 0 && c.Holders[n].Evidence == detector.Host && c.Holders[n].NodeID() == r.NodeID(), r.To == document.ToSelf:
		return "to itself"
	case n >= 0 && overBridge(c, r):
		return "to " + names[n] + by
	case n >= 0:
		return "to " + names[n]
	case r.To == document.ToNode:
		return "to node " + nodes[r.ToNodeID()]
	case r.To == document.ToAway:
		return "off the node" + by
	case r.To == document.ToNowhere:
		return "nowhere, for lack of a route"
	case r.To == document.ToUnknown:
		return "into " + r.Device + ", which has no neighbour entry for it now"
	}
	return "into " + r.Device
}

// sender names the node of a route. Pods on a bridge have neighbour entries of their own.
func sender(c document.Conflict, r document.Route, nodes map[string]string) string {
	if overBridge(c, r) {
		return nodes[r.NodeID()] + " itself"
	}
	return nodes[r.NodeID()]
}

// withoutTraffic returns the nodes that certainly send nothing to a holder.
func withoutTraffic(c document.Conflict, holder int, nodes map[string]string) (from []string) {
	b := c.Holders[holder]
	for _, r := range c.Routes {
		n := to(c, r)
		if r.To == document.ToNowhere ||
			n >= 0 && n != holder ||
			r.To == document.ToNode && b.NodeID() != r.ToNodeID() ||
			r.To == document.ToAway && b.NodeID() == r.NodeID() ||
			r.To == document.ToSelf && b.Evidence != detector.Host {
			from = append(from, sender(c, r, nodes))
		}
	}
	return from
}
