package detector

import (
	"testing"
	"time"
)

// newcomers join a confirmed conflict: only those that have the address together with
// somebody else are its holders.
var newcomers = []story{
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
		name: "both holders are dead and nobody knows yet",
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
		name: "two newcomers attest each other",
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
		name: "a newcomer while the others cannot be asked",
		script: `0s a announces
			0s b announces
			8s a refused x
			8s b refused x
			30s c announces
			40s a allowed
			40s b allowed`,
		more: 2 * time.Minute,
		want: `0s suspected a b
			1s confirmed a b
			46s changed a b c`,
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

// What provenTogether asks of a suspicion, attested asks of a newcomer.
func TestAttested(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	tests := []struct {
		name                               string
		first, latest, witnessed, answered float64
		evidence                           Evidence
		want                               bool
	}{
		{"both together, twice", 0, 1, 0, 1, Data, true},
		{"the witness had it for too short", 0, 1, 0.5, 1, Data, false},
		{"the newcomer had it for too short", 0.5, 1, 0, 1, Data, false},
		{"the witness answered long before", 0, 5, 0, 1, Data, false},
		{"the witness answered a little before", 0, 2, 0, 1.5, Data, true},
		{"two nodes", 0, 1, 0, 1, Host, false},
	}
	for _, tt := range tests {
		o := &binding{
			holder: Holder{ID: HolderID{Netns: 2}}, evidence: tt.evidence, probe: &probe{latest: at(tt.answered)},
		}
		b := &binding{evidence: tt.evidence, probe: &probe{first: at(tt.first), latest: at(tt.latest)}}
		b.probe.witnesses = []witness{{o.holder.ID, at(tt.witnessed)}}
		if got := New(Options{}).attested(b, []*binding{b, o}); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// Those asked because of newcomers are not called silent for it; their own re-checks
// count as ever, however many newcomers come.
func TestNewcomersDoNotEndWhatIsThere(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces
		6.5s b mute
		7s c announces
		10.9s b speaks`, 20*time.Second)
	for _, line := range w.log {
		if line != "0s suspected a b" && line != "1s confirmed a b" && line != "8s changed a b c" {
			t.Error(line)
		}
	}
	if t.Failed() {
		w.history(t)
	}
}

func TestNewcomersDoNotKeepADeadHolder(t *testing.T) {
	w := newWorld(t, Options{})
	w.do("0s a announces")
	w.do("0s b announces")
	w.run(w.now.Add(6500 * time.Millisecond))
	w.do("0s b drops")
	for range 60 { // a crash loop: every sandbox lives for half a second
		w.do("0s c netns")
		w.do("0s c port")
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
