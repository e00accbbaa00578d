package report

import (
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// maxTwins bounds the findings about addresses that other nodes have, too.
const maxTwins = 64

// findTwins finds the addresses of this node that other nodes have, too. Call it in the goroutine that owns the parts.
func (r *Report) findTwins() {
	var found twins
	for _, t := range r.Detector.Twins(r.Table.Host, time.Now()) {
		if len(found.list) == maxTwins {
			found.omitted++
			continue
		}
		f := document.Finding{
			Kind: document.TwoNodes, IP: t.Own.Key.IP, Book: "nodes", Since: t.Since.Round(0), HeldBy: cluster.NodeName(t.Other.Holder.ID.Node),
			Prefix:  r.Table.Own.Prefix(t.Own.Key),
			Gateway: t.Own.Holder.Place == detector.PlaceBridge || t.Other.Holder.Place == detector.PlaceBridge,
		}
		f.Interface, f.Netns = document.Text(t.Own.Holder.InterfaceName, document.MaxName), "host"
		found.list = append(found.list, f)
	}
	before := r.lastTwins()
	for _, f := range found.list {
		known := slices.ContainsFunc(before.list, func(o document.Finding) bool { return o.IP == f.IP && o.HeldBy == f.HeldBy })
		if !known && r.twinLines.Allow() {
			r.Log.Warn("another node has an address of this node, too; \"dupip audit\" says what to do", "ip", f.IP, "device", f.Interface, "node", f.HeldBy, "gateway", f.Gateway)
		}
	}
	r.twins.Store(&found)
}

// lastTwins returns what the last look has found. Any goroutine may call it.
func (r *Report) lastTwins() twins {
	if found := r.twins.Load(); found != nil {
		return *found
	}
	return twins{}
}

// twins are what the last look has found. They do not change.
type twins struct {
	list    []document.Finding
	omitted int
}
