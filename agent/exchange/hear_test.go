package exchange

import (
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

var (
	ownMAC, farMAC = detector.MAC{2, 1}, detector.MAC{2, 2}
	self           = detector.HolderID{Node: "n/", Netns: 1}
)

// has gives a holder of this node, or with far of the other one, the address in a place.
func (w *harness) has(far bool, evidence detector.Evidence, place detector.Place) {
	h := detector.Holder{ID: self, MAC: ownMAC, Place: place}
	if far {
		h.ID, h.MAC = remote, farMAC
		w.deliver(cluster.ConflictNotice{Key: one, Bindings: []cluster.Binding{{Holder: h, Evidence: evidence, FirstSeen: w.now, LastSeen: w.now}}})
		return
	}
	w.Observe(detector.Sighting{Key: one, Holder: h, Evidence: evidence, Answer: true, At: w.now}, w.now)
	w.run()
}

// hear takes an answer from the segment.
func (w *harness) hearFrom(mac detector.MAC) {
	w.Heard(one, mac, w.now)
	w.run()
}

// asked counts the probes that ask for an answer of a MAC.
func (w *harness) asked(mac detector.MAC) (n int) {
	for _, p := range w.probed {
		if p.Hear == mac {
			n++
		}
	}
	return n
}

// The node of another holder on the segment is asked when its answer is heard, and not before; who is not heard is asked for three times.
func TestHear(t *testing.T) {
	for name, tt := range map[string]struct {
		own, far  detector.Place
		evidence  detector.Evidence
		mustHear  bool
		requested int
	}{
		"two nodes on the segment":        {detector.PlaceUplink, detector.PlaceUplink, detector.Host, true, 1},
		"two pods on a second segment":    {detector.PlaceSegment, detector.PlaceSegment, detector.Configured, true, 1},
		"pods in the cluster's network":   {0, 0, detector.Announced, false, 1},
		"two nodes elsewhere":             {0, 0, detector.Host, false, 0},
		"two nodes, and nobody is asked":  {detector.PlaceUnasked, detector.PlaceUnasked, detector.Host, false, 0},
		"a gateway of pods on both nodes": {detector.PlaceBridge, detector.PlaceBridge, detector.Host, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t)
			w.has(false, tt.evidence, tt.own)
			w.has(true, tt.evidence, tt.far)
			if n := len(w.requested); tt.mustHear && n != 0 || !tt.mustHear && n != tt.requested {
				t.Fatalf("%d requests at once", n)
			}
			if n := w.asked(farMAC); (n > 0) != tt.mustHear {
				t.Fatalf("asked %d times", n)
			}
			w.hearFrom(ownMAC)
			w.hearFrom(detector.MAC{2, 9})
			w.Heard(one, farMAC, w.now.Add(-time.Minute)) // before it was asked
			w.run()
			if tt.mustHear && len(w.requested) != 0 {
				t.Error("another answer counts")
			}
			if w.hearFrom(farMAC); len(w.requested) != tt.requested {
				t.Errorf("%d requests, want %d", len(w.requested), tt.requested)
			}
		})
	}
	w := newHarness(t)
	w.has(false, detector.Host, detector.PlaceUplink)
	w.has(true, detector.Host, detector.PlaceUplink)
	w.pass(990 * time.Millisecond)
	if n := w.asked(farMAC); n != detector.MaxAttempts || slices.Contains(w.events, "faded") {
		t.Errorf("asked %d times; %v", n, w.events)
	}
	if w.pass(time.Second); !slices.Contains(w.events, "faded") || len(w.requested) != 1 || w.requested[0].Purpose != "" {
		t.Errorf("unheard: %v, %d requests", w.events, len(w.requested))
	}
}

// A node that asks is told that this one has the address if this one hears it, and not by a list.
func TestHearWhoAsks(t *testing.T) {
	for name, tt := range map[string]struct {
		asking  []cluster.Binding
		heard   detector.MAC
		list    bool // what ends the request: the list of the node's addresses
		outcome detector.Outcome
	}{
		"heard":     {heard: farMAC, outcome: detector.Answered},
		"not heard": {outcome: detector.Unanswered},
		"by a list": {list: true, outcome: detector.Unanswered},
		"a pod there has it, too": {
			asking: []cluster.Binding{{Holder: detector.Holder{ID: detector.HolderID{Node: remote.Node, Netns: 7}}, Evidence: detector.Announced}},
			list:   true, outcome: detector.Answered,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t)
			w.has(false, detector.Host, detector.PlaceUplink)
			far := cluster.Binding{Holder: detector.Holder{ID: remote, MAC: farMAC, Place: detector.PlaceUplink}, Evidence: detector.Host}
			w.deliver(cluster.ProbeRequest{ID: 5, From: remote.Node, Key: one, Holder: self, Bindings: append(tt.asking, far)})
			if tt.list {
				w.has(false, detector.Host, detector.PlaceUplink)
			}
			if tt.heard != (detector.MAC{}) {
				w.hearFrom(tt.heard)
			}
			w.pass(1100 * time.Millisecond)
			if len(w.replies) != 1 || w.replies[0].Outcome != tt.outcome {
				t.Errorf("replies %+v", w.replies)
			}
		})
	}
}

// What the other node sends to the address at which this node receives comes to itself: to hear it is enough.
func TestHearOwnAddress(t *testing.T) {
	w := newHarness(t)
	w.Address = one.IP
	w.has(false, detector.Host, detector.PlaceUplink)
	w.has(true, detector.Host, detector.PlaceUplink)
	for range 2 {
		w.hearFrom(farMAC)
		w.has(false, detector.Host, detector.PlaceUplink)
		w.pass(10 * time.Second)
	}
	w.hearFrom(farMAC)
	w.has(false, detector.Host, detector.PlaceUplink)
	w.pass(time.Second)
	verifies := func(p detector.Probe) bool { return p.Purpose != "" }
	if slices.ContainsFunc(w.requested, verifies) || !slices.Contains(w.events, "confirmed") {
		t.Errorf("%d requests; %v", len(w.requested), w.events)
	}
}

// The questions of other nodes and of this one have a bound, and one that ends without the address leaves nothing.
func TestHearBounds(t *testing.T) {
	w := newHarness(t)
	w.late = true
	w.has(false, detector.Host, detector.PlaceUplink)
	for id := range uint64(maxRequests) {
		w.Receive(cluster.ProbeRequest{ID: id + 1, From: remote.Node, Key: one, Holder: self}, w.now)
	}
	if w.has(true, detector.Host, detector.PlaceUplink); w.Dropped == 0 {
		t.Error("one more question is asked")
	}
	w.Apply(w.Detector.Withdraw(one, self, "gone", w.now), w.now)
	if w.run(); len(w.requests.byTarget) != 0 {
		t.Errorf("%d targets", len(w.requests.byTarget))
	}
}
