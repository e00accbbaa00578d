// Package rank says which nodes keep an address, by rendezvous hashing: every node has a
// score for every key, and the nodes with the highest scores keep it. All agents that
// know the same nodes pick the same ones, without a word, and a node that comes or goes
// moves only the keys that it keeps itself.
//
// It knows hashes only: not what a node is, nor whether it is alive.
package rank

import (
	"slices"

	"github.com/dupip/dupip/detector"
)

// Seed is the hash of a node that its scores are made from.
type Seed uint64

// SeedOf returns the seed of one boot of a node. The agent's epoch is not in it, so that
// an upgrade of the agent moves nothing. The value is part of the protocol.
func SeedOf(name, boot string) Seed {
	h := hashString(offset, name)
	h = hashByte(h, 0) // a name has no zero byte: "a","bc" is not "ab","c"
	return Seed(mix(hashString(h, boot)))
}

// KeyHash returns the hash of a key that [Score] takes. The value is part of the protocol.
func KeyHash(k detector.Key) uint64 {
	h := hashString(offset, k.Network)
	h = hashByte(h, 0)
	if k.IP.Is4() {
		for _, b := range k.IP.As4() {
			h = hashByte(h, b)
		}
	} else {
		for _, b := range k.IP.As16() {
			h = hashByte(h, b)
		}
	}
	return mix(h)
}

// Score is the score of a node for a key.
//
// Both hashes are well mixed, so that their XOR differs from node to node in about half
// the bits, and one more round of mixing makes the order of any two nodes independent from
// key to key. A sum or XOR alone would not do: it keeps neighbours neighbours.
func Score(s Seed, key uint64) uint64 { return mix(uint64(s) ^ key) }

// FNV-1a is slow for long texts and poor in its high bits: the texts are short, and mix
// repairs the bits.
const (
	offset = 14695981039346656037
	prime  = 1099511628211
)

func hashByte(h uint64, b byte) uint64 { return (h ^ uint64(b)) * prime }

func hashString(h uint64, s string) uint64 {
	for i := range len(s) {
		h = hashByte(h, s[i])
	}
	return h
}

// mix is the finaliser of splitmix64: a bijection in which every bit of the input changes
// every bit of the output with a probability close to one half.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Ring is a set of nodes to pick keepers from. The zero value is empty. It is not safe for
// concurrent use.
type Ring[N comparable] struct {
	// Parallel slices: picking reads the seeds of all nodes, and nothing else.
	seeds []Seed
	nodes []N
}

// Pick is a node with its score for a key.
type Pick[N comparable] struct {
	Node  N
	Seed  Seed
	Score uint64
}

// Add adds a node; one that is there already stays as it is.
func (r *Ring[N]) Add(n N, s Seed) {
	if !r.Has(n) {
		r.nodes = append(r.nodes, n)
		r.seeds = append(r.seeds, s)
	}
}

// Remove removes a node, if it is there.
func (r *Ring[N]) Remove(n N) {
	i := slices.Index(r.nodes, n)
	if i < 0 {
		return
	}
	last := len(r.nodes) - 1
	r.nodes[i], r.seeds[i] = r.nodes[last], r.seeds[last]
	var zero N
	r.nodes[last] = zero
	r.nodes, r.seeds = r.nodes[:last], r.seeds[:last]
}

// Len returns the number of nodes.
func (r *Ring[N]) Len() int { return len(r.nodes) }

// Has says whether a node is there.
func (r *Ring[N]) Has(n N) bool { return slices.Contains(r.nodes, n) }

// Pick appends the k nodes with the highest scores for a key to dst, the highest first;
// fewer if there are fewer.
func (r *Ring[N]) Pick(dst []Pick[N], key uint64, k int) []Pick[N] {
	start := len(dst)
	for i, seed := range r.seeds {
		score := Score(seed, key)
		if len(dst)-start == k {
			if k == 0 || score < dst[len(dst)-1].Score {
				continue
			}
		}
		dst = insert(dst, start, Pick[N]{r.nodes[i], seed, score}, k)
	}
	return dst
}

func insert[N comparable](picks []Pick[N], start int, p Pick[N], k int) []Pick[N] {
	at := len(picks)
	for at > start && compare(p, picks[at-1]) < 0 {
		at--
	}
	picks = slices.Insert(picks, at, p)
	return picks[:min(len(picks), start+k)]
}

// compare orders picks, the highest score first. Mixing is a bijection: for one key only
// equal seeds have equal scores. Only a collision of 64-bit hashes gives two nodes one seed; then
// agents may pick different ones of the two.
func compare[N comparable](a, b Pick[N]) int {
	switch {
	case a.Score > b.Score:
		return -1
	case a.Score < b.Score:
		return 1
	}
	return 0
}
