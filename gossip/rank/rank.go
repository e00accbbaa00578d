// Package rank has the scores by which agents choose the keepers of an address, by rendezvous hashing: every node
// has a score for every key, and the nodes with the highest scores keep it. All agents that know the same nodes
// choose the same ones without a message, and a node that comes or goes moves only the keys that it keeps itself.
//
// All values are part of the protocol.
package rank

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/dupip/dupip/detector"
)

// Seed is the hash of a node that its scores are made from.
type Seed uint64

// SeedOf returns the seed of one boot of a node. The agent's epoch is not in it, so that an upgrade of the agent
// moves nothing.
func SeedOf(name, boot string) Seed { return Seed(hash(name, boot)) }

// KeyHash returns the hash of a key that [Score] takes.
func KeyHash(k detector.Key) uint64 { return hash(k.Network, string(k.IP.AsSlice())) }

// hash joins the texts by a byte that the first one never has: "a","bc" is not "ab","c".
func hash(a, b string) uint64 { return xxhash.Sum64String(a + "\x00" + b) }

// Score is the score of a node for a key.
func Score(s Seed, key uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(s))
	binary.LittleEndian.PutUint64(b[8:], key)
	return xxhash.Sum64(b[:])
}
