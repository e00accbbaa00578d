package detector

import (
	"testing"
	"time"
)

// A remote holder that never answers is probed less and less often, although its node reports it again and
// again.
func TestRemotePenalties(t *testing.T) {
	w := newWorld(t, Options{})
	w.do("0s a announces")
	w.do("0s b@n2 mute")
	for range 60 {
		w.do("0s b@n2 forges")
		w.run(w.now.Add(2 * time.Second))
	}
	w.mustAudit()
	if n := w.d.Counts(); n.Suspected < 3 || n.Suspected > 8 || n.Refused[refusedUnanswered] < 40 {
		t.Errorf("%d suspicions, refused %v", n.Suspected, n.Refused)
	}
	// Its answer counts at once.
	w.do("0s b@n2 unmute")
	w.do("0s b@n2 takes")
	w.do("0s b@n2 answers")
	w.run(w.now.Add(2 * time.Second))
	if c := w.d.Conflicts(false); len(c) != 1 || c[0].State != Confirmed {
		t.Errorf("conflicts %+v", c)
	}
}

// A withdrawal of a remote holder without a request may be old: the holder is probed, and its binding stays.
func TestDoubt(t *testing.T) {
	f := newFar(t)
	answer := f.b.sighting(defaultIP, Announced, f.now)
	answer.Answer = true
	f.d.Observe(answer, f.now)
	f.now = f.now.Add(100 * time.Millisecond)
	f.take(f.d.Probed(Probe{Key: Key{"default", defaultIP}, Holder: f.b.id}, Result{Outcome: Gone}, f.now))
	if fx := f.d.Probed(Probe{Key: Key{"default", defaultIP}, Holder: f.b.id}, Result{Outcome: Gone}, f.now); len(fx.Probes) != 0 {
		t.Errorf("probed again while it is probed: %+v", fx)
	}
	if fx := f.d.Probed(Probe{Key: Key{"default", defaultIP}, Holder: f.a.id}, Result{Outcome: Gone}, f.now); len(fx.Probes) != 0 {
		t.Errorf("another node's withdrawal of a local holder: %+v", fx)
	}
	if n := len(f.d.Conflicts(false)); n != 1 {
		t.Errorf("%d conflicts, want the suspicion", n)
	}
	f.mustAudit()
}

// A node that is alive again gets the probe requests again that it did not reply to.
func TestReturned(t *testing.T) {
	f := newFar(t)
	for range 6 { // until it is left alone for long
		f.d.Probed(f.probe, Result{Outcome: Unreachable}, f.now)
		for f.d.Next().Before(f.now.Add(29 * time.Second)) {
			f.now = f.d.Next()
			if fx := f.d.Tick(f.now); len(fx.Probes) > 0 {
				for _, s := range fx.Probes {
					if s.Holder == f.b.id {
						f.probe = s
					}
				}
				break
			}
		}
	}
	f.d.Probed(f.probe, Result{Outcome: Unreachable}, f.now)
	f.now = f.now.Add(time.Second)
	if fx := f.d.Returned("nobody/boot", f.now); len(fx.Probes) != 0 {
		t.Errorf("probed %+v when another node was back", fx.Probes)
	}
	if fx := f.d.Returned(f.b.id.Node, f.now); len(fx.Probes) != 1 || fx.Probes[0].Holder != f.b.id {
		t.Errorf("probed %+v when the node was back", fx.Probes)
	}
	if fx := f.d.Returned(f.b.id.Node, f.now); len(fx.Probes) != 0 {
		t.Errorf("probed %+v while it is probed", fx.Probes)
	}
	f.mustAudit()

	// A node that refused a request until later was not silent.
	g := newFar(t)
	g.d.Probed(g.probe, Result{Refused, "x", g.now.Add(20 * time.Second)}, g.now)
	g.now = g.now.Add(2 * time.Second)
	if fx := g.d.Returned(g.b.id.Node, g.now); len(fx.Probes) != 0 {
		t.Errorf("probed %+v before it may be", fx.Probes)
	}
}

// A restored suspicion waits only 10 s for a remote holder, because keepers send a notice at once. A restored
// conflict waits longer.
func TestRestoredSuspicionElsewhere(t *testing.T) {
	for _, test := range []struct {
		state State
		waits time.Duration
	}{{Suspected, suspicionTime}, {Confirmed, remoteTime}} {
		w := newWorld(t, Options{})
		a, b := w.actor("a"), w.actor("b@n2")
		since := w.now.Add(-time.Minute)
		previous := Conflict{
			ID: conflictID(Key{"default", defaultIP}, 1), Key: Key{"default", defaultIP}, State: test.state, SuspectedAt: since,
			Holders: []Binding{
				{Holder: Holder{ID: a.id}, Evidence: Announced, FirstSeen: since, LastSeen: since},
				{Holder: Holder{ID: b.id}, Evidence: Announced, FirstSeen: since, LastSeen: since},
			},
		}
		if test.state == Confirmed {
			previous.ConfirmedAt = since
		}
		if _, dropped := w.d.Restore(Snapshot{Open: []Conflict{previous}}, w.now); dropped != 0 {
			t.Fatal("the conflict was not restored")
		}
		began := w.now
		w.do("0s a announces")
		w.run(began.Add(test.waits - time.Second))
		if n := len(w.d.Conflicts(false)); n != 1 {
			t.Errorf("%s: %d open before its time", test.state, n)
		}
		w.run(began.Add(test.waits + time.Second))
		if n := len(w.d.Conflicts(false)); n != 0 {
			t.Errorf("%s: %d open after its time", test.state, n)
		}
	}
}
