package links

import (
	"testing"
	"time"
)

// A new qdisc postpones the attempt like any change of the interface, and the end of the pod's set-up makes it due.
func TestSettled(t *testing.T) {
	for _, state := range []State{Pending, Waiting} {
		h := newHarness(t)
		h.event(pod())
		veth := h.veths[7]
		if state == Waiting {
			h.setPodState(Waiting)
			h.now = h.now.Add(time.Second)
			veth.filtersChanged(h.now)
			if got := veth.attach.next.Sub(h.now); got != quiet {
				t.Errorf("attaching is due in %v after a new qdisc, want %v", got, quiet)
			}
		}
		veth.settle(h.now)
		h.setPodState(Waiting)
		h.event(pod())
		if !veth.attach.ready(h.now) || veth.createFrom.After(h.now) {
			t.Errorf("%s: attaching is due in %v, and a qdisc is made in %v", state, veth.attach.next.Sub(h.now), veth.createFrom.Sub(h.now))
		}
	}
}
