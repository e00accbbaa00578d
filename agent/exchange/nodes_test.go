package exchange

import (
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// twin is an address that a node has for itself on the segment that joins the nodes, on a device with that MAC.
func twin(id detector.HolderID, mac byte) cluster.Binding {
	return cluster.Binding{Evidence: detector.Host, FirstSeen: began, LastSeen: began, Holder: detector.Holder{
		ID: id, Interface: detector.Interface{Ifindex: uint32(mac)}, MAC: detector.MAC{2, mac}, NetnsName: "host", Place: detector.PlaceUplink,
	}}
}

// collide has this node and another one have addresses for themselves. They do not hear each other.
func (w *harness) collide(keys ...detector.Key) {
	list := func(k detector.Key) {
		own := twin(detector.HolderID{Node: w.Node, Netns: 1}, 1)
		w.Observe(detector.Sighting{Key: k, Holder: own.Holder, Evidence: detector.Host, Answer: true, At: w.now}, w.now)
	}
	w.probe = func(p Probe) detector.ProbeRefusal {
		if p.Hear == (detector.MAC{}) { // nobody is heard
			list(p.Key)
		}
		return detector.ProbeRefusal{}
	}
	for i, k := range keys {
		list(k)
		w.deliver(cluster.ConflictNotice{Key: k, Bindings: []cluster.Binding{twin(remote, byte(10+i))}})
	}
}

// What a node says of one of its addresses is not so for the others: each may be on a device of its own.
func TestNodeDescribed(t *testing.T) {
	w, two := newHarness(t), key("default", "10.0.0.2")
	w.collide(one, two)
	w.deliver(cluster.ProbeReply{Probe: detector.Probe{Key: one, Holder: remote, Purpose: detector.Verify}, Outcome: detector.Answered, At: w.now, Binding: twin(remote, 20)})
	for k, want := range map[detector.Key]byte{one: 20, two: 11} {
		if b, ok := w.Detector.Holder(k, remote); !ok || b.Holder.MAC[1] != want {
			t.Errorf("%v: the other node has it on %v, want %d", k.IP, b.Holder.MAC, want)
		}
	}
}

// A node that is not heard is asked whether it has the address at all.
func TestUnheard(t *testing.T) {
	for name, test := range map[string]struct {
		outcome detector.Outcome
		known   bool
	}{"it has": {detector.Answered, true}, "it has not": {detector.Gone, false}} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t)
			w.collide(one)
			w.pass(1100 * time.Millisecond)
			if len(w.requested) != 1 || w.requested[0].Purpose != "" {
				t.Fatalf("asked %+v, want one question without a purpose", w.requested)
			}
			w.deliver(cluster.ProbeReply{Probe: w.requested[0], Outcome: test.outcome, At: w.now, Binding: twin(remote, 10)})
			w.pass(5 * time.Second)
			_, known := w.Detector.Holder(one, remote)
			if open := w.Detector.Conflicts(false); known != test.known || len(open) > 0 {
				t.Errorf("it is known: %v, want %v; conflicts %+v", known, test.known, open)
			}
		})
	}
}
