package events

import (
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// unnamed is a conflict whose second holder is new and has no name.
func (w *world) unnamed(n int) document.Conflict {
	c := w.conflict(n, detector.Confirmed)
	b := &c.Holders[1]
	b.FirstSeen = w.now
	b.Pod, b.Netns = nil, "cni-1"
	return c
}

// A container runtime lists a pod when CNI has finished, perhaps after its address was in conflict: the Events wait for its name, because
// they cannot be changed.
func TestLateName(t *testing.T) {
	w := newWorld(t)
	c := w.conflict(1, detector.Confirmed)
	w.report(w.p, "red", w.unnamed(1))
	w.run(nameTime - time.Second)
	w.expect("without a name", "")
	w.report(w.p, "red", c)
	w.run(settled)
	w.expect("with its name", "DuplicateIP a1, DuplicateIP b1")
	for _, e := range w.api {
		if !strings.Contains(e.Note, "pod shop/") {
			t.Errorf("%+v", e)
		}
	}
	late := w.conflict(2, detector.Confirmed)
	w.report(w.p, "red", w.unnamed(2))
	w.run(nameTime + time.Second)
	w.expect("nobody has named it", "DuplicateIP a2")
	w.report(w.p, "red", late)
	w.run(settled)
	w.expect("it has a name", "DuplicateIP b2")
}

// They wait for no name that does not come.
func TestNoNameIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	host, old := w.unnamed(1), w.unnamed(2)
	host.Holders[1].Netns = "host"
	w.report(w.p, "red", host)
	w.run(settled)
	w.expect("the node itself", "DuplicateIP a1")
	old.Holders[1].FirstSeen = w.now.Add(-nameTime)
	w.report(w.p, "red", old)
	w.run(settled)
	w.expect("one that is old", "DuplicateIP a2")
	third := w.conflict(3, detector.Confirmed)
	third.Holders = append(third.Holders, document.Binding{})
	for n := range uint64(3) {
		third.Holders[2] = holder("blue", "", 100+n)
		third.Holders[2].FirstSeen = w.now
		w.report(w.p, "red", third)
		w.run(nameTime / 2)
	}
	w.expect("one new one after the other", "DuplicateIP a3, DuplicateIP b3")
	third.State = detector.Resolved
	w.report(w.p, "red", third)
	w.run(time.Second)
	w.expect("its end", "DuplicateIPResolved a3, DuplicateIPResolved b3")
	w.report(w.p, "red", w.unnamed(4))
	w.run(time.Second)
	w.expect("a new one", "")
	w.report(w.p, "red", w.conflict(4, detector.Resolved))
	w.run(time.Second)
	w.expect("it has gone", "DuplicateIP a4, DuplicateIPResolved a4")
}
