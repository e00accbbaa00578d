package roster

import (
	"encoding/binary"
	"net/netip"

	"github.com/cespare/xxhash/v2"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Agents choose the keepers of an address by rendezvous hashing: every node has a score for every key, and the nodes
// with the highest scores keep it. All agents that know the same nodes choose the same ones without a message, and a
// node that comes or goes moves only the keys that it keeps itself. All values are part of the protocol.
//
// An IP has one score, however many agents have it: who has one machine keeps what one machine keeps. Those on
// loopback are each their own, and so are those whose address is no IP, as in tests.

// KeyHash returns the hash of a key that [Node.Score] takes.
func KeyHash(k detector.Key) uint64 { return hash(k.Network, string(k.IP.AsSlice())) }

// seed is what the scores of a member are made from: its IP, or its name and boot.
func seed(m cluster.Member) uint64 {
	if at, err := netip.ParseAddrPort(m.Address); err == nil && !at.Addr().IsLoopback() {
		return hash(at.Addr().Unmap().String(), "")
	}
	return hash(m.Name, m.Boot)
}

// hash joins the texts by a byte that the first one never has: "a","bc" is not "ab","c".
func hash(a, b string) uint64 { return xxhash.Sum64String(a + "\x00" + b) }

// Score is the score of a node for the hash of a key. The agent's epoch is not in it, so that an upgrade of the agent
// moves nothing.
func (n *Node) Score(key uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], n.seed)
	binary.LittleEndian.PutUint64(b[8:], key)
	return xxhash.Sum64(b[:])
}
