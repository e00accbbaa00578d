package detector

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// confirmedThenRestarted confirms a conflict of a and b at 1 s. The agent restarts at 10 s.
const confirmedThenRestarted = `0s a announces
	0s b announces
	10s agent restarts
	`

// restoredTests have a restart of the agent during a conflict.
var restoredTests = []scriptTest{
	{
		name: "both are there again",
		script: confirmedThenRestarted + `12s a announces
			13s b announces`,
		want: `0s suspected a b
			1s confirmed a b
			14s confirmed a b`,
		verdict: "two live holders answered both rounds 1.0 s apart: a conflict",
	},
	{
		name: "both answer the agent's first probe",
		script: confirmedThenRestarted + `12s a answers
			12s b answers`,
		want: `0s suspected a b
			1s confirmed a b
			13s confirmed a b`,
	},
	{
		name: "the second comes late",
		script: confirmedThenRestarted + `10.5s a announces
			38.9s b announces`,
		want: `0s suspected a b
			1s confirmed a b
			39.9s confirmed a b`,
	},
	{
		name:    "while one has not been seen again",
		script:  confirmedThenRestarted + `12s a announces`,
		more:    20 * time.Second,
		verdict: "confirmed before the agent's restart, its holders are not all seen again yet: suspected, not confirmed",
		want: `0s suspected a b
			1s confirmed a b`,
	},
	{
		name:   "one never comes back",
		script: confirmedThenRestarted + `12s a announces`,
		more:   time.Minute,
		want: `0s suspected a b
			1s confirmed a b
			40s resolved a b`,
		verdict: "one live holder: not a conflict; the last conflict is resolved",
	},
	{
		name:   "both never come back",
		script: confirmedThenRestarted + `11s a gone`,
		more:   time.Minute,
		want: `0s suspected a b
			1s confirmed a b
			40s resolved a b`,
		verdict: "no live holder",
	},
	{
		name: "one answers only after a while",
		script: confirmedThenRestarted + `12s b mute
			12s a announces
			12s b announces
			20s b unmute`,
		want: `0s suspected a b
			1s confirmed a b
			21.1s confirmed a b`,
	},
	{
		name: "while one does not answer yet",
		script: confirmedThenRestarted + `12s b mute
			12s a announces
			12s b announces`,
		more: 3 * time.Second,
		want: `0s suspected a b
			1s confirmed a b`,
		verdict: "two holders, being verified again after the agent's restart: suspected, not confirmed",
	},
	{
		name: "one sends and answers only after a while",
		script: confirmedThenRestarted + `12s b mute
			12s a announces
			12s b sends
			20s b unmute`,
		want: `0s suspected a b
			1s confirmed a b
			21.1s confirmed a b`,
	},
	{
		name: "one never answers any more",
		script: confirmedThenRestarted + `12s b mute
			12s a announces
			12s b announces`,
		more: time.Minute,
		want: `0s suspected a b
			1s confirmed a b
			40s resolved a b`,
	},
	{
		name: "one comes back at the last moment and does not answer",
		script: confirmedThenRestarted + `12s b mute
			12s a announces
			39.5s b announces`,
		more: time.Minute,
		want: `0s suspected a b
			1s confirmed a b
			40.5s resolved a b`,
	},
	{
		name: "one only forwards by now",
		script: confirmedThenRestarted + `12s b drops
			12s b proxies
			12s a announces
			12s b spoofs`,
		more: time.Minute,
		want: `0s suspected a b
			1s confirmed a b
			40s resolved a b`,
		verdict: "also forwarded by b",
	},
	{
		name: "three holders, one of them late",
		script: `0s c announces
			` + confirmedThenRestarted + `12s a announces
			12s b announces
			20s c announces`,
		want: `0s suspected c a
			0s changed c a b
			1s confirmed c a b
			13s confirmed a b
			21s changed c a b`,
	},
	{
		name: "three holders at once",
		script: `0s c announces
			` + confirmedThenRestarted + `12s a announces
			12s b announces
			12s c announces`,
		want: `0s suspected c a
			0s changed c a b
			1s confirmed c a b
			13s confirmed c a b`,
	},
	{
		name: "a new holder in the place of an old one",
		script: confirmedThenRestarted + `12s a announces
			13s d announces`,
		want: `0s suspected a b
			1s confirmed a b
			13s changed a b d
			14s confirmed a d`,
	},
	{
		name: "a new holder that does not have it",
		script: confirmedThenRestarted + `12s a announces
			13s d forges
			20s b announces`,
		want: `0s suspected a b
			1s confirmed a b
			13s changed a b d
			14s changed a b
			21s confirmed a b`,
	},
	{
		name: "one cannot be probed",
		script: confirmedThenRestarted + `12s b guarded solicit is off
			12s a announces
			12s b announces`,
		more: 2 * time.Minute,
		want: `0s suspected a b
			1s confirmed a b`,
		verdict: "two holders, one cannot be probed (solicit is off): suspected, not confirmed",
	},
	{
		name: "one cannot be probed, then it can",
		script: confirmedThenRestarted + `12s b guarded solicit is off
			12s a announces
			12s b announces
			70s b unguarded
			70s b announces`,
		want: `0s suspected a b
			1s confirmed a b
			1m11s confirmed a b`,
	},
	{
		name: "one cannot be probed, the other goes",
		script: confirmedThenRestarted + `12s b guarded solicit is off
			12s a announces
			12s b announces
			70s a gone`,
		want: `0s suspected a b
			1s confirmed a b
			1m10s resolved a b`,
	},
	{
		name: "restarted twice",
		script: confirmedThenRestarted + `12s a announces
			20s agent restarts
			21s b announces`,
		more: time.Minute,
		want: `0s suspected a b
			1s confirmed a b
			50s resolved a b`,
	},
	{
		name: "over, and back later",
		script: confirmedThenRestarted + `50s a announces
			50s b announces`,
		want: `0s suspected a b
			1s confirmed a b
			40s resolved a b
			50s suspected a b
			51s confirmed a b`,
	},
	{
		name: "verified again, then it ends",
		script: confirmedThenRestarted + `12s a announces
			12s b announces
			20s b gone`,
		want: `0s suspected a b
			1s confirmed a b
			13s confirmed a b
			23s resolved a b`,
	},
	{
		name: "a suspicion fades if its holders do not come back",
		script: `0s a unmute
			0s b guarded solicit is off
			` + confirmedThenRestarted,
		more: time.Minute,
		want: `0s suspected a b
			40s faded a b`,
	},
	{
		name: "a suspicion that can be verified after all",
		script: `0s a unmute
			0s b guarded solicit is off
			` + confirmedThenRestarted + `12s b unguarded
			12s a announces
			12s b announces`,
		want: `0s suspected a b
			13s confirmed a b`,
	},
	{
		name: "declared shared before the restart",
		script: confirmedThenRestarted + `12s a announces
			12s b announces
			20s agent shares
			25s agent restarts
			26s a announces
			26s b announces`,
		want: `0s suspected a b
			1s confirmed a b
			13s confirmed a b
			20s resolved a b`,
		verdict: "two live holders, but declared shared: not a conflict; the last conflict is resolved",
	},
}

