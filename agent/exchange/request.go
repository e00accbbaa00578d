package exchange

import (
	"cmp"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/internal/schedule"
)

const (
	// maxRequests limits the probe requests of other nodes that wait for an answer.
	maxRequests = 4096
	// requestTimeout is how long a guard, or a probe that is not reported, may delay a request before it is refused.
	requestTimeout = time.Second
	// reportTime is how long Probed may take before a request is probed again.
	reportTime = requestTimeout / 2
	// startupTime is how long after its start an agent may not know all of its holders. Until then
	// it must not report any as gone.
	startupTime = 5 * time.Second
	// budgetPause is how long requests wait if the probe budget is used up.
	budgetPause = 20 * time.Millisecond
	// queuePause is how long they wait if the conflict of the address waits for a round.
	queuePause = 50 * time.Millisecond
)

// receiveRequest starts to probe a holder of this node for another node.
func (x *Exchange) receiveRequest(m cluster.ProbeRequest, now time.Time) {
	r := &request{ProbeRequest: m, arrived: now, next: now}
	local := x.find(m.Key, m.Holder)
	held := local != nil
	if held {
		r.hear = heardOf(local, m.Bindings)
	}
	switch {
	case !x.clusterWide(m.Key.Network):
		x.reply(r, detector.Gone, "network "+m.Key.Network+" does not span the cluster", now)
	case !held && x.ready.IsZero():
		x.reply(r, detector.Refused, "the agent is starting", now)
	case !held && now.Sub(x.ready) < startupTime:
		x.reply(r, detector.Refused, "the agent has just started", now)
	case !held:
		x.reply(r, detector.Gone, "it does not have the address", now)
	case x.requests.due.Len() >= maxRequests:
		x.Dropped++
		x.reply(r, detector.Refused, "too many probe requests are waiting", now)
	default:
		x.requests.add(r)
		x.Apply(x.Detector.Asked(m.Key, m.From, now), now)
	}
}

// advance ends a request that is due, or probes its holder.
func (x *Exchange) advance(r *request, now time.Time) {
	local := x.find(r.Key, r.Holder)
	soon, queued := x.Detector.RoundAt(r.Key, now) // that serves the request, too
	switch {
	case local == nil:
		x.end(r, detector.Gone, goneReason, now)
	case x.Detector.Deaf(r.Key, r.Holder):
		r.began = now
		x.end(r, detector.Answered, "", now)
	case r.attempts == detector.MaxAttempts && r.forwards:
		x.end(r, detector.Forwards, "", now)
	case r.attempts == detector.MaxAttempts:
		x.end(r, detector.Unanswered, "", now)
	case x.requests.probedRecently(r, now):
		x.attempted(r, now)
	case queued && now.Sub(r.arrived) >= requestTimeout:
		r.next = now.Add(requestTimeout)
		x.end(r, detector.Refused, "too many addresses wait for a probe", now)
	case queued:
		x.requests.wait(r, schedule.Earlier(now.Add(queuePause), r.arrived.Add(requestTimeout)))
	case !soon.IsZero():
		x.requests.wait(r, soon)
	case r.unreported && now.Sub(r.arrived) >= requestTimeout:
		x.end(r, detector.Refused, "its kernel was not scanned in time", now)
	default:
		r.unreported = true
		x.requests.wait(r, now.Add(reportTime)) // until Probed sets the time
		x.add(Probe{ForOther: true, request: r, Probe: detector.Probe{
			Key: r.Key, Holder: r.Holder, Interface: local.Holder.Interface, Purpose: detector.Verify, Hear: r.hear,
		}})
	}
}

// attempted counts an attempt and sets the time of the next.
func (x *Exchange) attempted(r *request, now time.Time) {
	if r.began.IsZero() {
		r.began = now
	}
	r.attempts++
	x.requests.wait(r, detector.AfterAttempt(r.attempts, r.began, now))
}

// Probed takes the result of a [Probe]. It need not be called, for example if a scan in place of the probe is late: then the holder
// is probed again, and nothing follows from its silence. now must not be later than the sending of the probe, so that
// no answer is older than its probe.
func (x *Exchange) Probed(a Probe, refusal detector.ProbeRefusal, now time.Time) {
	sent := refusal == (detector.ProbeRefusal{})
	if sent {
		x.Detector.Probed(a.Probe, detector.Result{Outcome: detector.Sent}, now)
	}
	r := a.request
	again := r != nil && !r.unreported // one scan may stand for several probes
	if r != nil {
		r.unreported = false
	}
	switch {
	case r == nil && !sent:
		x.Apply(x.Detector.Probed(a.Probe, detector.Result{Outcome: detector.Refused, Reason: refusal.Reason, Until: refusal.Until}, now), now)
	case r == nil:
	case sent:
		x.requests.setProbed(r.target(), now)
		if !again {
			x.attempted(r, now)
		}
	case refusal.Until.IsZero() || refusal.Until.Sub(r.arrived) > requestTimeout:
		r.next = refusal.Until
		x.end(r, detector.Refused, refusal.Reason, now)
	case refusal.Budget:
		x.requests.wait(r, now)
		x.requests.paused = now.Add(budgetPause)
	default:
		x.requests.wait(r, refusal.Until)
	}
}

