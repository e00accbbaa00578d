package probe

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/schedule"
)

// Budget limits how many probes a node sends each second: one limit for verification, of which checks of confirmed conflicts get a quarter,
// one for everything else. Create it with [NewBudget]; not safe for concurrent use.
type Budget struct {
	verify, checks bucket
	refresh        *rate.Limiter
}

// NewBudget returns a budget with these limits, in probes per second. A burst has the probes of one
// second.
func NewBudget(verifyPerSecond, refreshPerSecond int) *Budget {
	return &Budget{
		verify:  newBucket(verifyPerSecond, verifyPerSecond),
		checks:  newBucket(verifyPerSecond/4, max(1, verifyPerSecond/4)),
		refresh: rate.NewLimiter(rate.Limit(refreshPerSecond), refreshPerSecond),
	}
}

// Allow takes one probe from the budget and reports whether there was one. A quarter of each budget is
// reserved: for this node's own suspicions, and for the addresses that have a binding. Probes that yield leave
// it; they are for other nodes, or for addresses without a binding.
func (b *Budget) Allow(purpose detector.Purpose, yields bool, now time.Time) bool {
	if purpose == detector.Verify {
		kept := 0.0
		if yields {
			kept = b.verify.burst/4 - 1
		}
		return b.verify.take(kept, now)
	}
	if yields && b.refresh.TokensAt(now) < float64(b.refresh.Burst())/4 {
		return false
	}
	return b.refresh.AllowN(now, 1)
}

const (
	// For shortTime after somebody had to wait, a bucket admits rounds at an even rate, and no burst.
	shortTime = 2 * time.Second
	// Tokens that are set aside for moments less than slotTime apart are in one slot.
	slotTime = 50 * time.Millisecond
	// checkPause is how long checks wait for their part of the budget.
	checkPause = 200 * time.Millisecond
	// No token is set aside for later than this. The second round of a conflict comes sooner, unless it is about a node's address and
	// --vip-overlap is long.
	maxAhead = time.Minute
	// A new round leaves this part of the burst unused, for probes without tokens of their own: repetitions, and those for other nodes. A
	// round that yields leaves keptByYield.
	keptPart, keptByYield = 1.0 / 16, 1.0 / 2
)

// bucket is a token bucket. A round takes tokens now, and sets as many aside for its second part; nobody else gets those.
type bucket struct {
	rate, burst float64 // per second; at most
	level       float64
	at          time.Time // when it had this level; zero before the first probe
	// twice is how many tokens first rounds may still take. It grows half as fast as the level, because the second rounds need the other half.
	twice  float64
	short  time.Time // when it had too few for what waits last
	wanted float64   // how many that wanted
	ahead  []slot    // in order of time
}

// slot is how many tokens are set aside for a moment.
type slot struct {
	at time.Time
	n  float64
}

func newBucket(rate, burst int) bucket {
	return bucket{rate: float64(rate), burst: float64(burst), level: float64(burst), twice: float64(burst)}
}

// pass lets time pass. What was set aside for that time is taken.
func (b *bucket) pass(now time.Time) {
	for len(b.ahead) > 0 && !b.ahead[0].at.After(now) {
		b.refill(b.ahead[0].at)
		b.level -= b.ahead[0].n
		b.ahead = b.ahead[1:]
	}
	b.refill(now)
}

func (b *bucket) refill(now time.Time) {
	if b.at.IsZero() {
		b.at = now
	}
	if passed := now.Sub(b.at); passed > 0 {
		most := b.burst
		if now.Sub(b.short) < shortTime {
			most = max(most*keptPart, b.wanted)
		}
		b.level, b.twice = min(b.burst, b.level+b.rate*passed.Seconds()), max(b.twice, min(most, b.twice+b.rate/2*passed.Seconds()))
		b.at = now
	}
}

// take takes a token if there is one beyond those that are kept.
func (b *bucket) take(kept float64, now time.Time) bool {
	if b.pass(now); b.level < 1+kept {
		return false
	}
	b.level--
	return true
}

