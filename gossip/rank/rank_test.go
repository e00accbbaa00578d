package rank

import (
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

func ring(n int) *Ring[int] {
	r := new(Ring[int])
	for i := range n {
		r.Add(i, SeedOf(fmt.Sprintf("node-%d", i), "00000000-0000-0000-0000-000000000000"))
	}
	return r
}

// The values are part of the protocol: agents of two versions must agree.
func TestHashesStay(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uint64
	}{
		{"seed", uint64(SeedOf("node-1", "boot")), 0x44c1da48ee6d042a},
		{"IPv4", KeyHash(detector.Key{Network: "default", IP: netip.MustParseAddr("10.0.0.1")}), 0xb42bf23a6fa84a19},
		{"IPv6", KeyHash(detector.Key{Network: "default", IP: netip.MustParseAddr("fd00::1")}), 0x56dd9de84a29cad1},
		{"score", Score(SeedOf("node-1", "boot"), 42), 0x84fae4416fde3e40},
	} {
		if c.got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, c.got, c.want)
		}
	}
	if SeedOf("a", "bc") == SeedOf("ab", "c") {
		t.Error("the parts of a seed run into each other")
	}
}

// Names and addresses that follow each other, as they do, must spread like random ones.
func TestUniform(t *testing.T) {
	const nodes, keys, k = 100, 20000, 3
	r := ring(nodes)
	kept := make([]int, nodes)
	together := make(map[[2]int]int)
	var picks []Pick[int]
	for i := range keys {
		picks = r.Pick(picks[:0], KeyHash(key(i)), k)
		for j, p := range picks {
			kept[p.Node]++
			for _, q := range picks[:j] {
				together[[2]int{min(p.Node, q.Node), max(p.Node, q.Node)}]++
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

func TestPick(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 4, 50} {
		r := ring(n)
		for i := range 100 {
			h := KeyHash(key(i))
			picks := r.Pick(nil, h, 3)
			if want := min(n, 3); len(picks) != want {
				t.Fatalf("%d nodes: %d keepers, want %d", n, len(picks), want)
			}
			all := r.Pick(nil, h, n)
			if !slices.IsSortedFunc(all, compare[int]) || !slices.Equal(picks, all[:len(picks)]) {
				t.Fatalf("%d nodes: picks %v are not the first of %v", n, picks, all)
			}
		}
		if got := r.Pick(nil, 1, 0); len(got) != 0 {
			t.Errorf("picked %v of none", got)
		}
	}
}

// A node that comes takes the place of the last of those whose keys it keeps, and moves no
// others; one that goes gives it back.
func TestMoves(t *testing.T) {
	r := ring(40)
	newcomer, seed := 1000, SeedOf("newcomer", "boot")
	moved := 0
	for i := range 2000 {
		h := KeyHash(key(i))
		before := r.Pick(nil, h, 3)
		r.Add(newcomer, seed)
		after := r.Pick(nil, h, 3)
		r.Remove(newcomer)
		if at := slices.IndexFunc(after, func(p Pick[int]) bool { return p.Node == newcomer }); at >= 0 {
			moved++
			if others := slices.Delete(slices.Clone(after), at, at+1); !slices.Equal(others, before[:2]) {
				t.Fatalf("key %d moved from %v to %v", i, before, after)
			}
		} else if !slices.Equal(before, after) {
			t.Fatalf("key %d moved from %v to %v without the newcomer", i, before, after)
		}
		if again := r.Pick(nil, h, 3); !slices.Equal(before, again) {
			t.Fatalf("key %d: %v, after coming and going %v", i, before, again)
		}
	}
	if moved < 80 || moved > 220 {
		t.Errorf("%d of 2000 keys moved, about 146 expected", moved)
	}
}

func TestAddTwiceAndRemoveUnknown(t *testing.T) {
	r := ring(3)
	r.Add(1, SeedOf("node-1", ""))
	r.Remove(99)
	if r.Len() != 3 || !r.Has(1) || r.Has(99) {
		t.Errorf("%d nodes", r.Len())
	}
	r.Remove(0)
	r.Remove(0)
	if r.Len() != 2 || r.Has(0) || !r.Has(2) {
		t.Errorf("%d nodes after one left", r.Len())
	}
}

func BenchmarkPick5000(b *testing.B) {
	r := ring(5000)
	picks := make([]Pick[int], 0, 4)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		picks = r.Pick(picks[:0], uint64(i)*prime, 3)
	}
}
