package cli

import (
	"fmt"
	"strings"

	"github.com/dupip/dupip/agent/api"
)

// routes says where packets go, and which holders get none.
func routes(c api.Conflict) string {
	if len(c.Routes) == 0 {
		return ""
	}
	names := ShortLabels(c)
	targets, from := grouped(c.Routes,
		func(r api.Route) string { return target(c, r, names) }, func(r api.Route) string { return sender(c, r) })
	var parts []string
	for _, target := range targets {
		parts = append(parts, "from "+Conjoin(from[target])+" "+target)
	}
	text := "Packets to it go " + strings.Join(parts, ", ") + "."
	for n, name := range names {
		if nodes := withoutTraffic(c, n); len(nodes) == len(c.Routes) {
			text += fmt.Sprintf(" %s gets no traffic from %s.", name, Conjoin(nodes))
		}
	}
	return text
}

// overBridge reports whether packets reach a holder by the neighbour entry on a bridge, or on
// another device that is not the holder's own.
func overBridge(c api.Conflict, r api.Route) bool {
	return r.Holder != nil && r.Device != "" && r.Device != c.Holders[*r.Holder].Interface
}

func target(c api.Conflict, r api.Route, names []string) string {
	by := ""
	if r.Device != "" {
		by = " by " + r.Device
	}
	if r.Gateway != "" {
		by += " via " + r.Gateway
	}
	switch r.To {
	case "holder":
		if b := c.Holders[*r.Holder]; b.Evidence == "host" && IsOn(b, r.Node) {
			return "to itself"
		}
		if overBridge(c, r) {
			return "to " + names[*r.Holder] + by
		}
		return "to " + names[*r.Holder]
	case "node":
		return "to node " + r.ToNode
	case "away":
		return "off the node" + by
	case "self":
		return "to itself"
	case "nowhere":
		return "nowhere, for lack of a route"
	case "unknown":
		return "into " + r.Device + ", which has no neighbour entry for it now"
	}
	return "into " + r.Device
}

// sender names the node of a route. Pods on a bridge have neighbour entries of their own.
func sender(c api.Conflict, r api.Route) string {
	if overBridge(c, r) {
		return r.Node + " itself"
	}
	return r.Node
}

// withoutTraffic returns the nodes that certainly send nothing to a holder.
func withoutTraffic(c api.Conflict, holder int) []string {
	var nodes []string
	b := c.Holders[holder]
	for _, r := range c.Routes {
		if r.To == "nowhere" ||
			r.To == "holder" && *r.Holder != holder ||
			r.To == "node" && !IsOn(b, r.ToNode) ||
			r.To == "away" && IsOn(b, r.Node) ||
			r.To == "self" && b.Evidence != "host" {
			nodes = append(nodes, sender(c, r))
		}
	}
	return nodes
}
