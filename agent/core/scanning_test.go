package core

import (
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/bpf"
)

// TestLateScan: where a scan takes the place of a probe, only a scan that finds nothing is silence. The watcher may be late.
func TestLateScan(t *testing.T) {
	l := newHarness(t, "")
	l.Prober.ScanFor = l.Table.ScanFor
	scanned := func(i *observe.Interface) {
		next := *i.Interface
		next.L3, next.View.Taken = true, l.now
		l.Update(links.Event{Kind: links.Changed, Interface: &next})
		l.Turn()
	}
	holders := func(when string, want int) {
		t.Helper()
		if n := len(l.Detector.Bindings(nil)); n != want {
			t.Errorf("%s: %d holders, want %d", when, n, want)
		}
	}
	listed, process := l.add(t, 2, 42, "10.0.0.1"), l.add(t, 3, 43) // a process in one has the address, and its kernel has not
	scanned(listed)
	l.packet(listed, bpf.Announced, "10.0.0.1")
	l.packet(process, bpf.Announced, "10.0.0.1")
	scanned(process)
	holders("both announced it", 2)
	l.pass(4*time.Second, 50*time.Millisecond)
	holders("after 4 s without a scan", 2)
	scanned(listed)
	scanned(process)
	holders("just after a scan", 2)
	l.pass(2*time.Second, 50*time.Millisecond)
	holders("2 s after a scan", 1)
}