// fits returns zero if there are n tokens now and as many again later, at a time that is zero if none are needed then, and what was set aside
// stays there, with a part of the burst beside. Otherwise it returns when that may be so. More than half of a burst is never there twice: so
// many are enough.
func (b *bucket) fits(n int, part float64, again, now time.Time) (until time.Time) {
	b.pass(now)
	var need float64
	defer func() {
		if !until.IsZero() {
			b.short, b.wanted = now, need
		}
	}()
	need = min(float64(n), max(1, b.burst*(1-part)/2))
	kept := min(b.burst*part, b.burst-need)
	level, at := b.level-need, now
	if level < kept {
		return now.Add(b.timeFor(kept - level))
	}
	if !again.IsZero() && b.twice < need {
		return now.Add(b.timeFor(2 * (need - b.twice)))
	}
	more := []slot{{again, need}}
	if again.IsZero() {
		more = nil
	}
	for ahead := b.ahead; len(ahead)+len(more) > 0; {
		next := &ahead
		if len(ahead) == 0 || len(more) > 0 && more[0].at.Before(ahead[0].at) {
			next = &more
		}
		s := (*next)[0]
		*next = (*next)[1:]
		level, at = min(b.burst, level+b.rate*s.at.Sub(at).Seconds())-s.n, s.at
		if level < 0 {
			return now.Add(b.timeFor(-level))
		}
	}
	return time.Time{}
}

// timeFor returns how long it takes until there are so many more tokens.
func (b *bucket) timeFor(tokens float64) time.Duration {
	if b.rate <= 0 {
		return time.Second
	}
	return min(time.Second, max(2*time.Millisecond, time.Duration(tokens/b.rate*float64(time.Second))))
}

// set takes n tokens, and sets n aside for later. They must fit.
func (b *bucket) set(n int, again time.Time) {
	b.level -= float64(n)
	if again.IsZero() {
		return
	}
	b.twice -= float64(n)
	k := len(b.ahead)
	for k > 0 && again.Before(b.ahead[k-1].at) {
		k--
	}
	if k > 0 && again.Sub(b.ahead[k-1].at) < slotTime {
		b.ahead[k-1].n += float64(n)
		return
	}
	b.ahead = append(b.ahead, slot{})
	copy(b.ahead[k+1:], b.ahead[k:])
	b.ahead[k] = slot{again, float64(n)}
}

const (
	// keptFor is how long a probe stays set aside after its time: its round may begin late, because another node was slow.
	keptFor = 3 * time.Second
	// maxReserved limits the addresses for which probes are set aside.
	maxReserved = 1 << 16
)

// target is an address of a holder.
type target struct {
	key    detector.Key
	holder detector.HolderID
}

// reserved has the probes that are set aside, for two rounds of an address at most.
type reserved map[target]reservation

type reservation struct {
	probes int
	until  time.Time
}

// take uses one of them.
func (r reserved) take(to target, now time.Time) bool {
	v, ok := r[to]
	if ok = ok && now.Before(v.until); !ok {
		return false
	}
	if v.probes--; v.probes == 0 {
		delete(r, to)
	} else {
		r[to] = v
	}
	return true
}

// add sets probes aside, unless there are too many: then the budget has to have them again.
func (r reserved) add(to target, probes int, until, now time.Time) {
	if len(r) >= maxReserved {
		for k, v := range r {
			if !now.Before(v.until) {
				delete(r, k)
			}
		}
	}
	if len(r) < maxReserved {
		r[to] = reservation{probes, until}
	}
}

// Reserve implements [detector.Budget]. Checks that yield get a quarter of the budget, less what is used for those that other nodes ask for.
func (p *Prober) Reserve(list []detector.Probe, again, now time.Time, yields bool) (until time.Time, all bool) {
	check, part := again.IsZero(), keptPart
	if again.Sub(now) > maxAhead {
		again = time.Time{}
	}
	if yields {
		part = keptByYield
		if p.Budget.checks.pass(now); p.Budget.checks.level < 1 {
			return now.Add(checkPause), true // then there is room for some: what is sent together takes few packets
		}
	}
	on := make(map[*state]int, 2)
	for _, probe := range list {
		if i := p.interfaces[probe.Interface]; i != nil {
			on[i]++
		}
	}
	for i, n := range on {
		until = schedule.Later(until, i.limit.fits(n, part, again, now))
	}
	if !until.IsZero() {
		return until, false
	}
	if until = p.Budget.verify.fits(len(list), part, again, now); !until.IsZero() {
		return until, true
	}
	p.Budget.verify.set(len(list), again)
	for i, n := range on {
		i.limit.set(n, again)
	}
	rounds, end := 1, now
	if !again.IsZero() {
		rounds, end = 2, again
	}
	for _, probe := range list {
		p.reserved.add(target{probe.Key, probe.Holder}, rounds, end.Add(keptFor), now)
	}
	if check {
		p.Budget.checks.pass(now)
		p.Budget.checks.set(len(list), time.Time{})
		p.Budget.checks.level = max(p.Budget.checks.level, -p.Budget.checks.burst) // others may ask for more than this
	}
	return time.Time{}, false
}
