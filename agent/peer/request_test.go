package peer

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

func TestRequests(t *testing.T) {
	forwards := func(w *harness) {
		w.Observe(detector.Sighting{
			Key: one, Holder: detector.Holder{ID: detector.HolderID{Node: "n/", Netns: 11}}, Evidence: detector.Forwarded, Answer: true, At: w.now,
		}, w.now)
		w.run()
	}
	refused := func(r Refusal) func(*harness) {
		return func(w *harness) { w.probe = func(Probe) Refusal { return r } }
	}
	for _, test := range []struct {
		name          string
		network       string
		netns         uint64
		before, after func(w *harness)
		want          cluster.Outcome
		reason        string
		retry         time.Duration // 0: not until something changes
		took          time.Duration
	}{
		{name: "answers", netns: 11, want: cluster.Answered, before: func(w *harness) { w.answers = true }},
		{name: "answers late", netns: 11, want: cluster.Answered, took: 600 * time.Millisecond, after: func(w *harness) {
			w.pass(600 * time.Millisecond)
			w.observe(11, one, true)
		}},
		{name: "does not answer", netns: 11, want: cluster.Unanswered, took: probeTimeout},
		{name: "announces only", netns: 11, want: cluster.Unanswered, took: probeTimeout, after: func(w *harness) { w.observe(11, one, false) }},
		{name: "answers for what it does not have", netns: 11, want: cluster.Forwards, took: probeTimeout, after: forwards},
		{
			name: "no holder yet", netns: 99, want: cluster.Refused, retry: time.Second, reason: "the agent has just started",
			before: func(w *harness) { w.Ready(w.now) },
		},
		{
			name: "not ready", netns: 99, want: cluster.Refused, retry: time.Second, reason: "the agent is starting",
			before: func(w *harness) { w.Ready(time.Time{}) },
		},
		{name: "no holder", netns: 99, want: cluster.Gone, reason: "no such holder has the address"},
		{name: "is removed", netns: 11, want: cluster.Gone, reason: "no such holder has the address any more", took: 100 * time.Millisecond, after: func(w *harness) { w.gone(11) }},
		{name: "a network of one node", network: "docker0", netns: 11, want: cluster.Gone, reason: "network docker0 does not span the cluster"},
		{name: "probes are off", netns: 11, want: cluster.Refused, reason: "off", before: refused(Refusal{Reason: "off"})},
		{name: "guarded for long", netns: 11, want: cluster.Refused, reason: "guard", retry: 10 * time.Second, before: refused(Refusal{Reason: "guard", Until: began.Add(10 * time.Second)})},
		{name: "guarded for a moment", netns: 11, want: cluster.Answered, took: 300 * time.Millisecond, before: func(w *harness) {
			w.answers = true
			until := w.now.Add(300 * time.Millisecond)
			w.probe = func(Probe) (r Refusal) {
				if w.now.Before(until) {
					r = Refusal{Reason: "guard", Until: until}
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
			if test.before != nil {
				test.before(w)
			}
			arrived := w.now
			w.deliver(probeRequest(1, k, test.netns))
			if test.after != nil {
				test.after(w)
			}
			for len(w.replies) == 0 && !w.At().IsZero() && w.now.Before(arrived.Add(time.Minute)) {
				w.pass(w.At().Sub(w.now))
			}
			if len(w.replies) != 1 || w.replies[0].Outcome != test.want || w.replies[0].Reason != test.reason || len(w.requests.due)+len(w.requests.byTarget) != 0 {
				t.Fatalf("replies %+v, %d requests left; want outcome %d and %q", w.replies, len(w.requests.due), test.want, test.reason)
			}
			r := w.replies[0]
			retry := time.Duration(0)
			if !r.RetryAt.IsZero() {
				retry = r.RetryAt.Sub(arrived)
			}
			if took := w.now.Sub(arrived); retry != test.retry || took != test.took {
				t.Errorf("again after %v, took %v; want %v and %v", retry, took, test.retry, test.took)
			}
			if known := test.want != cluster.Gone && test.netns == 11; known != (r.Binding.Holder.ID.Netns == 11) || (test.want == cluster.Answered) == r.At.IsZero() {
				t.Errorf("reply %+v describes its holder: want %t", r, known)
			}
		})
	}
}

// A request also reports the holders of its sender.
func TestRequestHasHoldersOfItsSender(t *testing.T) {
	w := newHarness(t)
	w.observe(11, one, false)
	request := probeRequest(1, one, 11)
	request.Bindings = []cluster.Binding{{Holder: detector.Holder{ID: remote}, Evidence: detector.Data, LastSeen: w.now}}
	w.deliver(request)
	if len(w.requested) != 1 || w.requested[0].Holder != remote {
		t.Errorf("requested %+v, want a request to the sender", w.requested)
	}
}

// If many nodes have an address, each sends a request to each: one probe serves them all.
func TestManyRequestsAboutOneHolder(t *testing.T) {
	const nodes = 100
	w := newHarness(t)
	w.observe(11, one, false)
	for n := range nodes {
		w.deliver(probeRequest(uint64(n+1), one, 11))
	}
	if len(w.probed) > nodes/4 {
		t.Errorf("%d probes for %d simultaneous requests", len(w.probed), nodes)
	}
	w.observe(11, one, true)
	answered := 0
	for _, reply := range w.replies {
		if reply.Outcome == cluster.Answered {
			answered++
		}
	}
	if answered != nodes || len(w.requests.due)+len(w.requests.byTarget) != 0 {
		t.Errorf("%d of %d are answered by the one answer, %d requests are left", answered, nodes, len(w.requests.due))
	}
}

// Requests of other nodes wait if the probe budget is used up, and all are refused in time.
func TestRequestsWaitForTheBudget(t *testing.T) {
	const nodes, budget = 100, 30
	w := newHarness(t)
	left := budget
	w.probe = func(a Probe) Refusal {
		if !a.ForOther {
			return Refusal{}
		}
		if left == 0 {
			return Refusal{Reason: "rate", Until: w.now.Add(100 * time.Millisecond), Budget: true}
		}
		left--
		return Refusal{}
	}
	for n := range nodes {
		k := key("default", fmt.Sprintf("10.0.1.%d", n))
		w.observe(uint64(100+n), k, false)
		w.deliver(probeRequest(uint64(n+1), k, uint64(100+n)))
	}
	w.pass(2 * requestTimeout)
	refused := 0
	for _, reply := range w.replies {
		if reply.Outcome == cluster.Refused {
			refused++
			if reply.RetryAt.IsZero() || reply.Reason != "rate" {
				t.Fatalf("reply %+v, want the rate limit and when to try again", reply)
			}
		}
	}
	if len(w.replies) != nodes || refused < nodes-budget {
		t.Errorf("%d replies, %d of them refusals", len(w.replies), refused)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	w := newHarness(t)
	w.observe(11, one, false)
	for n := range maxRequests + 3 {
		w.Receive(probeRequest(uint64(n+1), one, 11), w.now)
	}
	if len(w.requests.due) != maxRequests || w.Dropped() != 3 {
		t.Errorf("%d wait, %d were dropped", len(w.requests.due), w.Dropped())
	}
}

func TestRequestsTakeTurns(t *testing.T) {
	var rs requests
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	add := func(ip string, ms int) *request {
		r := &request{ProbeRequest: cluster.ProbeRequest{Key: key("default", ip), Holder: remote}, arrived: at(ms), next: at(ms)}
		rs.add(r)
		return r
	}
	a, b, c := add("10.0.0.1", 0), add("10.0.0.2", 1), add("10.0.0.3", 2)
	var order []*request
	for r := rs.first(at(2)); r != nil; r = rs.first(at(2)) {
		order = append(order, r)
		rs.setProbed(r.target(), at(2))
		rs.wait(r, at(100))
	}
	if !slices.Equal(order, []*request{a, b, c}) || !rs.next().Equal(at(100)) {
		t.Fatalf("took them in the order %v, next at %v", order, rs.next().Sub(began))
	}
	late := add("10.0.0.1", 5)
	if want := at(2).Add(probeReuse); !late.next.Equal(want) {
		t.Errorf("a request right after another about the same holder is due after %v, want %v", late.next.Sub(began), want.Sub(began))
	}
	if rs.setProbed(late.target(), at(30)); !rs.probedRecently(late, at(31)) || rs.probedRecently(late, at(60)) {
		t.Error("a probe serves the requests before it, for a moment")
	}
	if later := add("10.0.0.1", 31); rs.probedRecently(later, at(31)) {
		t.Error("a probe served a request that came after it")
	}
	if rs.paused = at(500); rs.first(at(400)) != nil || !rs.next().Equal(at(500)) {
		t.Error("a request is due during the pause")
	}
	for _, r := range []*request{a, b, c, late} {
		if !rs.end(r) || rs.end(r) {
			t.Error("a request does not end just once")
		}
	}
	if len(rs.due) != 1 || len(rs.byTarget) != 1 || len(rs.probed) > 3 {
		t.Errorf("%d requests, %d holders, %d probes are left", len(rs.due), len(rs.byTarget), len(rs.probed))
	}
}
