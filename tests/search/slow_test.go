package search

import (
	"fmt"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
)

// A holder that answers within the limit is found on all nodes, and stays; a slower one is on no node for long, and is asked less and less.
func TestSlowHolders(t *testing.T) {
	const runs, lasts = 10, 5 * time.Minute
	for tenths := time.Duration(1); tenths <= 19; tenths++ {
		slow := tenths * 100 * time.Millisecond
		var shares [2]time.Duration
		suspicions := 0
		for run := range uint64(runs) {
			p, err := Parse(fmt.Sprintf("seed=%d nodes=2\n20s n1 pod a 10.0.0.1\n30s n2 pod b 10.0.0.1 slow=%v\n%v n1 stall 1ms", run, slow, 30*time.Second+lasts))
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(p, nil)
			w.truth.laws = false
			for w.now < 30*time.Second+lasts {
				w.run(w.now + 100*time.Millisecond)
				for n, m := range w.machines {
					for _, c := range m.agent.Detector.Conflicts(false) {
						if c.State == detector.Confirmed {
							shares[n] += 100 * time.Millisecond
						}
					}
				}
			}
			suspicions += w.truth.suspicions
		}
		low, high := min(shares[0], shares[1])*100/(runs*lasts), max(shares[0], shares[1])*100/(runs*lasts)
		if slow <= answersWithin && low < 95 || slow >= slowFrom && (high > 1 || suspicions > 2*runs*maxSuspicions) {
			t.Errorf("one that takes %v is confirmed in %d to %d%% of the time, after %d suspicions in %d runs", slow, low, high, suspicions, runs)
		}
		t.Logf("%v: confirmed %3d%% and %3d%%, %.1f suspicions", slow, 100*shares[0]/(runs*lasts), 100*shares[1]/(runs*lasts), float64(suspicions)/runs)
	}
}
