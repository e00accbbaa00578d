package metrics

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// The interfaces with most refused packets have series of their own.
func TestInterfaceSeries(t *testing.T) {
	list := refusing(100)
	list[3].Refused[3] = 500
	got := families(t, New(Sources{Loop: answering(LoopStats{Observed: list})}))[interfaceRefusedPackets.name]
	if len(got) != (maxInterfaceSeries+1)*4 {
		t.Errorf("%d series, want %d", len(got), (maxInterfaceSeries+1)*4)
	}
	for i, want := range map[int]bool{3: true, 80: false, 81: true, 99: true, 4: false} {
		if _, own := got[fmt.Sprintf("veth%03d/data/cni-%03d/", i, i)]; own != want {
			t.Errorf("interface %d has series of its own: %t, want %t", i, own, want)
		}
	}
	if n := got["veth003/ring_full/cni-003/"]; n != 500 {
		t.Errorf("ring full: %v, want 500", n)
	}
	// All other interfaces have 1 to 81 refused packets, except the one with 4.
	if n := got["/data//"]; n != 81*82/2-4 {
		t.Errorf("all others: %v, want %d", n, 81*82/2-4)
	}
}

// One more interface than there are series of their own.
func TestOthers(t *testing.T) {
	var r refusedCounters
	one := func(generation uint32, data uint64) InterfaceRefusals {
		return InterfaceRefusals{Generation: generation, Name: fmt.Sprint(generation), Refused: Refused{data}}
	}
	most := refusing(maxInterfaceSeries)
	for i := range most {
		most[i].Refused = Refused{1000}
	}
	for _, step := range []struct {
		what   string
		data   uint64 // of the additional interface; below 1,000 it has no series of its own
		others uint64
	}{
		{"few", 10, 10},
		{"more", 30, 30},
		{"again the same", 30, 30},
		// Another interface loses its series. Its packets were exported there, so others stays.
		{"now with its own series", 5000, 30},
		{"gone", 0, 30},
	} {
		r.update(append(most, one(999, step.data)))
		if r.others[0] != step.others {
			t.Errorf("%s: %d others, want %d", step.what, r.others[0], step.others)
		}
	}
}

// Interfaces are added and removed: the counters of the others never decrease.
func TestOthersNeverGoBack(t *testing.T) {
	const seed = 3
	random := rand.New(rand.NewPCG(seed, seed))
	var (
		r       refusedCounters
		present []InterfaceRefusals
		before  refusedCounters
		refused uint64 // all packets so far
		next    uint32
	)
	for step := range 5000 {
		switch n := random.IntN(10); {
		case n == 0 || len(present) < 5:
			next++
			present = append(present, InterfaceRefusals{Generation: next, Name: fmt.Sprint("veth", next%50)})
		case n == 1:
			i := random.IntN(len(present))
			present[i] = present[len(present)-1]
			present = present[:len(present)-1]
		default:
			more := uint64(random.IntN(1000))
			refused += more
			present[random.IntN(len(present))].Refused[0] += more
		}
		own := r.update(present)
		if r.others[0] < before.others[0] || r.others[0] > refused {
			t.Fatalf("step %d, seed %d: others from %d to %d of %d", step, seed, before.others[0], r.others[0], refused)
		}
		if len(own) > maxInterfaceSeries || len(r.last) > len(present) {
			t.Fatalf("step %d, seed %d: %d with their own series, %d remembered of %d", step, seed, len(own), len(r.last), len(present))
		}
		before = r
	}
	if before.others[0] == 0 {
		t.Error("every interface had series of its own: the test shows nothing")
	}
}
