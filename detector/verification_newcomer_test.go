package detector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// newcomerTests have holders that join a confirmed conflict. A newcomer becomes one of its holders if
// it has the address together with another one.
var newcomerTests = []scriptTest{
	{
		name: "the last holder hands over while its conflict ends",
		script: `0s a announces
			0s b announces
			30s b gone
			30.1s a drops
			30.1s c announces`,
		want: `0s suspected a b
			1s confirmed a b
			33s resolved a b
			33s suspected a c
			34s faded a c`,
	},
	{
		name: "… right after it answered",
		script: `0s a announces
			0s b announces
			31.1s b gone
			31.1s a drops
			31.1s c announces`,
		want: `0s suspected a b
			1s confirmed a b
			34.1s resolved a b
			34.1s suspected a c
			35.1s faded a c`,
	},
	{
		name: "both holders are dead, and the agent does not know yet",
		script: `0s a announces
			0s b announces
			30s a drops
			30s b drops
			30s c announces`,
		more: time.Minute,
		want: `0s suspected a b
			1s confirmed a b
			40s resolved a b`,
	},
	{
		name: "two newcomers prove each other",
		script: `0s a announces
			0s b announces
			30s a gone
			30s b gone
			30.5s c announces
			30.5s d announces`,
		want: `0s suspected a b
			1s confirmed a b
			31.5s changed c d`,
	},
	{
		name: "two newcomers, one later",
		script: `0s a announces
			0s b announces
			30s a gone
			30s b gone
			30.5s c announces
			32s d announces`,
		want: `0s suspected a b
			1s confirmed a b
			33s changed c d`,
	},
	{
		name: "two newcomers, much later: the first one has no other holder beside it",
		script: `0s a announces
			0s b announces
			30s a gone
			30.1s b gone
			30.5s c announces
			32.6s d announces`,
		want: `0s suspected a b
			1s confirmed a b
			33.6s changed c d`,
	},
	{
		name: "two newcomers: the holders that answered with the first are gone",
		script: `0s a announces
			0s b@n2 announces
			39.89s a gone
			40.385s c announces
			40.835s b@n2 gone
			40.99s e@n2 announces
			41.58s e@n2 gone
			41.62s d@n3 announces`,
		want: `0s suspected a b@n2
			1s confirmed a b@n2
			42.62s changed c d@n3`,
	},
	{
		name: "a newcomer that comes and goes does not delay another",
		script: `0s a announces
			0s b announces
			30s c announces
			30.2s d announces
			30.4s d gone
			30.6s d announces
			30.8s d gone`,
		want: `0s suspected a b
			1s confirmed a b
			31s changed a b c`,
	},
	{
		name: "a newcomer while the others cannot be probed",
		script: `0s a announces
			0s b announces
			8s a guarded x
			8s b guarded x
			30s c announces
			40s a unguarded
			40s b unguarded`,
		more: 2 * time.Minute,
		want: `0s suspected a b
			1s confirmed a b
			42s changed a b c`,
	},
	{
		name: "a holder pauses while it is probed because of a newcomer",
		script: `0s a announces
			0s b announces
			6.5s b mute
			7s c announces
			10.9s b unmute`,
		want: `0s suspected a b
			1s confirmed a b
			8s changed a b c`,
	},
	{
		name: "a newcomer that is the node itself",
		script: `0s a announces
			0s b announces
			30s host1 announces`,
		want: `0s suspected a b
			1s confirmed a b
			31s changed a b host1`,
	},
}

