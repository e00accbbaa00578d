package books

import (
	"net/netip"
	"slices"

	"github.com/dupip/dupip/document"
)

// span is a range that belongs to a node, or that its book gives out.
type span struct {
	first, last netip.Addr
	text, node  string
	gives       bool
}

// overlapping: a node gives out addresses of a range that is another node's, or two have the same podCIDR.
func (v *view) overlapping() {
	var all []span
	for name, n := range v.nodes.byName {
		for _, p := range n.ranges {
			all = append(all, span{p.Addr(), lastAddr(p), p.String(), name, false})
		}
	}
	for _, a := range v.agents {
		if a != nil {
			all = append(all, a.ranges...)
		}
	}
	slices.SortFunc(all, func(x, y span) int { return x.first.Compare(y.first) })
	var open []span
	for _, s := range all {
		open = slices.DeleteFunc(open, func(o span) bool { return o.last.Compare(s.first) < 0 })
		for _, o := range open[:min(len(open), maxOpen)] {
			if o.node == s.node || o.gives && s.gives { // a network of each node may have the same range
				continue
			}
			x, y := o, s // x gives, or has the first name
			if y.gives || x.gives == y.gives && y.node < x.node {
				x, y = y, x
			}
			d := difference{objects: []place{v.nodes.place(x.node), v.nodes.place(y.node)}}
			d.Kind, d.Book, d.Node, d.ReservedNode, d.Ranges = document.Overlapping, document.Kubernetes, x.node, y.node, []string{x.text, y.text}
			v.put(d)
		}
		open = append(open, s)
	}
}

// maxOpen bounds the ranges that one range is compared with.
const maxOpen = 16

// lastAddr is the last address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(b); bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}
