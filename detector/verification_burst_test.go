package detector

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Five holders join another one in a burst, on two nodes. Each is listed soon, also while others still come: a later one must
// not move the first answers that an earlier one is paired with.
func TestBurstOfNewcomers(t *testing.T) {
	const limit, tick = 3 * time.Second, 25 * time.Millisecond
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, Options{})
		w.play("0s a announces", 3*time.Second)
		names := []string{"b@n2", "c", "d@n2", "e@n2", "f"}
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		came := make(map[string]time.Time)
		for at := w.now; len(came) < len(names) || w.now.Before(at.Add(limit+tick)); w.run(w.now.Add(tick)) {
			if len(came) < len(names) && !at.After(w.now) {
				name := names[len(came)]
				w.do("0s " + name + " announces")
				came[name], at = w.now, w.now.Add(time.Duration(rng.IntN(1300))*time.Millisecond)
			}
			listed := make(map[string]bool)
			for _, c := range w.d.Conflicts(false) {
				for _, h := range c.Holders {
					listed[w.name(h.Holder.ID)] = c.State == Confirmed
				}
			}
			for name, since := range came {
				if !listed[name] && w.now.Sub(since) > limit {
					t.Fatalf("seed %d: %s of %v is not listed %v after it came", seed, name, names, w.now.Sub(since))
				}
			}
		}
	}
}
