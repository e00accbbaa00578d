package audit

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/document"
)

// A reading that is the same as the last one need not be compared until that says so: who leaves it out finds the same, at the same time, and
// asks for lists of sandboxes no later.
func TestSameReading(t *testing.T) {
	changes := map[string][]change{
		"book": {
			func(*reading) {}, reserved("pods", "10.1.2.5", web), reserved("pods", "10.1.2.5", db), reserved("pods", "10.1.2.5", old),
			reserved("pods", "10.1.2.6", old), unreadable, noBook, plugin("macvlan"),
		},
		"node": {
			func(*reading) {}, live("10.1.2.5", web), live("10.1.2.5", db), foreign("10.1.2.6"), hidden,
		},
		"runtime": {func(*reading) {}, notReady, notListed, incomplete, noRuntime},
	}
	left := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		all, some := comparison{grace: 4 * time.Second}, comparison{grace: 4 * time.Second}
		var last reading
		var found string
		state := make(map[string]int)
		var list time.Duration
		var shared []*books.Reserved
		for n := range 60 {
			now := time.Duration(n) * time.Second
			kind := []string{"book", "node", "runtime"}[r.IntN(3)]
			if r.IntN(4) == 0 {
				state[kind] = r.IntN(len(changes[kind]))
			} else {
				kind = "" // nothing changes
			}
			if r.IntN(5) == 0 {
				list = now
			}
			next := newReading(start.Add(now), changes["book"][state["book"]], changes["node"][state["node"]], listed(list), changes["runtime"][state["runtime"]])
			if kind != "book" && shared != nil { // what has not changed is the same
				next.books = shared
			}
			shared = next.books
			want, _, waiting := all.add(next)
			if some.holds(next.at) && next.same(&last) {
				left++
				if waiting {
					t.Errorf("seed %d, %s: a list is needed, and it was not compared", seed, now)
				}
			} else {
				findings, _, _ := some.add(next)
				found, last = dated(findings), *next
			}
			if found != dated(want) || some.settled != all.settled || some.early != all.early {
				t.Fatalf("seed %d, %s: %s (settled %t, early %d), want %s (%t, %d)", seed, now, found, some.settled, some.early, dated(want), all.settled, all.early)
			}
		}
	}
	if left < 1000 {
		t.Errorf("only %d comparisons were left out", left)
	}
}

// dated are the findings with their times.
func dated(findings []document.Finding) (all string) {
	for n := range findings {
		all += text(findings[n:n+1]) + findings[n].Since.Sub(start).String() + ";"
	}
	return all
}
