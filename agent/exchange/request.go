package exchange

import (
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// maxRequests limits the probe requests of other nodes that wait for an answer.
	maxRequests = 4096
	// probeTimeout is how long a probed holder may take; the other node waits about twice as long.
	probeTimeout = 700 * time.Millisecond
	// requestTimeout is how long a guard, or a probe that is not reported, may delay a request before it is refused.
	requestTimeout = time.Second
	// startupTime is how long after its start an agent may not know all of its holders. Until then
	// it must not report any as gone.
	startupTime = 5 * time.Second
	// budgetPause is how long requests wait if the probe budget is used up.
	budgetPause = 20 * time.Millisecond
)

// attempts are the times of the probes, relative to the first.
var attempts = [...]time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond}

// receiveRequest starts to probe a holder of this node for another node.
func (p *Exchange) receiveRequest(m cluster.ProbeRequest, now time.Time) {
	r := &request{ProbeRequest: m, arrived: now, next: now}
	held := p.find(m.Key, m.Holder) != nil
	switch {
	case !p.clusterWide(m.Key.Network):
		p.reply(r, cluster.Gone, "network "+m.Key.Network+" does not span the cluster")
	case !held && p.ready.IsZero():
		p.reply(r, cluster.Refused, "the agent is starting")
	case !held && now.Sub(p.ready) < startupTime:
		p.reply(r, cluster.Refused, "the agent has just started")
	case !held:
		p.reply(r, cluster.Gone, "it does not have the address")
	case p.requests.due.Len() >= maxRequests:
		p.Dropped++
		p.reply(r, cluster.Refused, "too many probe requests are waiting")
	default:
		p.requests.add(r)
	}
}

// advance ends a request that is due, or probes its holder.
func (p *Exchange) advance(r *request, now time.Time) {
	local := p.find(r.Key, r.Holder)
	switch {
	case local == nil:
		p.end(r, cluster.Gone, "it does not have the address any more")
	case r.attempts == len(attempts) && r.forwards:
		p.end(r, cluster.Forwards, "")
	case r.attempts == len(attempts):
		p.end(r, cluster.Unanswered, "")
	case p.requests.probedRecently(r, now):
		p.attempted(r, now)
	case r.unreported && now.Sub(r.arrived) > requestTimeout:
		p.end(r, cluster.Refused, "its kernel was not scanned in time")
	default:
		r.unreported = true
		p.requests.wait(r, now.Add(probeTimeout)) // until Probed sets the time
		p.add(Probe{ForOther: true, request: r, Probe: detector.Probe{
			Key: r.Key, Holder: r.Holder, Interface: local.Holder.Interface, Purpose: detector.Verify,
		}})
	}
}

// attempted counts an attempt and sets the time of the next.
func (p *Exchange) attempted(r *request, now time.Time) {
	if r.began.IsZero() {
		r.began = now
	}
	r.attempts++
	next := r.began.Add(probeTimeout)
	if r.attempts < len(attempts) {
		next = r.began.Add(attempts[r.attempts])
	}
	p.requests.wait(r, next)
}

// Probed takes the result of a [Probe]. It need not be called, for example if a scan in place of the probe is late: then the holder
// is probed again, and nothing follows from its silence. now must not be later than the sending of the probe, so that
// no answer is older than its probe.
func (p *Exchange) Probed(a Probe, refusal detector.ProbeRefusal, now time.Time) {
	sent := refusal == (detector.ProbeRefusal{})
	if sent {
		p.Detector.ProbeSent(a.Probe, now)
	}
	r := a.request
	if r != nil {
		r.unreported = false
	}
	switch {
	case r == nil && !sent:
		p.Apply(p.Detector.ProbeRefused(a.Probe, refusal.Reason, refusal.Until, now), now)
	case r == nil:
	case sent:
		p.requests.setProbed(r.target(), now)
		p.attempted(r, now)
	case refusal.Until.IsZero() || refusal.Until.Sub(r.arrived) > requestTimeout:
		r.next = refusal.Until
		p.end(r, cluster.Refused, refusal.Reason)
	case refusal.Budget:
		p.requests.wait(r, now)
		p.requests.paused = now.Add(budgetPause)
	default:
		p.requests.wait(r, refusal.Until)
	}
}

// answered replies to the requests about a holder that has answered.
func (p *Exchange) answered(s *detector.Sighting) {
	for _, r := range slices.Clone(p.requests.byTarget[target{s.Key, s.Holder.ID}]) {
		switch {
		case s.At.Before(r.arrived):
		case s.Evidence == detector.Forwarded:
			r.forwards = true
		default:
			r.began, r.configured = s.At, s.Evidence == detector.Configured
			p.end(r, cluster.Answered, "")
		}
	}
}

func (p *Exchange) end(r *request, outcome cluster.Outcome, reason string) {
	if p.requests.end(r) {
		p.reply(r, outcome, reason)
	}
}

// reply answers the node that sent a request.
func (p *Exchange) reply(r *request, outcome cluster.Outcome, reason string) {
	t := cluster.ProbeReply{Probe: detector.Probe{Key: r.Key, Holder: r.Holder}, Outcome: outcome, Reason: reason}
	if c := p.find(r.Key, r.Holder); c != nil {
		t.Binding = *c
	}
	switch outcome {
	case cluster.Answered:
		t.At = r.began
		if r.configured && t.Binding.Evidence != 0 {
			t.Binding.Evidence = detector.Configured // what the answer is, not all that is known
		}
	case cluster.Refused:
		t.RetryAt = r.next
		if t.RetryAt.Equal(r.arrived) {
			t.RetryAt = r.arrived.Add(time.Second)
		}
	}
	p.Cluster.ReplyProbe(r.From, r.ID, t)
}
