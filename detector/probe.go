package detector

import "time"

// Purpose is the reason why a holder is probed.
type Purpose string

// The purposes of a probe, by the names that logs and labels have. Verification has priority when the rate is limited.
const (
	// Verify a suspicion or conflict.
	Verify Purpose = "verify"
	// Refresh keeps a silent binding alive.
	Refresh Purpose = "refresh"
)

// Probe tells the agent to probe a holder. The agent probes a local holder on that interface, and reports [Detector.Probed]: Sent or
// Refused. It observes an answer like any packet. For a remote holder, the agent sends a probe request to its node; Interface is then
// zero and Purpose is Verify. Then it reports one of [Detector.Observe] (Answer is set) and [Detector.Probed].
type Probe struct {
	Key       Key
	Holder    HolderID
	Interface Interface
	Purpose   Purpose
	// Round is the number of the round, so that a late report of an earlier round is ignored. Return
	// it unchanged; zero means the present round.
	Round uint32
}

// ProbeRefusal is why a [Probe] was not sent. The zero value says that it was.
type ProbeRefusal struct {
	// Reason is one short clause for people.
	Reason string
	// Until is when to try again; zero when only something new can change it.
	Until time.Time
	// Budget says that the node's budget of probes is used up.
	Budget bool
}

// Outcome is what became of a probe.
type Outcome uint8

// The outcomes of a probe, by their numbers between nodes.
const (
	Answered    Outcome = iota + 1 // the holder answered its agent after the request had arrived
	Unanswered                     // it was probed and did not answer
	Forwards                       // it answered, but for an address it does not have
	Gone                           // the node has no such holder of the address, or not any more
	Refused                        // a guard forbids to probe it
	Unreachable                    // the node did not reply. Never on the wire
	Sent                           // to a local holder. Never on the wire
)

// Result is what became of a probe, but for an answer.
type Result struct {
	Outcome Outcome
	// Reason is one short clause for people, if the holder is gone or a guard forbids to probe it.
	Reason string
	// Until is when a guard allows to probe the holder; zero if no time is known.
	Until time.Time
}
