package judge

import "time"

// Limits are the tolerances.
type Limits struct {
	// Overlap is the agents' --min-overlap: two who shared an address for less, at the
	// longest that the looks allow, are no conflict.
	Overlap time.Duration
	// Found is until when an overlap has to be confirmed at the node of each holder,
	// counted from when both had the address for certain.
	Found time.Duration
	// Unanswered is how much later that may be where a third has the address whose agent is
	// down, or has just come: it is asked as well, in vain for 1.8 s (gossip, ask.go), and
	// all rounds begin anew after that.
	Unanswered time.Duration
	// Fresh is how old what an agent confirms may be. The answers of the last round count
	// for a second (detector, answerTime), and then one may be on its way from another
	// node.
	Fresh time.Duration
	// Over is how long a conflict may go on after its end: it is held for 3 s (detector,
	// resolveTime) and, if somebody who may have the address too is being asked, for
	// another min-overlap and two answers (3 s); the rest is for the word of the end to
	// come from the other node.
	Over time.Duration
	// Suspicion is how long a suspicion may stay open where only one has the address. Two
	// rounds in vain take 5 s, and a question that a safeguard puts off is put again within
	// as many; the probe of a pod itself puts it off for 10 s (agent, probeGuard).
	Suspicion time.Duration
	// Restart is how much later all that may be for a node whose agent was restarted, and
	// for those who share an address with it, counted from when it is ready. A new agent
	// has forgotten what it keeps for others, and those tell it all again within 5 s
	// (gossip, moveSpread); for as long it does not say of a holder that it has not heard
	// of yet that there is none (agent, questionsAfter).
	Restart time.Duration
	// Restored is how long after that a suspicion may be one of the former agent, which
	// waits for a holder on another node (detector, remoteTime).
	Restored time.Duration
}

// DefaultLimits are those for agents with --min-overlap 1s.
func DefaultLimits() Limits {
	return Limits{
		Overlap: time.Second,
		// The goal is 2.5 s at the 99th percentile.
		Found:      3 * time.Second,
		Unanswered: 3 * time.Second,
		Fresh:      1500 * time.Millisecond,
		Over:       8 * time.Second,
		Suspicion:  15 * time.Second,
		Restart:    5 * time.Second,
		Restored:   90 * time.Second,
	}
}

// memory is how long the judge remembers: longer than any tolerance.
const memory = 4 * time.Minute
