package roster

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/dupip/dupip/detector"
)

func key(i int) detector.Key {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 0x0a000000+uint32(i))
	return detector.Key{Network: "default", IP: netip.AddrFrom4(b)}
}

// Agents of two versions must agree on the values.
func TestHashesStay(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uint64
	}{
		{"seed", hash("node-1", "boot"), 0xbda2905215b504a9},
		{"IPv4", KeyHash(detector.Key{Network: "default", IP: netip.MustParseAddr("10.0.0.1")}), 0x28e8176df5d271c0},
		{"IPv6", KeyHash(detector.Key{Network: "default", IP: netip.MustParseAddr("fd00::1")}), 0xa38d30f419f63a0b},
		{"score", (&Node{seed: hash("node-1", "boot")}).Score(42), 0xecb0f6ca46202f94},
	} {
		if c.got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, c.got, c.want)
		}
	}
	if hash("a", "bc") == hash("ab", "c") {
		t.Error("the parts of a seed run into each other")
	}
}

// Names and addresses that follow each other, as they do, must spread like random ones.
func TestUniform(t *testing.T) {
	const nodes, keys, k = 100, 20000, 3
	ranked := make([]Node, nodes)
	all := make([]int, nodes)
	for i := range nodes {
		ranked[i].seed, all[i] = hash(fmt.Sprintf("node-%d", i), "00000000-0000-0000-0000-000000000000"), i
	}
	kept := make([]int, nodes)
	together := make(map[[2]int]int)
	for i := range keys {
		h := KeyHash(key(i))
		slices.SortFunc(all, func(a, b int) int { return cmp.Compare(ranked[b].Score(h), ranked[a].Score(h)) })
		for j, a := range all[:k] {
			kept[a]++
			for _, b := range all[:j] {
				together[[2]int{min(a, b), max(a, b)}]++
			}
		}
	}
	// Chi squared with 99 degrees of freedom has mean 99 and deviation 14.
	want := float64(keys*k) / nodes
	chi := 0.0
	for _, n := range kept {
		chi += (float64(n) - want) * (float64(n) - want) / want
	}
	if chi > 99+6*14 {
		t.Errorf("chi squared of the keys per node is %.0f, about 99 expected", chi)
	}
	// Which nodes keep a key together must be random, too, or one loss takes all.
	most := 0
	for _, n := range together {
		most = max(most, n)
	}
	mean := float64(keys*3) / (nodes * (nodes - 1) / 2)
	if limit := mean + 7*math.Sqrt(mean); float64(most) > limit {
		t.Errorf("two nodes keep %d keys together, %.1f on average", most, mean)
	}
}
