package metrics

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheLoudestAreNamed(t *testing.T) {
	list := refusing(100)
	list[3].Refused.RingFull = 500
	got := families(t, New(Sources{Interfaces: answering(InterfaceStats{Observed: list})}))[interfaceRefusedPackets.name]
	if len(got) != (maxNamed+1)*4 {
		t.Errorf("%d series, want %d", len(got), (maxNamed+1)*4)
	}
	for i, want := range map[int]bool{3: true, 80: false, 81: true, 99: true, 4: false} {
		if _, named := got[fmt.Sprintf("veth%03d/data/cni-%03d/", i, i)]; named != want {
			t.Errorf("interface %d named: %t, want %t", i, named, want)
		}
	}
	if n := got["veth003/ring_full/cni-003/"]; n != 500 {
		t.Errorf("ring full: %v, want 500", n)
	}
	// 1 to 81 without the fourth.
	if n := got["/data//"]; n != 81*82/2-4 {
		t.Errorf("others: %v, want %d", n, 81*82/2-4)
	}
}

func TestRefusedAccount(t *testing.T) {
	var a refusedCounters
	one := func(generation uint32, data uint64) InterfaceRefusals {
		return InterfaceRefusals{Generation: generation, Name: fmt.Sprint(generation), Refused: Refused{Data: data}}
	}
	crowd := refusing(maxNamed)
	for i := range crowd {
		crowd[i].Refused.Data = 1000
	}
	total := uint64(maxNamed * 1000)
	for _, step := range []struct {
		what          string
		gone          uint64
		data          uint64 // of one more interface, among the others below 1,000
		others, total uint64
	}{
		{"few", 0, 10, 10, total + 10},
		{"more", 0, 30, 30, total + 30},
		{"again the same", 0, 30, 30, total + 30},
		{"attached again, its old count in gone", 30, 5, 35, total + 35},
		// One of the named is among the others now. Its packets were counted under its name.
		{"now among the loudest", 30, 5000, 35, total + 5030},
		{"gone, counted", 5030, 0, 35, total + 5030},
		{"gone, not counted", 0, 0, 35, total + 5030},
	} {
		a.update(InterfaceStats{Observed: append(crowd, one(999, step.data)), Gone: Refused{Data: step.gone}})
		if diff := cmp.Diff([]uint64{step.others, step.total}, []uint64{a.others[0], a.total[0]}); diff != "" {
			t.Errorf("%s: others and total (-want +got):\n%s", step.what, diff)
		}
	}
}

// Interfaces are added, attached again and removed: no total decreases, and no count is lost.
func TestCountersNeverGoBack(t *testing.T) {
	const seed = 3
	random := rand.New(rand.NewPCG(seed, seed))
	var (
		a       refusedCounters
		present []InterfaceRefusals
		gone    Refused
		before  refusedCounters
		truth   uint64
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
			truth += more
			present[random.IntN(len(present))].Refused.Data += more
		}
		named := a.update(InterfaceStats{Observed: present, Gone: gone})
		if a.total[0] != truth {
			t.Fatalf("step %d, seed %d: total %d, want %d", step, seed, a.total[0], truth)
		}
		if a.others[0] < before.others[0] || a.others[0] > truth {
			t.Fatalf("step %d, seed %d: others from %d to %d of %d", step, seed, before.others[0], a.others[0], truth)
		}
		if len(named) > maxNamed || len(a.last) > len(present) {
			t.Fatalf("step %d, seed %d: %d named, %d remembered of %d", step, seed, len(named), len(a.last), len(present))
		}
		before = a
	}
	if before.others[0] == 0 {
		t.Error("no interface was ever among the others: the test shows nothing")
	}
	// If a caller omits Gone, the total does not decrease.
	a.update(InterfaceStats{})
	if a.total != before.total || a.others != before.others {
		t.Errorf("from %v to %v", before, a)
	}
}