// answered replies to the requests about a holder that has answered.
func (x *Exchange) answered(s *detector.Sighting, now time.Time) {
	for _, r := range slices.Clone(x.requests.byTarget[target{s.Key, s.Holder.ID}]) {
		switch {
		case s.At.Before(r.arrived) || r.hear != (detector.MAC{}):
		case s.Evidence == detector.Forwarded:
			r.forwards = true
		default:
			r.began, r.configured = s.At, s.Evidence == detector.Configured
			x.end(r, detector.Answered, "", now)
		}
	}
}

// heardOf returns the MAC that the holders of the node that asks have, if they and this one are a conflict only if they hear each other.
func heardOf(local *cluster.Binding, asking []cluster.Binding) (mac detector.MAC) {
	for _, b := range asking {
		if !detector.MustHear(local.Holder.Place, b.Holder.Place) {
			return detector.MAC{} // such as a pod that has the address of the node, too
		}
		mac = b.Holder.MAC.Hearable()
	}
	return mac
}

// hear has another node asked whether it has an address, if this node hears its answer on the segment.
func (x *Exchange) hear(p detector.Probe, now time.Time) {
	r := &request{arrived: now, next: now, hear: p.Hear, then: &p}
	r.Key, r.From = p.Key, x.Node
	for _, b := range x.localBindings(p.Key) {
		r.Holder = b.Holder.ID
	}
	if x.requests.due.Len() >= maxRequests {
		x.Dropped++
		x.reply(r, detector.Refused, "too many probe requests are waiting", now)
		return
	}
	x.requests.add(r)
}

// Heard takes an answer for an address of this node that somebody with that MAC gave on a segment.
func (x *Exchange) Heard(key detector.Key, mac detector.MAC, at time.Time) {
	for _, b := range x.localBindings(key) {
		for _, r := range slices.Clone(x.requests.byTarget[target{key, b.Holder.ID}]) {
			if r.hear == mac && !at.Before(r.arrived) {
				r.began = at
				x.end(r, detector.Answered, "", at)
			}
		}
	}
}

const goneReason = "it does not have the address any more"

// gone ends the requests about a holder that does not have the address any more: should it come back, it was not asked.
func (x *Exchange) gone(key detector.Key, id detector.HolderID) {
	for _, r := range slices.Clone(x.requests.byTarget[target{key, id}]) {
		x.end(r, detector.Gone, goneReason, time.Time{})
	}
}

func (x *Exchange) end(r *request, outcome detector.Outcome, reason string, now time.Time) {
	if x.requests.end(r) {
		x.reply(r, outcome, reason, now)
	}
}

// reply answers the node that sent a request.
func (x *Exchange) reply(r *request, outcome detector.Outcome, reason string, now time.Time) {
	if r.then != nil {
		x.heard(r, outcome, reason, now)
		return
	}
	t := cluster.ProbeReply{Probe: detector.Probe{Key: r.Key, Holder: r.Holder}, Outcome: outcome, Reason: reason}
	if c := x.find(r.Key, r.Holder); c != nil {
		t.Binding = *c
	}
	switch outcome {
	case detector.Answered:
		t.At = r.began
		if r.configured && t.Binding.Evidence != 0 {
			t.Binding.Evidence = detector.Configured // what the answer is, not all that is known
		}
	case detector.Refused:
		t.RetryAt = r.next
		if t.RetryAt.Equal(r.arrived) {
			t.RetryAt = r.arrived.Add(time.Second)
		}
	}
	x.Cluster.ReplyProbe(r.From, r.ID, t)
}

// heard goes on when this node has heard another one, or has not.
func (x *Exchange) heard(r *request, outcome detector.Outcome, reason string, now time.Time) {
	switch outcome {
	case detector.Answered:
		x.answeredHere(r, now)
	case detector.Gone: // this node does not have it any more: the conflict is over
	default:
		x.Apply(x.Detector.Probed(*r.then, detector.Result{Outcome: outcome, Reason: reason, Until: r.next}, now), now)
		if outcome == detector.Unanswered {
			x.askWhetherGone(*r.then)
		}
	}
}

