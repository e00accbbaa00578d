// Package audit runs one real agent beside a real containerd while random pods start and end, and while reservations are
// removed, moved, forged and put back. It compares `dupip audit` all the time with what is true.
//
// What is true it computes itself: from the files of the stores, the kernel's addresses of each pod and the runtime's list of
// sandboxes. A finding that was never true for long enough is an error, and so is one that is true and does not come.
package audit

import (
	"cmp"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

var (
	length = flag.Duration("duration", 20*time.Second, "how long the plan is")
	seed   = flag.Uint64("seed", 1, "what the plan is drawn from; 0 takes one from the clock")
)

const (
	// deadline is how long a finding may take to come, and to go.
	deadline = 15 * time.Second
	// unheldAfter is the agent's --unheld-after. An ADD is shorter.
	unheldAfter = 3 * time.Second
	// look is how often the truth is read, poll how often the agent is asked.
	look = 100 * time.Millisecond
	poll = 200 * time.Millisecond
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

func TestSoakAudit(t *testing.T) {
	seed := cmp.Or(*seed, uint64(time.Now().Unix()))
	t.Logf("seed %d, %v", seed, *length)
	p := newPlay(t, seed)
	watched := p.watch()
	p.perform(draw(seed, *length))
	p.settle("the plan is over", func(int) bool { return true })
	p.end()
	p.settle("all pods have ended", func(open int) bool { return open == 0 })
	watched()
	p.summary()
}
