package detector

import (
	"strings"
	"testing"
	"time"
)

// deafTests have holders that answer others, and not the agent.
var deafTests = []scriptTest{
	{
		name: "D41 it answers others twice, half a minute apart",
		script: `0s a announces
			10s b mute
			10s b answers
			40s b answers`,
		want: `10s suspected a b
			11s faded a b
			40s suspected a b
			41s confirmed a b`,
		verdict: "two live holders had it in both rounds 30.0 s apart, 1 by what it answers to others, and not to this node: a conflict",
	},
	{
		name: "D41 it stays one while it is seen, and five minutes longer",
		script: `0s a announces
			10s b mute
			10s b answers
			40s b answers
			2m b answers`,
		more: 6 * time.Minute,
		want: `10s suspected a b
			11s faded a b
			40s suspected a b
			41s confirmed a b
			7m3s resolved a b`,
	},
	{
		name: "D41 its kernel loses the address",
		script: `0s a announces
			10s b mute
			10s b answers
			40s b answers
			1m b loses`,
		want: `10s suspected a b
			11s faded a b
			40s suspected a b
			41s confirmed a b
			1m3s resolved a b`,
	},
	{
		name: "D41 it answers us, and is gone",
		script: `0s a announces
			10s b takes
			10s b mute
			10s b answers
			40s b answers
			50s b unmute
			1m10s b drops`,
		more: 30 * time.Second,
		want: `10s suspected a b
			11s faded a b
			40s suspected a b
			41s confirmed a b
			1m24s resolved a b`,
	},
	{
		name: "D41 both are deaf",
		script: `0s a mute
			0s b mute
			0s a answers
			0s b answers
			30s a answers
			30s b answers
			60s a answers
			60s b answers`,
		want: `0s suspected a b
			1s faded a b
			30s suspected a b
			31s confirmed a b`,
	},
	{
		name: "D41 a holder elsewhere",
		script: `0s a announces
			0s a@n2 announces
			10s b mute
			10s b answers
			40s b answers`,
		want: `0s suspected a a@n2
			1s confirmed a a@n2
			41.02s changed a a@n2 b`,
	},
	{
		name: "it answers somebody else once",
		script: `0s a announces
			10s b mute
			10s b answers`,
		want: `10s suspected a b
			11s faded a b`,
	},
	{
		name: "others ask one that had the address, and then another one",
		script: `0s a mute
			0s a announces
			0s a answers
			10s a loses
			10s b announces
			20s b mute
			20s b answers
			40s b answers`,
		want: "",
	},
	{
		name: "it is silent to everybody",
		script: `0s a announces
			10s b mute
			10s b announces
			40s b announces
			2m b sends`,
		want: `10s suspected a b
			11s faded a b
			40s suspected a b
			41s faded a b
			2m0s suspected a b
			2m1s faded a b`,
	},
	{
		name: "it answers others long after the probes that it leaves unanswered",
		script: `0s a announces
			10s b mute
			10s b announces
			14s b answers`,
		want: `10s suspected a b
			11s faded a b
			14s suspected a b
			15s faded a b`,
	},
	{
		name: "D41 it answers our old probes only, to seem slow",
		script: `0s a announces
			10s b mute
			10s b answers
			10.5s b answers-late
			40s b answers
			40.5s b answers-late`,
		want: `10s suspected a b
			11s faded a b
			40s suspected a b
			41s confirmed a b`,
	},
	{
		name: "half an hour passes before it answers others again",
		script: `0s a announces
			10s b mute
			10s b answers
			30m b answers`,
		want: `10s suspected a b
			11s faded a b
			30m0s suspected a b
			30m1s faded a b`,
	},
}

// What a holder that is silent to everybody is shown as: its kernel has the address, so it does not only forward.
func TestSilent(t *testing.T) {
	for _, tt := range []struct {
		listed bool
		want   string
	}{{true, "silent"}, {false, "forwarded"}} {
		w := newWorld(t, Options{})
		w.play("0s a announces\n1s b mute", 0)
		s := w.actor("b").sighting(defaultIP, Data, w.now)
		s.Listed = tt.listed
		w.observe(s)
		w.run(w.now.Add(2 * time.Second))
		var got []string
		for _, b := range w.d.Explain(defaultIP)[0].Bindings {
			got = append(got, b.Evidence.String())
		}
		if strings.Join(got, " ") != "announced "+tt.want {
			t.Errorf("bindings: %v, want one that is %s", got, tt.want)
		}
		if v := w.verdict(); !strings.Contains(v, notCounted[map[bool]Evidence{true: Silent, false: Forwarded}[tt.listed]]) {
			t.Errorf("verdict: %s", v)
		}
	}
}

// TestDeafAreBounded: those of one key.
func TestDeafAreBounded(t *testing.T) {
	w := newWorld(t, Options{})
	e := w.d.table.entryFor(Key{"default", defaultIP})
	v := &verifier{overlap: time.Second}
	for n := range 2 * maxHolders {
		b := &binding{entry: e, holder: Holder{ID: HolderID{Node: "n1", Netns: uint64(n + 1)}}, overheard: w.now, check: &check{}}
		b.check.sent = w.now
		v.overhear(b, w.now.Add(AnswerTime))
	}
	if len(e.deaf) != maxHolders || e.deaf[0].holder.Netns != maxHolders+1 {
		t.Errorf("%d are remembered, the first is %+v", len(e.deaf), e.deaf[0].holder)
	}
}

// TestDeafForOthers: what others are told of a deaf holder is what its own node counts. Else they would confirm a conflict that this node
// lets fade, and with it theirs.
func TestDeafForOthers(t *testing.T) {
	w := newWorld(t, Options{})
	for _, step := range []struct {
		script string
		more   time.Duration
		want   bool
	}{
		{"0s a announces\n10s b mute\n10s b answers", 2 * time.Second, false},
		{"40s b answers", 2 * time.Second, true},
		{"60s a loses", 4 * time.Second, false},
		{"79s b answers\n80s c announces", 500 * time.Millisecond, false}, // it has to be proved again
		{"90s b answers\n100s b answers", 2 * time.Second, true},
		{"110s b drops", 10 * time.Minute, false},
		{"800s b announces", 500 * time.Millisecond, false}, // what it was long ago counts no more
	} {
		w.play(step.script, step.more)
		if got := w.d.Deaf(Key{"default", defaultIP}, w.actor("b").id); got != step.want {
			t.Errorf("after %q: deaf is %t, want %t", step.script, got, step.want)
		}
	}
}
