package detector

import "slices"

// Place is where on its node an address is. The zero value is any other place.
type Place uint8

// The places. All but PlaceSegment are those of addresses of the node itself.
const (
	PlaceUplink  Place = iota + 1 // on the segment that joins the nodes: two that have it both answer there
	PlaceBridge                   // on the bridge of pods in the cluster's network: it is their gateway
	PlaceUnasked                  // as PlaceUplink, where nobody may be asked
	PlaceSegment                  // of a pod, on a segment behind another device of the node: pods of other nodes may be on it, and may not
	PlaceSecond                   // of the node itself, on such a segment
	places
)

// isSecond reports whether it is on a segment of which nobody knows whether other nodes are on it.
func (p Place) isSecond() bool { return p == PlaceSegment || p == PlaceSecond }

// MustHear reports whether holders on two nodes are a conflict only if each hears the other's answer.
func MustHear(a, b Place) bool {
	return a == PlaceUplink && b == PlaceUplink || a.isSecond() || b.isSecond()
}

// Told reports whether it is worth to be told that two nodes have one address, or pods of theirs, although they are in no conflict. Elsewhere many
// nodes may have it.
func Told(a, b Place) bool {
	onUplink := func(p Place) bool { return p == PlaceUplink || p == PlaceUnasked }
	return onUplink(a) && onUplink(b) || a == PlaceBridge || b == PlaceBridge || a.isSecond() && b.isSecond() && (a == PlaceSegment || b == PlaceSegment)
}

// Known returns the place, or zero for one of a later version.
func (p Place) Known() Place {
	if p >= places {
		return 0
	}
	return p
}

// areNodes reports whether all of these holders are nodes themselves.
func areNodes(list []*binding) bool {
	return !slices.ContainsFunc(list, func(b *binding) bool { return b.evidence != Host })
}

// mustBeHeard reports whether the holder is on another node, and in a conflict with those of this node only if they hear each other.
func (b *binding) mustBeHeard() bool {
	if !b.remote {
		return false
	}
	hears, local := true, false
	for _, o := range b.entry.bindings {
		if !o.remote && o.counts() {
			hears, local = hears && MustHear(o.holder.Place, b.holder.Place), true
		}
	}
	return hears && (local || b.holder.Place.isSecond())
}
