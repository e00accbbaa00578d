package say

import (
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// routes says where packets go, and which holders get none.
func (v *voice) routes() string {
	if len(v.c.Routes) == 0 {
		return ""
	}
	targets, from := grouped(v.c.Routes, v.target, v.sender)
	parts := each(targets, func(target string) string { return "from " + Conjoin(from[target]) + " " + target })
	text := "Packets to it go " + Conjoin(parts) + "."
	for n, name := range v.brief {
		if from := v.withoutTraffic(n); len(from) == len(v.c.Routes) {
			text += " " + capital(name) + " gets no traffic from " + Conjoin(from) + "."
		}
	}
	return text
}

// to is the holder that a route leads to, negative for none.
func (v *voice) to(r document.Route) int {
	if r.To != document.ToHolder || r.Holder == nil || *r.Holder < 0 || *r.Holder >= len(v.c.Holders) {
		return -1
	}
	return *r.Holder
}

// overBridge reports whether packets reach a holder by the neighbour entry on a bridge, or on
// another device that is not the holder's own.
func (v *voice) overBridge(r document.Route) bool {
	n := v.to(r)
	return n >= 0 && r.Device != "" && r.Device != v.c.Holders[n].Interface
}

// target is where a route leads.
func (v *voice) target(r document.Route) string {
	by := ""
	if r.Device != "" {
		by = " by " + r.Device
	}
	if r.Gateway.IsValid() {
		by += " via " + r.Gateway.String()
	}
	n := v.to(r)
	switch {
	case n >= 0 && v.c.Holders[n].Evidence == detector.Host && v.c.Holders[n].NodeID() == r.NodeID(), r.To == document.ToSelf:
		return "to itself"
	case v.overBridge(r):
		return "to " + v.brief[n] + by
	case n >= 0:
		return "to " + v.brief[n]
	case r.To == document.ToNode:
		return "to node " + v.nodes[r.ToNodeID()]
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
func (v *voice) sender(r document.Route) string {
	if v.overBridge(r) {
		return v.nodes[r.NodeID()] + " itself"
	}
	return v.nodes[r.NodeID()]
}

// withoutTraffic returns the nodes that certainly send nothing to a holder.
func (v *voice) withoutTraffic(holder int) (from []string) {
	b := v.c.Holders[holder]
	for _, r := range v.c.Routes {
		n := v.to(r)
		if r.To == document.ToNowhere ||
			n >= 0 && n != holder ||
			r.To == document.ToNode && b.NodeID() != r.ToNodeID() ||
			r.To == document.ToAway && b.NodeID() == r.NodeID() ||
			r.To == document.ToSelf && b.Evidence != detector.Host {
			from = append(from, v.sender(r))
		}
	}
	return from
}
