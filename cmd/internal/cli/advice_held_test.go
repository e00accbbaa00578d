package cli

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/document"
)

// If nothing should be removed now, the advice says why, and what to wait for or to do instead.
func TestPrintHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// It is not known whether a holder on an unreachable node is alive.
		lost := twoPods("10.0.0.1")
		lost.Advice = &document.Advice{Unknown: "unreachable", Held: []int{0}}
		printed(t, func(p *Printer) { p.Advice(only(lost)) }, `

What to do:
10.0.0.1: n1 does not answer: wait until it does or its holders are forgotten (5
  minutes).
`)
		three := lost
		three.Holders = append(slices.Clone(lost.Holders), holder("n3", "web-2", "10.0.0.1", time.Second))
		three.Advice = &document.Advice{Unknown: "unreachable", Held: []int{0, 2}}
		printed(t, func(p *Printer) { p.StoryAdvice(&three) }, `

What to do:
  n1 and n3 do not answer: wait until they do or their holders are forgotten (5
  minutes).
`)
		clone := twoPods("10.0.0.1")
		clone.Holders[0].BootID, clone.Holders[1].BootID = "02345678-aaaa", "12345678-aaaa"
		clone.Holders[1].Node, clone.Holders[1].Pod = "n1", clone.Holders[0].Pod
		left := clone.Holders[0]
		left.Node, left.Pod = "n4", &document.Pod{Namespace: "shop", Name: "web-0", UID: left.Pod.UID, Stopped: true}
		clone.Holders = append(clone.Holders, left, holder("n3", "web-2", "10.0.0.1", time.Second))
		clone.Advice = &document.Advice{Unknown: "two-nodes", Held: []int{0, 1}}
		printed(t, func(p *Printer) { p.Advice(only(clone)) }, `

What to do:
10.0.0.1: n1 (boot 02345678) and n1 (boot 12345678) run the same pod: probably
  one is a clone, or a machine that was replaced and still runs. Shut down the
  one that should not run; "dupip nodes" has their addresses.
`)
		printed(t, func(p *Printer) { p.StoryAdvice(&clone) }, `

What to do:
  n1 (boot 02345678) and n1 (boot 12345678) run the same pod: probably one is a
  clone, or a machine that was replaced and still runs. Shut down the one that
  should not run; "dupip nodes" has their addresses.
`)
	})
}

// An unknown reason of another version is not reported as an unreachable node.
func TestHeldForAnotherReason(t *testing.T) {
	c := document.Conflict{Holders: []document.Binding{{Holder: document.Holder{Node: "n1"}}, {Holder: document.Holder{Node: "n2"}}}, Advice: &document.Advice{Unknown: "of tomorrow"}}
	if got, want := HeldReason(c), "Nothing is to be removed now."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
