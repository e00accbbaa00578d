package judge

import "time"

// Limits are the tolerances.
type Limits struct {
	// Overlap is the agents' --min-overlap. Two holders that cannot have shared an address for that
	// long are no conflict.
	Overlap time.Duration
	// Found is the time in which each holder's node must confirm a pair, from when both certainly had
	// the address.
	Found time.Duration
	// Deaf is that time for a holder that answers others only, if somebody asks for the address every 3 s. Two such answers prove it: it
	// counts at its own node 1 s after the second one, which is 7 s. Until then the other node has asked in vain three times at most: it
	// asks no more for 4 s, and again within 5 s after that, which takes 2 s. The rest is for what others do to the address.
	Deaf time.Duration
	// Unanswered is added if the agent of a third holder is down or has just started: its probe request
	// fails after 1.8 s, and then all rounds start again.
	Unanswered time.Duration
	// Fresh is how long after the end of a pair an agent may confirm it: the answers of the last round
	// count for a second, and one may still be on its way from another node.
	Fresh time.Duration
	// Over is how long after its end a conflict may be open: 3 s until it is resolved, 3 s more while
	// another possible holder is verified, and time for the message from the other node.
	Over time.Duration
	// Suspicion is how long a suspicion with one holder may be open. Two unanswered rounds take 5 s, and
	// a guard delays a probe by up to 10 s.
	Suspicion time.Duration
	// Restart is added after a restart of the node's agent, or of another holder's, from when it is
	// ready. The new agent has lost the leases that it kept, and their nodes send them again within 5 s.
	// Until then it does not deny holders that it does not know.
	Restart time.Duration
	// Restored is how long after that a suspicion from before the restart may wait for a holder on
	// another node.
	Restored time.Duration
}

// DefaultLimits are those for agents with --min-overlap 1s.
func DefaultLimits() Limits {
	return Limits{
		Overlap: time.Second,
		// The goal is 2.5 s at the 99th percentile.
		Found:      3 * time.Second,
		Deaf:       20 * time.Second,
		Unanswered: 3 * time.Second,
		Fresh:      1500 * time.Millisecond,
		Over:       8 * time.Second,
		Suspicion:  15 * time.Second,
		Restart:    5 * time.Second,
		Restored:   90 * time.Second,
	}
}

// found is the time in which a pair must be confirmed.
func (l Limits) found(p *pair) time.Duration {
	if p.deaf() {
		return l.Deaf
	}
	return l.Found
}

// memory is how long the judge remembers: longer than any tolerance.
const memory = 4 * time.Minute
