package report

import (
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
)

// TestHashOfBindings: the summary's hash is another one when a pod gets an address, when its name becomes known, or when it loses the address,
// and only then.
func TestHashOfBindings(t *testing.T) {
	r, now := newReport(t, nil), time.Now()
	var hashes []uint64
	next := func(what string, differs bool) {
		t.Helper()
		hash := r.summary().Bindings
		if n := len(hashes); n > 0 && (hash != hashes[n-1]) != differs || hash == 0 {
			t.Errorf("%s: %x after %x", what, hash, hashes)
		}
		hashes = append(hashes, hash)
	}
	next("nothing", true)
	see := func(b detector.Binding, evidence detector.Evidence) {
		now = now.Add(time.Second)
		r.Detector.Observe(detector.Sighting{Key: b.Key, Holder: b.Holder, Evidence: evidence, Answer: true, At: now}, now)
	}
	a, b := holding("n1", "10.0.0.1", 1), holding("n1", "10.0.0.2", 2)
	see(a, detector.Announced)
	next("an address", true)
	see(b, detector.Announced)
	next("another one", true)
	see(a, detector.Announced)
	next("seen again", false)
	r.Detector.Describe(a.Holder.ID, func(_ detector.Key, h *detector.Holder) { h.Pod = detector.Pod{Namespace: "shop", Name: "a"} }, now)
	next("its name", true)
	far := holding("n2", "10.0.0.1", 3)
	see(far, detector.Announced)
	next("of another node", false)
	r.Detector.Withdraw(b.Key, b.Holder.ID, "test", now)
	next("gone", true)
}
