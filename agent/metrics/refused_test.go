package metrics

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The interfaces with most refused packets have series of their own.
func TestInterfaceSeries(t *testing.T) {
	list := refusing(100)
	list[3].Refused.RingFull = 500
	got := families(t, New(Sources{Interfaces: answering(InterfaceStats{Observed: list})}))[interfaceRefusedPackets.name]
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
func TestOthersAndTotal(t *testing.T) {
	var r refusedCounters
	one := func(generation uint32, data uint64) InterfaceRefusals {
		return InterfaceRefusals{Generation: generation, Name: fmt.Sprint(generation), Refused: Refused{Data: data}}
	}
	most := refusing(maxInterfaceSeries)
	for i := range most {
		most[i].Refused.Data = 1000
	}
	total := uint64(maxInterfaceSeries * 1000)
	for _, step := range []struct {
		what          string
		gone          uint64
		data          uint64 // of the additional interface; below 1,000 it has no series of its own
		others, total uint64
	}{
		{"few", 0, 10, 10, total + 10},
		{"more", 0, 30, 30, total + 30},
		{"again the same", 0, 30, 30, total + 30},
		{"attached again, its counters are in gone", 30, 5, 35, total + 35},
		// Another interface loses its series. Its packets were exported there, so others stays.
		{"now with its own series", 30, 5000, 35, total + 5030},
		{"gone", 5030, 0, 35, total + 5030},
		{"gone, and missing in gone", 0, 0, 35, total + 5030},
	} {
		r.update(InterfaceStats{Observed: append(most, one(999, step.data)), Gone: Refused{Data: step.gone}})
		if diff := cmp.Diff([]uint64{step.others, step.total}, []uint64{r.others[0], r.total[0]}); diff != "" {
			t.Errorf("%s: others and total (-want +got):\n%s", step.what, diff)
		}
	}
}

// Interfaces are added, attached again and removed: no total decreases, and no count is lost.
func TestCountersNeverGoBack(t *testing.T) {
	const seed = 3
	random := rand.New(rand.NewPCG(seed, seed))
	var (
		r       refusedCounters
		present []InterfaceRefusals
		gone    Refused
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
			gone.Data += present[i].Refused.Data
			present[i] = present[len(present)-1]
			present = present[:len(present)-1]
		case n == 2: // attached again
			i := random.IntN(len(present))
			gone.Data += present[i].Refused.Data
			present[i].Refused.Data = 0
		default:
			more := uint64(random.IntN(1000))
			refused += more
			present[random.IntN(len(present))].Refused.Data += more
		}
		own := r.update(InterfaceStats{Observed: present, Gone: gone})
		if r.total[0] != refused {
			t.Fatalf("step %d, seed %d: total %d, want %d", step, seed, r.total[0], refused)
		}
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
	// If a caller omits Gone, the total does not decrease.
	r.update(InterfaceStats{})
	if r.total != before.total || r.others != before.others {
		t.Errorf("from %v to %v", before, r)
	}
}
