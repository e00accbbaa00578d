package merge

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/schedule"
)

const (
	// maxPairs limits the pairs of nodes.
	maxPairs = 1000
	// maxPaired limits the nodes of one conflict that are paired with each other.
	maxPaired = 16
	// maxExamples limits the addresses that a pair names.
	maxExamples = 3
)

// Pair is the document of a pair of nodes.
type Pair struct {
	A, B string // NodeIDs, A the lesser one
	document.Pair
}

// PairsOf returns the pairs of the nodes of one conflict, by NodeIDs in order, without repeats.
func PairsOf(nodes []string) (pairs [][2]string) {
	var known []string
	for _, node := range nodes {
		if slices.Contains(known, node) || len(known) == maxPaired {
			continue
		}
		for _, other := range known {
			pairs = append(pairs, [2]string{min(node, other), max(node, other)})
		}
		known = append(known, node)
	}
	return pairs
}

// Pairs counts the addresses that two nodes share in confirmed conflicts that are no drills, the most first.
func Pairs(conflicts []document.Conflict) (pairs []Pair) {
	found := make(map[[2]string]*document.Pair)
	for _, c := range conflicts {
		if c.State != detector.Confirmed || c.Drill {
			continue
		}
		var nodes []string
		for _, b := range c.Holders {
			nodes = append(nodes, b.NodeID())
		}
		for _, id := range PairsOf(nodes) {
			p := found[id]
			if p == nil && len(found) == maxPairs {
				continue
			} else if p == nil {
				p = new(document.Pair)
				found[id] = p
			}
			p.Addresses++
			p.Since = schedule.Earlier(p.Since, c.ConfirmedAt)
			example := document.Address{Network: c.Network, IP: c.IP}
			if len(p.Examples) < maxExamples && !slices.Contains(p.Examples, example) {
				p.Examples = append(p.Examples, example)
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(found), func(x, y [2]string) int {
		return cmp.Or(cmp.Compare(found[y].Addresses, found[x].Addresses), slices.Compare(x[:], y[:]))
	}) {
		names := Names(id[:])
		found[id].Nodes = []string{names[id[0]], names[id[1]]}
		pairs = append(pairs, Pair{id[0], id[1], *found[id]})
	}
	return pairs
}
