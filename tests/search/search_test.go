package search

import (
	"flag"
	"testing"
	"time"
)

var (
	seeds    = flag.Int("seeds", 0, "how many seeds to play")
	duration = flag.Duration("duration", 0, "how long to play, instead")
	first    = flag.Uint64("seed", 1, "the first seed")
	shrink   = flag.Int("shrink", 300, "how many worlds may be played to shrink a failure")
)

// TestSearch plays seeds one after the other.
func TestSearch(t *testing.T) {
	many, start := *seeds, time.Now()
	if many == 0 && *duration == 0 {
		many = 200
	}
	passed, confirmed, failed := time.Duration(0), 0, 0
	n := 0
	for seed := *first; n < many || *duration > 0 && time.Since(start) < *duration; seed++ {
		n++
		r := Play(Draw(seed), nil)
		passed, confirmed = passed+r.Passed, confirmed+r.Confirmed
		if len(r.Broken) == 0 {
			if testing.Verbose() {
				t.Logf("seed %d: %v, %d confirmed, %016x", seed, r.Passed.Round(time.Second), r.Confirmed, r.Print)
			}
			continue
		}
		failed++
		t.Errorf("seed %d: %s", seed, r.Broken[0])
		if *shrink > 0 {
			less := Shrink(Draw(seed), *shrink)
			t.Errorf("seed %d shrunk:\n%s\n", seed, less)
			t.Errorf("%s", Play(less, t.Logf).Broken)
		}
	}
	t.Logf("%d seeds, %.1f virtual hours, %d confirmations, %d failed", n, passed.Hours(), confirmed, failed)
}

// TestSame plays the same plans twice: the same must happen.
func TestSame(t *testing.T) {
	for seed := range uint64(20) {
		p := Draw(seed)
		if a, b := Play(p, nil), Play(p, nil); a.Print != b.Print || a.Confirmed != b.Confirmed {
			t.Errorf("seed %d: %+v, and then %+v", seed, a, b)
		}
		read, err := Parse(p.String())
		if err != nil || read.String() != p.String() {
			t.Errorf("seed %d: %v, read\n%s\nwritten\n%s", seed, err, read, p)
		}
	}
}
