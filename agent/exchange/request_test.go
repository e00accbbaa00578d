package exchange

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

func probeRequest(id uint64, k detector.Key, netns uint64) cluster.ProbeRequest {
	return cluster.ProbeRequest{ID: id, From: remote.Node, Key: k, Holder: detector.HolderID{Node: "n/", Netns: netns}}
}

var outcomes = map[detector.Outcome]string{
	detector.Answered: "answered", detector.Unanswered: "unanswered", detector.Forwards: "forwards", detector.Gone: "gone",
	detector.Refused: "refused", detector.Unreachable: "unreachable",
}

func TestRequests(t *testing.T) {
	forwards := func(w *harness) {
		w.Observe(detector.Sighting{
			Key: one, Holder: detector.Holder{ID: detector.HolderID{Node: "n/", Netns: 11}}, Evidence: detector.Forwarded, Answer: true, At: w.now,
		}, w.now)
		w.run()
	}
	refuseProbe := func(r detector.ProbeRefusal) func(*harness) {
		return func(w *harness) { w.probe = func(Probe) detector.ProbeRefusal { return r } }
	}
	for _, test := range []struct {
		name    string
		network string // empty: default
		netns   uint64 // of the requested holder; the node has holder 11
		// beforeRequest and afterRequest run before and after the request arrives.
		beforeRequest, afterRequest func(w *harness)
		want                        detector.Outcome
		reason                      string
		retry                       time.Duration // 0: not until something changes
		took                        time.Duration
	}{
		{name: "answers", netns: 11, want: detector.Answered, beforeRequest: func(w *harness) { w.answers = true }},
		{name: "answers late", netns: 11, want: detector.Answered, took: 600 * time.Millisecond, afterRequest: func(w *harness) {
			w.pass(600 * time.Millisecond)
			w.observe(11, one, true)
		}},
		{
			name: "is not scanned", netns: 11, want: detector.Refused, reason: "its kernel was not scanned in time", retry: requestTimeout, took: requestTimeout,
			beforeRequest: func(w *harness) { w.late = true },
		},
		{name: "does not answer", netns: 11, want: detector.Unanswered, took: detector.AnswerTime},
		{name: "announces only", netns: 11, want: detector.Unanswered, took: detector.AnswerTime, afterRequest: func(w *harness) { w.observe(11, one, false) }},
		{name: "answers for what it does not have", netns: 11, want: detector.Forwards, took: detector.AnswerTime, afterRequest: forwards},
		{
			name: "no holder yet", netns: 99, want: detector.Refused, retry: time.Second, reason: "the agent has just started",
			beforeRequest: func(w *harness) { w.Ready(w.now) },
		},
		{
			name: "not ready", netns: 99, want: detector.Refused, retry: time.Second, reason: "the agent is starting",
			beforeRequest: func(w *harness) { w.Ready(time.Time{}) },
		},
		{
			name: "answers before the agent observes all interfaces", netns: 11, want: detector.Answered,
			beforeRequest: func(w *harness) { w.Ready(time.Time{}); w.answers = true },
		},
		{name: "no holder", netns: 99, want: detector.Gone, reason: "it does not have the address"},
		{name: "is removed", netns: 11, want: detector.Gone, reason: "it does not have the address any more", took: 0, afterRequest: func(w *harness) { w.gone(11) }},
		{name: "a network of one node", network: "docker0", netns: 11, want: detector.Gone, reason: "network docker0 does not span the cluster"},
		{name: "probes are off", netns: 11, want: detector.Refused, reason: "off", beforeRequest: refuseProbe(detector.ProbeRefusal{Reason: "off"})},
		{name: "guarded for long", netns: 11, want: detector.Refused, reason: "guard", retry: 10 * time.Second, beforeRequest: refuseProbe(detector.ProbeRefusal{Reason: "guard", Until: began.Add(10 * time.Second)})},
		{name: "guarded for a moment", netns: 11, want: detector.Answered, took: 300 * time.Millisecond, beforeRequest: func(w *harness) {
			w.answers = true
			until := w.now.Add(300 * time.Millisecond)
			w.probe = func(Probe) (r detector.ProbeRefusal) {
				if w.now.Before(until) {
					r = detector.ProbeRefusal{Reason: "guard", Until: until}
				}
				return r
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newHarness(t)
			w.observe(11, one, false)
			k := one
			if test.network != "" {
				k.Network = test.network
			}
			if test.beforeRequest != nil {
				test.beforeRequest(w)
			}
			arrived := w.now
			w.deliver(probeRequest(1, k, test.netns))
			if test.afterRequest != nil {
				test.afterRequest(w)
			}
			for len(w.replies) == 0 && !w.NextTick().IsZero() && w.now.Before(arrived.Add(time.Minute)) {
				w.pass(w.NextTick().Sub(w.now))
			}
			if len(w.replies) != 1 {
				t.Fatalf("got replies %+v, want one", w.replies)
			}
			if w.requests.due.Len()+len(w.requests.byTarget) != 0 {
				t.Errorf("%d requests of %d holders are left", w.requests.due.Len(), len(w.requests.byTarget))
			}
			r := w.replies[0]
			if r.Outcome != test.want || r.Reason != test.reason {
				t.Errorf("got outcome %s, reason %q; want %s, %q", outcomes[r.Outcome], r.Reason, outcomes[test.want], test.reason)
			}
			retry := time.Duration(0)
			if !r.RetryAt.IsZero() {
				retry = r.RetryAt.Sub(arrived)
			}
			if retry != test.retry {
				t.Errorf("got a retry after %v, want %v", retry, test.retry)
			}
			if took := w.now.Sub(arrived); took != test.took {
				t.Errorf("the reply took %v, want %v", took, test.took)
			}
			known := test.want != detector.Gone && test.netns == 11
			if described := r.Binding.Holder.ID.Netns == 11; described != known {
				t.Errorf("reply %+v describes its holder: got %t, want %t", r, described, known)
			}
			if answered := !r.At.IsZero(); answered != (test.want == detector.Answered) {
				t.Errorf("got an answer at %v for outcome %s", r.At, outcomes[test.want])
			}
		})
	}
}

// TestScanOfSeveralProbes: a scan that takes the place of a probe was late, and is what two probes waited for. It is one attempt.
func TestScanOfSeveralProbes(t *testing.T) {
	w := newHarness(t)
	w.observe(11, one, false)
	var waiting []Probe
	w.late, w.probe = true, func(a Probe) (r detector.ProbeRefusal) { waiting = append(waiting, a); return r }
	w.deliver(probeRequest(1, one, 11))
	w.pass(reportTime)
	if len(waiting) != 2 {
		t.Fatalf("%d probes wait, want 2", len(waiting))
	}
	for _, a := range waiting {
		w.Probed(a, detector.ProbeRefusal{}, w.now)
	}
	if n := waiting[0].request.attempts; n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
}

// A reply says what the answer is evidence of, which is not always the best that is known of the holder.
func TestReplyHasTheEvidenceOfTheAnswer(t *testing.T) {
	for evidence, want := range map[detector.Evidence]detector.Evidence{
		detector.Announced: detector.Announced, detector.Configured: detector.Configured,
	} {
		w := newHarness(t)
		s := detector.Sighting{
			Key: one, Holder: detector.Holder{ID: detector.HolderID{Node: "n/", Netns: 11}, Interface: detector.Interface{Ifindex: 11, Generation: 1}},
			Evidence: detector.Data, At: w.now,
		}
		w.Observe(s, w.now)
		w.deliver(probeRequest(1, one, 11))
		w.pass(time.Millisecond)
		s.Evidence, s.Answer, s.At = evidence, true, w.now
		w.Observe(s, w.now)
		w.run()
		if len(w.replies) != 1 || w.replies[0].Outcome != detector.Answered || w.replies[0].Binding.Evidence != want {
			t.Errorf("%s: replies %+v", evidence, w.replies)
		}
	}
}

// A request also carries the holders of its sender. The receiver then suspects a conflict and sends a request
// to the sender.
func TestRequestCarriesHolders(t *testing.T) {
	w := newHarness(t)
	w.observe(11, one, false)
	request := probeRequest(1, one, 11)
	request.Bindings = []cluster.Binding{{Holder: detector.Holder{ID: remote}, Evidence: detector.Data, LastSeen: w.now}}
	w.deliver(request)
	if len(w.requested) != 1 || w.requested[0].Holder != remote {
		t.Errorf("got requests %+v, want one about the sender's holder", w.requested)
	}
}

// If many nodes have an address, each sends a request to each: few probes serve all requests.
func TestManyRequestsAboutOneHolder(t *testing.T) {
	const nodes = 100
	w := newHarness(t)
	w.observe(11, one, false)
	for n := range nodes {
		w.deliver(probeRequest(uint64(n+1), one, 11))
	}
	if len(w.probed) > nodes/4 {
		t.Errorf("got %d probes for %d simultaneous requests, want at most %d", len(w.probed), nodes, nodes/4)
	}
	w.observe(11, one, true)
	answered := 0
	for _, reply := range w.replies {
		if reply.Outcome == detector.Answered {
			answered++
		}
	}
	if answered != nodes {
		t.Errorf("one answer ends %d requests, want %d", answered, nodes)
	}
	if w.requests.due.Len()+len(w.requests.byTarget) != 0 {
		t.Errorf("%d requests of %d holders are left", w.requests.due.Len(), len(w.requests.byTarget))
	}
}

// A holder that another node wants to know about is not probed once more for this node's own round.
func TestOneProbeForTwoNodes(t *testing.T) {
	for _, request := range []bool{true, false} {
		w := newHarness(t)
		w.answers = true
		w.observe(11, one, false)
		w.notice(one)
		if len(w.requested) != 1 || len(w.probed) != 0 {
			t.Fatalf("%d requests, probes %v; want one request first", len(w.requested), w.probed)
		}
		w.pass(5 * time.Millisecond)
		if request {
			w.deliver(probeRequest(1, one, 11))
			if len(w.replies) != 1 || w.replies[0].Outcome != detector.Answered {
				t.Errorf("replies %+v", w.replies)
			}
		}
		w.pass(1010 * time.Millisecond)
		if len(w.probed) != 1 {
			t.Errorf("request %t: probes %v, want one", request, w.probed)
		}
	}
}

// Requests of other nodes wait if the probe budget is used up. Those that wait too long are refused.
func TestRequestsWaitForTheBudget(t *testing.T) {
	const nodes, budget = 100, 30
	w := newHarness(t)
	remaining := budget
	w.probe = func(a Probe) detector.ProbeRefusal {
		if !a.ForOther {
			return detector.ProbeRefusal{}
		}
		if remaining == 0 {
			return detector.ProbeRefusal{Reason: "rate", Until: w.now.Add(100 * time.Millisecond), Budget: true}
		}
		remaining--
		return detector.ProbeRefusal{}
	}
	for n := range nodes {
		k := key("default", fmt.Sprintf("10.0.1.%d", n))
		w.observe(uint64(100+n), k, false)
		w.deliver(probeRequest(uint64(n+1), k, uint64(100+n)))
	}
	w.pass(2 * requestTimeout)
	refused := 0
	for _, reply := range w.replies {
		if reply.Outcome == detector.Refused {
			refused++
			if reply.RetryAt.IsZero() || reply.Reason != "rate" {
				t.Fatalf("got reply %+v, want the reason rate and a time of the next try", reply)
			}
		}
	}
	if len(w.replies) != nodes || refused < nodes-budget {
		t.Errorf("got %d replies, %d of them refusals; want %d and at least %d", len(w.replies), refused, nodes, nodes-budget)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	w := newHarness(t)
	w.observe(11, one, false)
	for n := range maxRequests + 3 {
		w.Receive(probeRequest(uint64(n+1), one, 11), w.now)
	}
	if w.requests.due.Len() != maxRequests || w.Dropped != 3 {
		t.Errorf("%d requests wait, %d were dropped; want %d and 3", w.requests.due.Len(), w.Dropped, maxRequests)
	}
}

// queue is a request queue whose times are milliseconds after the start.
type queue struct{ requests }

func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

// addAt adds a request about an address, which arrives at a time and is due at once.
func (q *queue) addAt(ms int, ip string) *request {
	r := &request{ProbeRequest: cluster.ProbeRequest{Key: key("default", ip), Holder: remote}, arrived: at(ms), next: at(ms)}
	q.add(r)
	return r
}

func TestRequestsAreServedInOrder(t *testing.T) {
	var q queue
	a, b, c := q.addAt(0, "10.0.0.1"), q.addAt(1, "10.0.0.2"), q.addAt(2, "10.0.0.3")
	var order []*request
	for r := q.first(at(2)); r != nil; r = q.first(at(2)) {
		order = append(order, r)
		q.wait(r, at(100))
	}
	if !slices.Equal(order, []*request{a, b, c}) {
		t.Errorf("got the order %v, want the order of arrival", order)
	}
	if got := q.next(); !got.Equal(at(100)) {
		t.Errorf("next request due at %v, want 100ms", got.Sub(began))
	}
}

// A request right after a probe of its holder waits, so that one more probe serves all such requests.
func TestRequestAfterProbeWaits(t *testing.T) {
	var q queue
	q.setProbed(q.addAt(0, "10.0.0.1").target(), at(2))
	if got, want := q.addAt(5, "10.0.0.1").next, at(2).Add(probeReuse); !got.Equal(want) {
		t.Errorf("due at %v, want %v", got.Sub(began), want.Sub(began))
	}
	if got := q.addAt(6, "10.0.0.2").next; !got.Equal(at(6)) {
		t.Errorf("a request about another holder is due at %v, want 6ms", got.Sub(began))
	}
}

// A probe serves the requests that arrived before it, for a limited time.
func TestProbedRecently(t *testing.T) {
	var q queue
	before := q.addAt(5, "10.0.0.1")
	q.setProbed(before.target(), at(30))
	after := q.addAt(31, "10.0.0.1")
	for _, test := range []struct {
		name    string
		request *request
		ms      int
		want    bool
	}{
		{"arrived before the probe", before, 31, true},
		{"arrived before the probe, but long ago", before, 60, false},
		{"arrived after the probe", after, 31, false},
	} {
		if got := q.probedRecently(test.request, at(test.ms)); got != test.want {
			t.Errorf("%s: got %t, want %t", test.name, got, test.want)
		}
	}
	for n := range 10 {
		q.setProbed(q.addAt(100+100*n, fmt.Sprintf("10.0.1.%d", n)).target(), at(100+100*n))
	}
	if len(q.probed) != 1 || len(q.recent) != 1 {
		t.Errorf("%d and %d probes remembered, want only the last", len(q.probed), len(q.recent))
	}
}

func TestPausedRequestsAreNotDue(t *testing.T) {
	var q queue
	q.addAt(0, "10.0.0.1")
	q.paused = at(500)
	if r := q.first(at(400)); r != nil {
		t.Errorf("request %+v is due during the pause", r)
	}
	if got := q.next(); !got.Equal(at(500)) {
		t.Errorf("next request due at %v, want 500ms", got.Sub(began))
	}
}

func TestRequestEndsOnce(t *testing.T) {
	var q queue
	first, second, other := q.addAt(0, "10.0.0.1"), q.addAt(1, "10.0.0.1"), q.addAt(2, "10.0.0.2")
	for _, r := range []*request{first, other} {
		if !q.end(r) {
			t.Errorf("request %+v has ended already", r)
		}
		if q.end(r) {
			t.Errorf("request %+v ends twice", r)
		}
	}
	if q.due.Len() != 1 || q.due.First() != second || len(q.byTarget) != 1 {
		t.Errorf("requests %v of %d holders are left, want only the second", q.due, len(q.byTarget))
	}
}
