package core

import (
	"testing"
	"time"

	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// The runtime is asked for the names of pods that are verified, as long as they have none.
func TestUnnamed(t *testing.T) {
	l := newHarness(t, "")
	asked := 0
	l.Unnamed = func() { asked++ }
	a, b := l.add(t, 1, 11, one.String()), l.add(t, 2, 12, one.String())
	l.packet(a, bpf.Gratuitous, one.String())
	if asked > 0 {
		t.Fatalf("asked %d times without a suspicion", asked)
	}
	l.packet(b, bpf.Gratuitous, one.String())
	l.pass(100*time.Millisecond, 10*time.Millisecond)
	if asked == 0 {
		t.Fatal("not asked")
	}
	for _, cookie := range []uint64{11, 12} {
		l.Name(pods.Change{Cookie: cookie, Pod: detector.Pod{Namespace: "shop", Name: "web"}})
	}
	l.Turn()
	before := asked
	if l.pass(5*time.Second, 10*time.Millisecond); asked > before {
		t.Errorf("asked %d times for names that are known", asked-before)
	}
}
