// Package rank has the scores by which agents choose the keepers of an address, by rendezvous hashing: every node
// has a score for every key, and the nodes with the highest scores keep it. All agents that know the same nodes
// choose the same ones without a message, and a node that comes or goes moves only the keys that it keeps itself.
//
// All values are part of the protocol.
package rank

import "github.com/dupip/dupip/detector"

// Seed is the hash of a node that its scores are made from.
type Seed uint64

// SeedOf returns the seed of one boot of a node. The agent's epoch is not in it, so that an upgrade of the agent
// moves nothing.
func SeedOf(name, boot string) Seed {
	h := hash(offset, name)
	h = hash(h, "\x00") // a name has no zero byte: "a","bc" is not "ab","c"
	return Seed(mix(hash(h, boot)))
}

// KeyHash returns the hash of a key that [Score] takes.
func KeyHash(k detector.Key) uint64 {
	h := hash(offset, k.Network)
	h = hash(h, "\x00")
	return mix(hash(h, string(k.IP.AsSlice())))
}

// Score is the score of a node for a key. Mixing is a bijection: for one key only equal seeds have equal scores.
//
// Both hashes are well mixed, so that their XOR differs from node to node in about half the bits, and one more
// round of mixing makes the order of any two nodes independent from key to key. A sum or XOR alone would not do: it
// keeps neighbours neighbours.
func Score(s Seed, key uint64) uint64 { return mix(uint64(s) ^ key) }

// FNV-1a is slow for long texts and poor in its high bits: the texts are short, and mix repairs the bits.
const (
	offset = 14695981039346656037
	prime  = 1099511628211
)

func hash(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * prime
	}
	return h
}

// mix is the finaliser of splitmix64: a bijection in which every bit of the input changes every bit of the output
// with a probability close to one half.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
