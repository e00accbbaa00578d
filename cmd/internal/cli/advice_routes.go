package cli

import (
	"fmt"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// routes says where packets go, and which holders get none.
func routes(c document.Conflict) string {
	if len(c.Routes) == 0 {
		return ""
	}
	names, nodes := ShortLabels(c), nodesOfRoutes(c)
	targets, from := grouped(c.Routes,
		func(r document.Route) string { return target(c, r, names, nodes) }, func(r document.Route) string { return sender(c, r, nodes) })
	var parts []string
	for _, target := range targets {
		parts = append(parts, "from "+Conjoin(from[target])+" "+target)
	}
	text := "Packets to it go " + strings.Join(parts, ", ") + "."
	for n, name := range names {
		if from := withoutTraffic(c, n, nodes); len(from) == len(c.Routes) {
			text += fmt.Sprintf(" %s gets no traffic from %s.", name, Conjoin(from))
		}
	}
	return text
}

// nodesOfRoutes has the names of all nodes of a conflict by NodeID.
func nodesOfRoutes(c document.Conflict) map[string]string {
	ids := each(c.Holders, document.Binding.NodeID)
	for _, r := range c.Routes {
		ids = append(ids, r.NodeID())
		if r.ToNode != "" {
			ids = append(ids, r.ToNodeID())
		}
	}
	return merge.Names(ids)
}

// overBridge reports whether packets reach a holder by the neighbour entry on a bridge, or on
// another device that is not the holder's own.
func overBridge(c document.Conflict, r document.Route) bool {
	return r.Holder != nil && r.Device != "" && r.Device != c.Holders[*r.Holder].Interface
}

func target(c document.Conflict, r document.Route, names []string, nodes map[string]string) string {
	by := ""
	if r.Device != "" {
		by = " by " + r.Device
	}
	if r.Gateway.IsValid() {
		by += " via " + r.Gateway.String()
	}
	switch r.To {
	case document.ToHolder:
		if b := c.Holders[*r.Holder]; b.Evidence == detector.Host && b.NodeID() == r.NodeID() {
			return "to itself"
		}
		if overBridge(c, r) {
			return "to " + names[*r.Holder] + by
		}
		return "to " + names[*r.Holder]
	case document.ToNode:
		return "to node " + nodes[r.ToNodeID()]
	case document.ToAway:
		return "off the node" + by
	case document.ToSelf:
		return "to itself"
	case document.ToNowhere:
		return "nowhere, for lack of a route"
	case document.ToUnknown:
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
		if r.To == document.ToNowhere ||
			r.To == document.ToHolder && *r.Holder != holder ||
			r.To == document.ToNode && b.NodeID() != r.ToNodeID() ||
			r.To == document.ToAway && b.NodeID() == r.NodeID() ||
			r.To == document.ToSelf && b.Evidence != detector.Host {
			from = append(from, sender(c, r, nodes))
		}
	}
	return from
}
