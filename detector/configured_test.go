package detector

import (
	"strings"
	"testing"
	"time"
)

// configuredTests have holders that nothing can ask: what their kernels have configured takes the place of answers.
var configuredTests = []scriptTest{
	{
		name: "two that are only configured",
		script: `0s a configures
			0s a answers
			5s b configures
			5s b answers`,
		want: `5s suspected a b
			6s confirmed a b`,
		verdict: "two live holders had it in both rounds 1.0 s apart, 2 by the lists of their kernels: a conflict",
	},
	{
		name: "one that is only configured beside one that answers",
		script: `0s a configures
			0s a answers
			5s b announces`,
		want: `5s suspected a b
			6s confirmed a b`,
		verdict: "two live holders had it in both rounds 1.0 s apart, 1 by the list of its kernel: a conflict",
	},
	{
		name: "one that is only configured and a claim",
		script: `0s a configures
			0s a answers
			5s b claims`,
		want: `5s suspected a b
			6s confirmed a b`,
	},
	{
		name: "both send",
		script: `0s a configures
			0s a sends
			5s b configures
			5s b sends`,
		want: `5s suspected a b
			6s confirmed a b`,
		verdict: "2 by the lists of their kernels",
	},
	{
		name: "on two nodes",
		script: `0s a configures
			0s a sends
			5s b@n2 configures
			5s b@n2 sends`,
		want: `5s suspected a b@n2
			6s confirmed a b@n2`,
		verdict: "2 by the lists of their kernels",
	},
	{
		name: "one sends from an address that its kernel does not have",
		script: `0s a configures
			0s a answers
			5s b spoofs
			20s b spoofs`,
		want: `5s suspected a b
			6s faded a b`,
		verdict: "one live holder: not a conflict",
	},
	{
		name: "one may not be scanned",
		script: `0s a configures
			0s a answers
			4s b guarded off
			5s b sends`,
		more: time.Minute,
		want: `5s suspected a b`, verdict: "one cannot be probed (off): suspected, not confirmed",
	},
	{
		name: "its kernel does not have it any more",
		script: `0s a configures
			0s a answers
			0s b configures
			0s b answers
			2s b drops`,
		want: `0s suspected a b
			1s confirmed a b
			15s resolved a b`,
		verdict: "the last conflict is resolved",
	},
}

// No note says that such a holder answered, and refreshes keep its binding, with the weaker evidence once it does not send.
func TestConfigured(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a configures
		0s a sends
		5s b configures
		5s b answers
		20s b drops`, 40*time.Minute)
	b := w.d.Bindings(func(b *Binding) bool { return b.Holder.NetnsName == "a" })
	if len(b) != 1 || b[0].Evidence != Configured {
		t.Fatalf("bindings %+v", b)
	}
	story, listed := w.d.Explain(defaultIP)[0], 0
	for _, n := range story.Notes {
		if strings.Contains(n.Text, "answered") || n.Kind == NoteAnswered {
			t.Errorf("note %q", n.Text)
		}
		if strings.HasPrefix(n.Text, "its kernel has the address configured") {
			listed++
		}
	}
	if listed < 3 {
		t.Errorf("%d notes of what is configured, want those of two rounds and of refreshes: %+v", listed, story.Notes)
	}
	w.play("41m a drops", 10*time.Minute)
	if b := w.d.Bindings(func(*Binding) bool { return true }); len(b) != 0 {
		t.Errorf("bindings without evidence: %+v", b)
	}
}
