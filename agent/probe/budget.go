package probe

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector"
)

// Budget limits how many probes a node sends each second: one limit for verification, one for
// everything else. Create it with [NewBudget]; it is safe for concurrent use.
type Budget struct {
	verify, refresh *rate.Limiter
}

// NewBudget returns a budget with these limits, in probes per second. A burst has the probes of one
// second.
func NewBudget(verifyPerSecond, refreshPerSecond int) *Budget {
	return &Budget{
		verify:  rate.NewLimiter(rate.Limit(verifyPerSecond), verifyPerSecond),
		refresh: rate.NewLimiter(rate.Limit(refreshPerSecond), refreshPerSecond),
	}
}

// Allow takes one probe from the budget and reports whether there was one. A quarter of each budget is
// reserved: for this node's own suspicions, and for the addresses that have a binding. Probes that yield leave
// it; they are for other nodes, or for addresses without a binding.
func (b *Budget) Allow(purpose detector.Purpose, yields bool, now time.Time) bool {
	limit := b.refresh
	if purpose == detector.Verify {
		limit = b.verify
	}
	if yields && limit.TokensAt(now) < float64(limit.Burst())/4 {
		return false
	}
	return limit.AllowN(now, 1)
}