// Newcomers have to answer two rounds, like the holders of a suspicion.
func TestNewcomersAreProven(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name                            string
		first, latest, otherAt, otherTo float64
		evidence                        Evidence
		want                            bool
	}{
		{"both together, twice", 0, 1, 0, 1, Data, true},
		{"the other one had it for too short", 0, 1, 0.5, 1, Data, false},
		{"the newcomer had it for too short", 0.5, 1, 0, 1, Data, false},
		{"the other one answered long before", 0, 5, 0, 1, Data, false},
		{"the other one answered a little before", 0, 2, 0, 1.5, Data, true},
		{"two nodes", 0, 1, 0, 1, Host, false},
	}
	for _, tt := range tests {
		o, b := &binding{evidence: tt.evidence}, &binding{evidence: tt.evidence}
		answerAll(start, []*binding{o, b}, []span{{tt.otherAt, tt.otherTo}, {tt.first, tt.latest}})
		o.check.proven = true
		live := (&verifier{overlap: time.Second}).proven([]*binding{b, o})
		if got := len(live) == 2; got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// Sandboxes that come and go do not keep a conflict open whose second holder is dead.
func TestNewcomersDoNotKeepADeadHolder(t *testing.T) {
	w := newWorld(t, Options{})
	w.do("0s a announces")
	w.do("0s b announces")
	w.run(w.now.Add(6500 * time.Millisecond))
	w.do("0s b drops")
	for range 60 { // a crash loop: every sandbox lives for half a second
		w.do("0s c changes-netns")
		w.do("0s c changes-interface")
		w.do("0s c announces")
		w.run(w.now.Add(500 * time.Millisecond))
		w.do("0s c gone")
	}
	for _, b := range w.d.Bindings(nil) {
		if b.Holder.NetnsName == "b" {
			t.Error("b is still there after half a minute of silence")
		}
	}
	if n := w.d.Counts().Resolved; n != 1 {
		t.Errorf("%d resolved", n)
	}
}

// A newcomer is probed again where that can prove something, and never while it must not be.
func TestNewcomersAreProbedSparingly(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b@n2 announces
		39.89s a gone
		40.385s c announces
		40.835s b@n2 gone
		40.99s e@n2 announces
		41.58s e@n2 gone
		41.62s d@n3 announces`, 5*time.Second)
	if probed := w.probedAt("c", Verify); len(probed) < 3 || len(probed) > 8 {
		t.Errorf("c is probed %d times, want about five times: %v", len(probed), probed)
	}

	w = newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces
		30s c guarded 20s x
		30s c announces
		31s d announces
		32s e announces`, 5*time.Second)
	if probed := w.probedAt("c", Verify); len(probed) != 1 {
		t.Errorf("c is probed although it must not be: %v", probed)
	}
}

// Two holders that stay are found after two rounds, whichever others come and go meanwhile. It takes
// one more round if the first round began with a holder that left.
func TestNewcomersAreFoundInTime(t *testing.T) {
	const limit = 2*time.Second + 50*time.Millisecond
	var slow int
	for _, b := range []string{"b", "b@n2"} {
		for _, d := range []string{"d", "d@n3"} {
			sweep(func(c, x, gone, passes time.Duration) {
				script := timeline{
					{20 * time.Second, "a gone"},
					{20*time.Second + c, "c announces"},
					{20*time.Second + gone, b + " gone"},
					{20*time.Second + x, d + " announces"},
					{20*time.Second + passes, "e announces"},
					{20*time.Second + passes + 600*time.Millisecond, "e gone"},
				}.script()
				w := newWorld(t, Options{})
				w.play("0s a announces\n0s "+b+" announces\n"+script, 10*time.Second)
				if took := w.together("c", d).Sub(w.start) - 20*time.Second - x; took > limit || took < 0 {
					if slow++; slow <= 3 {
						t.Errorf("found after %v:\n%s%v", took, script, w.log())
					}
				}
			})
		}
	}
	if slow > 0 {
		t.Errorf("%d were late or never found", slow)
	}
}

// sweep calls play with all combinations of times that matter: when c comes and d after it, when b
// goes, and when another holder comes and goes.
func sweep(play func(c, d, gone, passes time.Duration)) {
	const ms = time.Millisecond
	for c := time.Duration(0); c <= 2800*ms; c += 710 * ms {
		for d := c + 50*ms; d <= 4000*ms; d += 610 * ms {
			for gone := time.Duration(0); gone <= 5000*ms; gone += 690 * ms {
				for passes := 10 * ms; passes <= 4000*ms; passes += 490 * ms {
					play(c, d, gone, passes)
				}
			}
		}
	}
}

// happening is one line of a script. A timeline has some of them in any order.
type happening struct {
	at   time.Duration
	what string
}

type timeline []happening

// script returns the timeline as a script.
func (l timeline) script() string {
	slices.SortStableFunc(l, func(a, b happening) int { return cmp.Compare(a.at, b.at) })
	var text strings.Builder
	for _, e := range l {
		fmt.Fprintf(&text, "%v %s\n", e.at, e.what)
	}
	return text.String()
}

// together returns when a confirmed conflict first named both holders; zero for never.
func (w *world) together(x, y string) time.Time {
	for _, e := range w.events {
		named := 0
		for _, h := range e.Conflict.Holders {
			if h.Holder.NetnsName == x || h.Holder.NetnsName == y {
				named++
			}
		}
		if named == 2 && e.Conflict.State == Confirmed {
			return e.At
		}
	}
	return time.Time{}
}
