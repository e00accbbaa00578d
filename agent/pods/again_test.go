package pods

import (
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
)

// Whoever wants the list again has it soon, and not more often than once in a pause.
func TestAgain(t *testing.T) {
	w := wants{cookies: make(map[uint64]struct{})}
	now := time.Now()
	far := now.Add(time.Hour)
	if at := w.due(far); at != far {
		t.Fatalf("nothing is wanted, and it is due %v early", far.Sub(at))
	}
	w.again(now)
	if at := w.due(far); at != now {
		t.Errorf("wanted now, due in %v", at.Sub(now))
	}
	w.list(now)
	if at := w.due(far); at != far {
		t.Errorf("it was asked for, and is due in %v", at.Sub(now))
	}
	w.again(now.Add(time.Second))
	w.again(now.Add(2 * time.Second))
	if at := w.due(far); at != now.Add(againPause) {
		t.Errorf("wanted a second after a list, due %v after it, want %v", at.Sub(now), againPause)
	}
	// A netns without a name goes before it.
	w.add(1, now)
	if at := w.due(far); at != now.Add(pauses[0]) {
		t.Errorf("a name is wanted, due in %v", at.Sub(now))
	}
}

// What is told of a sandbox's id is fit for a command.
func TestSandboxID(t *testing.T) {
	for id, want := range map[string]string{
		"0123456789abcdef0123": "0123456789abc", "0123456789abc": "0123456789abc",
		"0123456789ab": "", "": "", "my-sandbox-0001": "", "0123456789abc;reboot": "", "0123456789ABCDEF": "",
	} {
		if got := (&sandbox{id: id, ready: true}).public(); got != (detector.Sandbox{ID: want}) {
			t.Errorf("%q: %+v, want %q", id, got, want)
		}
	}
}