// askWhetherGone asks the node of a holder that was not heard whether it has the address at all: else it would be known for long as one that is
// not heard. Without this node's own holders the other one has nothing to suspect, and without a purpose its answer is no evidence.
func (x *Exchange) askWhetherGone(p detector.Probe) {
	p.Purpose = ""
	x.Requested++
	x.Cluster.RequestProbe(p, nil)
}

// answeredHere goes on when this node has heard another one: it asks that one whether it hears this node, too. If the address is the one at which this
// node receives the reply, the other one cannot send it, and that this node answers for it is beyond doubt.
func (x *Exchange) answeredHere(r *request, now time.Time) {
	b, ok := x.Detector.Holder(r.Key, r.then.Holder)
	if r.Key.IP != x.Address || b.Evidence != detector.Host {
		x.requestProbe(*r.then)
		return
	}
	if ok {
		x.Apply(x.Detector.Observe(detector.Sighting{Key: r.Key, Holder: b.Holder, Evidence: detector.Host, Answer: true, Listed: true, At: r.began, FirstSeen: b.FirstSeen}, now), now)
	}
}

// probeReuse is how long a probe also serves other requests about the holder that arrived before it. Later
// requests wait that long, so that the next probe serves all of them: if many nodes have an address, each
// sends a request to each.
const probeReuse = 20 * time.Millisecond

// request is a probe request of another node that is not answered yet.
type request struct {
	cluster.ProbeRequest
	schedule.Place // until it has ended
	arrived        time.Time
	began          time.Time // first attempt; zero before
	attempts       int
	next           time.Time // of the next attempt
	forwards       bool      // it answered, but for an address that it does not have
	// hear, unless it is zero, is the MAC that has to be heard for the address on a segment; then what follows if this node asks for itself.
	hear detector.MAC
	then *detector.Probe
	// unreported: its last probe was not reported to Probed.
	unreported bool
	// configured: the answer is what the kernel of the holder has configured.
	configured bool
}

// Before implements [schedule.Element]: by next, then by arrival.
func (r *request) Before(o *request) bool {
	return cmp.Or(r.next.Compare(o.next), r.arrived.Compare(o.arrived)) < 0
}

func (r *request) target() target { return target{r.Key, r.Holder} }

// target is the holder and the address that a request is about.
type target struct {
	key    detector.Key
	holder detector.HolderID
}

// requests are the probe requests of other nodes that wait. The zero value is empty.
type requests struct {
	due      schedule.Schedule[*request]
	byTarget map[target][]*request
	// probed has the time of the last probe of each holder in recent, which is ordered by that time.
	probed map[target]time.Time
	recent []target
	// paused is until when requests wait because the probe budget is used up.
	paused time.Time
}

func (rs *requests) add(r *request) {
	if rs.byTarget == nil {
		rs.byTarget, rs.probed = make(map[target][]*request), make(map[target]time.Time)
	}
	to := r.target()
	if at, ok := rs.probed[to]; ok && r.next.Before(at.Add(probeReuse)) {
		r.next = at.Add(probeReuse)
	}
	rs.due.Set(r)
	rs.byTarget[to] = append(rs.byTarget[to], r)
}

// end removes a request. It reports false if the request has ended already.
func (rs *requests) end(r *request) bool {
	if r.Place == 0 {
		return false
	}
	rs.due.Remove(r)
	to := r.target()
	rest := slices.DeleteFunc(rs.byTarget[to], func(other *request) bool { return other == r })
	if rs.byTarget[to] = rest; len(rest) == 0 {
		delete(rs.byTarget, to)
	}
	return true
}

// wait sets the time of the next attempt, unless the request has ended.
func (rs *requests) wait(r *request, until time.Time) {
	if r.Place != 0 {
		r.next = until
		rs.due.Set(r)
	}
}

// setProbed records that a holder was probed.
func (rs *requests) setProbed(to target, now time.Time) {
	for len(rs.recent) > 0 && now.Sub(rs.probed[rs.recent[0]]) >= probeReuse {
		delete(rs.probed, rs.recent[0])
		rs.recent = rs.recent[1:]
	}
	rs.probed[to] = now
	rs.recent = append(rs.recent, to)
}

// probedRecently reports whether the holder was probed less than probeReuse ago, and after the request
// arrived. The request then needs no probe of its own.
func (rs *requests) probedRecently(r *request, now time.Time) bool {
	at, ok := rs.probed[r.target()]
	return ok && now.Sub(at) < probeReuse && !at.Before(r.arrived)
}

// first returns the first request that is due, nil if there is none.
func (rs *requests) first(now time.Time) *request {
	if rs.next().After(now) {
		return nil
	}
	return rs.due.First()
}

// next returns when first returns a request, zero for never.
func (rs *requests) next() time.Time {
	r := rs.due.First()
	if r == nil {
		return time.Time{}
	}
	return schedule.Later(r.next, rs.paused)
}
