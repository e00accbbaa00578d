package search

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

var (
	seeds    = flag.Int("seeds", 200, "how many seeds to play, if no duration is given")
	duration = flag.Duration("duration", 0, "how long to play")
	first    = flag.Uint64("seed", 1, "the first seed; 0 takes one from the clock")
	plan     = flag.String("plan", "", "a file with a plan to play")
	worlds   = flag.Int("shrink", 2000, "how many worlds may be played to shrink a failure; 0 shrinks none")
)

// TestSearch plays seeds, as many at the same time as there are processors, and prints a line for each.
func TestSearch(t *testing.T) {
	start, seed := time.Now(), *first
	if seed == 0 {
		seed = uint64(start.Unix())
	}
	from, n := seed, 0
	more := func() bool {
		if *duration > 0 {
			return time.Since(start) < *duration
		}
		return n < *seeds
	}
	var passed time.Duration
	confirmed, failed := 0, 0
	for more() {
		batch := make([]Result, 16*runtime.GOMAXPROCS(0))
		if *duration == 0 {
			batch = batch[:min(len(batch), *seeds-n)]
		}
		var wg sync.WaitGroup
		next := make(chan int)
		for range runtime.GOMAXPROCS(0) {
			wg.Go(func() {
				for i := range next {
					batch[i] = Play(Draw(seed+uint64(i)), nil)
				}
			})
		}
		for i := range batch {
			next <- i
		}
		close(next)
		wg.Wait()
		for i, r := range batch {
			passed, confirmed = passed+r.Passed, confirmed+r.Confirmed
			at := seed + uint64(i)
			if testing.Verbose() {
				fmt.Printf("seed %d: %s\n", at, r)
			}
			if r.Broken == nil {
				continue
			}
			if failed++; failed > 5 {
				t.Errorf("seed %d: %s", at, r)
				continue
			}
			less := Shrink(Draw(at), *worlds)
			trace := ""
			Play(less, func(format string, args ...any) { trace += fmt.Sprintf(format, args...) + "\n" })
			t.Errorf("seed %d: %s\nshrunk, for the table in found_test.go:\n%s\n%s", at, r, less, trace)
		}
		seed, n = seed+uint64(len(batch)), n+len(batch)
	}
	t.Logf("%d seeds from %d on, %.1f virtual hours, %d confirmations, %d failed, in %v", n, from, passed.Hours(), confirmed, failed, time.Since(start).Round(time.Second))
}

// The same plan ends the same way, also when its text was read.
func TestSame(t *testing.T) {
	for seed := range uint64(20) {
		p := Draw(seed)
		read, err := Parse(p.String())
		if err != nil {
			t.Fatal(err)
		}
		if a, b := Play(p, nil), Play(read, nil); a.Print != b.Print || a.String() != b.String() {
			t.Errorf("seed %d: %s, %016x, and then %s, %016x", seed, a, a.Print, b, b.Print)
		}
	}
}

// TestPlan plays the plan of a file, and shows its steps.
func TestPlan(t *testing.T) {
	if *plan == "" {
		t.Skip("no -plan")
	}
	text, err := os.ReadFile(*plan)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	r := Play(p, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	fmt.Println(r)
	if r.Broken != nil {
		t.Error(r)
	}
}