// After a restart of the agent a conflict has the same id and times, and its holders the same age. It is
// counted once.
func TestRestoredKeepsItsAge(t *testing.T) {
	w := newWorld(t, Options{})
	w.proof = proof{}
	w.do("0s a announces")
	w.run(w.now.Add(time.Second))
	w.do("0s b announces")
	w.run(w.now.Add(2 * time.Minute))
	w.d.Describe(w.actor("a").id, func(_ Key, h *Holder) { h.Pod = Pod{Name: "web", Namespace: "shop"} }, w.now)
	old := w.d.Conflicts(false)[0]
	w.do("0s agent restarts")
	got := w.d.Conflicts(false)[0]
	if got.State != Suspected || got.ID != old.ID || !got.SuspectedAt.Equal(old.SuspectedAt) || !got.ConfirmedAt.IsZero() {
		t.Errorf("restored as %+v", got)
	}
	w.run(w.now.Add(5 * time.Second))
	w.do("0s a announces")
	w.do("0s b announces")
	w.run(w.now.Add(2 * time.Second))
	got = w.d.Conflicts(false)[0]
	for i := range got.Holders {
		if !got.Holders[i].LastSeen.After(w.born) {
			t.Errorf("%s was last seen %v", got.Holders[i].Holder, got.Holders[i].LastSeen)
		}
		got.Holders[i].LastSeen = old.Holders[i].LastSeen
	}
	if diff := cmp.Diff(old, got, cmpIPs); diff != "" {
		t.Errorf("after the restart (-want +got):\n%s", diff)
	}
	if b := w.d.Bindings(nil); !b[0].FirstSeen.Equal(w.start) || b[0].Holder.Pod.Name != "web" {
		t.Errorf("the binding is %+v", b[0])
	}
	n := w.d.Counts()
	if n.Confirmed[SameNode] != 0 || n.Suspected != 0 || n.Open[StateScope{Confirmed, SameNode}] != 1 {
		t.Errorf("counts %+v", n)
	}
	last := w.events[len(w.events)-1]
	if want := "verified again after the agent's restart: 2 live holders answered both rounds 1.0 s apart"; last.Reason != want || !last.Restored {
		t.Errorf("event %+v, want the reason %q", last, want)
	}
	if w.events[1].Kind != EventConfirmed || w.events[1].Restored {
		t.Errorf("the first confirmation %+v", w.events[1])
	}
	// The conflict is probed as often as a new one.
	probed := len(w.probedAt("a", Verify))
	w.run(w.now.Add(30 * time.Second))
	if n := len(w.probedAt("a", Verify)) - probed; n < 5 {
		t.Errorf("probed %d times in 30 s", n)
	}
	w.mustAudit()
}

// A suspicion that is confirmed only after the restart is a detection like any other.
func TestRestoredSuspicionIsCountedWhenConfirmed(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s b guarded x
		0s a announces
		0s b announces
		10s agent restarts
		12s b unguarded
		12s a announces
		12s b announces`, 2*time.Second)
	c := w.d.Conflicts(false)[0]
	last := w.events[len(w.events)-1]
	if !c.ConfirmedAt.Equal(last.At) || last.Restored || w.d.Counts().Confirmed[SameNode] != 1 {
		t.Errorf("%+v, event %+v", c, last)
	}
}

// A conflict whose holders do not come back is resolved with its old times and a reason. The history has it.
func TestRestoredEnds(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(confirmedThenRestarted+`12s b mute
		12s a announces
		12s b announces`, time.Minute)
	last := w.events[len(w.events)-1]
	if want := notFoundAgain + ": b did not answer"; last.Reason != want || !last.Restored {
		t.Errorf("event %+v, want the reason %q", last, want)
	}
	c := w.d.Conflicts(true)
	if len(c) != 1 || c[0].State != Resolved || w.since(c[0].ConfirmedAt) != time.Second || w.since(c[0].ResolvedAt) != 40*time.Second {
		t.Errorf("history %+v", c)
	}
	if n := w.d.Counts(); n.Resolved != 1 || n.Faded != 0 {
		t.Errorf("counts %+v", n)
	}
}
