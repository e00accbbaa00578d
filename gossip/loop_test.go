package gossip

import (
	"testing"
	"time"
)

// TestPauseDetector: only a long pause or suspension counts.
func TestPauseDetector(t *testing.T) {
	for _, test := range []struct {
		name              string
		passed, suspended time.Duration
		want              bool
	}{
		{"as always", time.Second, 0, false},
		{"a slow machine", 20 * time.Second, 0, false},
		{"the process was stopped", 32 * time.Second, 0, true},
		{"suspended for a moment", time.Second, 4 * time.Second, false},
		{"suspended", time.Second, 6 * time.Minute, true},
	} {
		var p pauseDetector
		now := time.Now()
		if p.paused(now) {
			t.Errorf("%s: paused at the start", test.name)
		}
		p.suspended -= test.suspended
		if now = now.Add(test.passed); p.paused(now) != test.want {
			t.Errorf("%s: not %v", test.name, test.want)
		}
		if p.paused(now.Add(time.Second)) {
			t.Errorf("%s: and again", test.name)
		}
	}
}
