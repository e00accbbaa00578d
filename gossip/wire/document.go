package wire

import (
	"slices"
	"time"

	"github.com/dupip/dupip/detector/cluster"
)

// MarshalDocument encodes what the agent of a node knows, the reply to a [Query], in at most limit bytes. What does not
// fit is counted as omitted. Bindings of other nodes are left out: only stories and conflicts have those.
func MarshalDocument(d cluster.Document, node string, limit int, now time.Time) []byte {
	d.Omitted += cut(&d.Bindings, maxElements) + cut(&d.Conflicts, maxElements) + cut(&d.Stories, maxElements) + cut(&d.NextHops, maxElements)
	d.Bindings, d.Conflicts, d.Stories, d.NextHops = slices.Clone(d.Bindings), slices.Clone(d.Conflicts), slices.Clone(d.Stories), slices.Clone(d.NextHops)
	sending(node, now).document(&d)
	for {
		b := Marshal(d)
		if len(b) <= limit {
			return b
		}
		share := func(n int) int { return n * limit / len(b) }
		d.Omitted += cut(&d.Bindings, share(len(d.Bindings))) + cut(&d.Conflicts, share(len(d.Conflicts))) +
			cut(&d.Stories, share(len(d.Stories))) + cut(&d.NextHops, share(len(d.NextHops)))
	}
}

// cut leaves at most n elements in a list, and returns the number of the others.
func cut[E any](list *[]E, n int) (omitted int) {
	n = min(n, len(*list))
	omitted, *list = len(*list)-n, (*list)[:n]
	return omitted
}

// UnmarshalDocument is the reverse of [MarshalDocument], at the node that asked. Elements that are invalid are
// counted as omitted. It reports whether there were fields that this version does not know, and fails with ErrMalformed.
func UnmarshalDocument(b []byte, node string, now time.Time) (d cluster.Document, unknown bool, err error) {
	if unknown, err = Unmarshal(b, &d); err != nil {
		return cluster.Document{}, unknown, err
	}
	d.Omitted = min(max(d.Omitted, 0), maxElements) + receiving(node, now).document(&d)
	return d, unknown, nil
}

// document converts a document, and counts the elements that it leaves out because they are invalid.
func (c converter) document(d *cluster.Document) (invalid int) {
	return keep(&d.Bindings, c.listed) + keep(&d.Conflicts, c.conflict) + keep(&d.Stories, c.story) + keep(&d.NextHops, c.nextHop)
}
