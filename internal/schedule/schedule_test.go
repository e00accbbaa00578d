package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type job struct {
	Place
	due int
}

func (j *job) Before(o *job) bool { return j.due < o.due }

// Whatever is added, moved and removed, the first is the one that is due first.
func TestSchedule(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var s Schedule[*job]
	var there []*job
	for n := range 10_000 {
		switch i := random.IntN(max(len(there), 1)); {
		case len(there) < 20 || random.IntN(3) == 0:
			there = append(there, &job{due: random.IntN(1000)})
			s.Set(there[len(there)-1])
		case random.IntN(2) == 0:
			there[i].due = random.IntN(1000)
			s.Set(there[i])
		default:
			s.Remove(there[i])
			s.Remove(there[i]) // once more is nothing
			there = slices.Delete(there, i, i+1)
		}
		first := slices.MinFunc(there, func(a, b *job) int { return a.due - b.due })
		if s.First().due != first.due || s.Len() != len(there) {
			t.Fatalf("after %d changes %+v is the first of %d, want %+v of %d", n, s.First(), s.Len(), first, len(there))
		}
	}
	for _, j := range there {
		if s.Remove(j); j.Place != 0 {
			t.Errorf("%+v has a place", j)
		}
	}
	if s.First() != nil {
		t.Errorf("%+v is left", s.First())
	}
}
