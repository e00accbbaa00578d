package cli

import (
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// situation is a conflict of two pods on two nodes, and what the sentences about it are filled from.
func situation(change func(c *document.Conflict, a *document.Advice)) document.Conflict {
	pod := func(node, name string) document.Binding {
		return document.Binding{Holder: document.Holder{Node: node, Pod: &document.Pod{Namespace: "shop", Name: name}, Interface: "veth" + name}, Evidence: detector.Announced}
	}
	first, second := 0, 1
	c := document.Conflict{Holders: []document.Binding{pod("n1", "elder"), pod("n2", "younger")}, Advice: &document.Advice{
		Newer: &second, Than: &first, By: "created", AfterSeconds: 5,
		Remove: []document.Removal{{Holder: 1, Because: "newer", Command: "kubectl delete"}, {Holder: 0}},
	}}
	change(&c, c.Advice)
	return c
}

func because(reason string) func(*document.Conflict, *document.Advice) {
	return func(_ *document.Conflict, a *document.Advice) { a.Remove[0].Because = reason }
}

func held(reason string, holders ...int) func(*document.Conflict, *document.Advice) {
	return func(_ *document.Conflict, a *document.Advice) { a.Remove, a.Unknown, a.Held = nil, reason, holders }
}

// notKnown is a conflict of which the newer holder is not known.
func notKnown(reason string, found ...int) func(*document.Conflict, *document.Advice) {
	return func(c *document.Conflict, a *document.Advice) {
		a.Newer, a.Than, a.Unknown, a.Remove[0].Because = nil, nil, reason, ""
		for _, n := range found {
			c.Holders[n].FoundAtStart = true
		}
	}
}

func command(text string) func(*document.Conflict, *document.Advice) {
	return func(c *document.Conflict, a *document.Advice) {
		a.Remove[0].Command = text
		c.Holders[1].Given = detector.GivenYes
	}
}

// TestSentences: each sentence says what it should, and of the right holder: with the holders exchanged it is another one.
func TestSentences(t *testing.T) {
	reason := func(c document.Conflict) string { return Consequence(c, c.Advice.Remove[0]) }
	tests := map[string]struct {
		change func(*document.Conflict, *document.Advice)
		text   func(document.Conflict) string
		want   string
	}{
		"stopped":  {because("stopped"), Situation, "shop/younger on n2 is left over: the runtime says that its sandbox has stopped."},
		"replaced": {because("replaced"), Situation, "shop/younger on n2 is left over: its pod's name belongs to a later sandbox."},
		"not-given": {func(c *document.Conflict, a *document.Advice) {
			a.Remove[0].Because, c.Holders[0].Given = "not-given", detector.GivenYes
		}, Situation, "shop/younger on n2 was not given the address by any network plugin, and shop/elder on n1 was: it was probably taken by hand."},
		"newer": {because("newer"), Situation, "shop/younger on n2 is the newer holder: made 5.0s after shop/elder on n1."},
		"newer-sandbox": {
			func(c *document.Conflict, _ *document.Advice) {
				c.Holders[0].FoundAtStart, c.Holders[1].FoundAtStart = true, true
			}, Situation,
			"shop/younger on n2 is the newer holder by its sandbox, made 5.0s after that of shop/elder on n1; who had the address first is not known.",
		},
		"given-to-newer": {
			func(c *document.Conflict, a *document.Advice) {
				a.GivenByNodes, c.Holders[1].Given = true, detector.GivenYes
			}, Situation,
			"shop/younger on n2 is the newer holder: made 5.0s after shop/elder on n1. It was given the address by its node; who was given it of the others is not known.",
		},
		"given-to-all": {
			func(c *document.Conflict, a *document.Advice) {
				a.GivenByNodes, c.Holders[0].Given, c.Holders[1].Given = true, detector.GivenYes, detector.GivenYes
			}, Situation,
			"shop/younger on n2 is the newer holder: made 5.0s after shop/elder on n1. Each was given the address by its own node.",
		},
		"given-unknown": {
			func(c *document.Conflict, _ *document.Advice) { c.Holders[0].Given = detector.GivenYes }, Situation,
			"shop/younger on n2 is the newer holder: made 5.0s after shop/elder on n1. It is not known who was given the address.",
		},
		"host": {func(c *document.Conflict, a *document.Advice) {
			notKnown("host")(c, a)
			c.Holders[0].Evidence = detector.Host
		}, Situation, "It is an address of node n1 itself."},
		"away": {func(c *document.Conflict, a *document.Advice) {
			notKnown("away")(c, a)
			noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.Local)
			a.Away = &document.Away{Elder: 0, Newer: 1, Nodes: []string{"n1", "n2"}, From: noon, Until: noon.Add(time.Minute)}
		}, Situation, "n1 and n2 could not reach each other from Jan  1 12:00:00 to Jan  1 12:01:00, and shop/younger on n2 came meanwhile. If n1 was given up, " +
			"shop/elder on n1 is left over from before and shop/younger on n2 is right, although newer: \"kubectl get pods -A -o wide\" has those that should be there."},
		"configured": {
			func(c *document.Conflict, _ *document.Advice) { c.Holders[0].Evidence = detector.Configured }, configuredOnly,
			" shop/elder on n1 was not seen using the address in the last 5 minutes: its kernel has it configured. Perhaps it was left behind there. " +
				"Look into it before you delete it: to remove the address from it may be enough.",
		},
		"some-found":          {notKnown("found-at-start", 1), Situation, "It is not known which is newer: shop/younger on n2 was there before its agent."},
		"two-nodes":           {held("two-nodes", 0, 1), HeldReason, "n1 and n2 run the same pod: probably one is a clone, or a machine that was replaced and still runs. Shut down the one that should not run; \"dupip nodes\" has their addresses."},
		"gone":                {held("gone", 1), HeldReason, "Wait: shop/younger on n2 has gone, or did not answer lately. Nothing is to be removed."},
		"unreachable":         {held("unreachable", 1), HeldReason, "n2 does not answer: wait until it does or its holders are forgotten (5 minutes)."},
		"several-unreachable": {held("unreachable", 0, 1), HeldReason, "n1 and n2 do not answer: wait until they do or their holders are forgotten (5 minutes)."},
		"deletes":             {command("kubectl delete"), reason, "to end shop/younger (given the address according to n2); IPAM decides which address a successor gets"},
		"restarts":            {command("crictl rmp -f 0"), reason, "to restart shop/younger (given the address according to n2), with an address that IPAM gives it then"},
		"cuts":                {command("ip link set"), reason, "to cut shop/younger (given the address according to n2) off; it runs on without a network"},
	}
	for name, test := range tests {
		c := situation(test.change)
		if got := test.text(c); got != test.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, test.want)
		}
		x, y := &c.Holders[0], &c.Holders[1]
		x.Pod, x.Node, y.Pod, y.Node = y.Pod, y.Node, x.Pod, x.Node
		if test.text(c) == test.want {
			t.Errorf("%s: the same sentence with the holders exchanged", name)
		}
	}
}

// TestSentencesAboutAll: some sentences treat all holders alike.
func TestSentencesAboutAll(t *testing.T) {
	for want, change := range map[string]func(*document.Conflict, *document.Advice){
		"2 of 2 holders are left over: the runtime says that their sandboxes have stopped.": func(_ *document.Conflict, a *document.Advice) {
			a.Remove[0].Because, a.Remove[1].Because = "stopped", "stopped"
		},
		"It is not known which is newer: they came within a second.":                                                       notKnown("together"),
		"It is not known which is newer: their sandboxes were made in another order than they were seen with the address.": notKnown("another-order"),
		"It is not known which is newer: they were there before their agents.":                                             notKnown("found-at-start", 0, 1),
	} {
		if got := Situation(situation(change)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, reason := range []string{"found-at-start", "of tomorrow"} { // a reason that names no holder is about all of them
		if got, want := Situation(situation(notKnown(reason))), "It is not known which is newer: they were there before their agents."; got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
	if got, want := HeldReason(situation(held("of tomorrow", 0))), "Nothing is to be removed now."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestEachMayBeWrong: commands say what they do where all are listed although several holders were given the address.
func TestEachMayBeWrong(t *testing.T) {
	given := func(first, second bool) func(*document.Conflict, *document.Advice) {
		return func(c *document.Conflict, a *document.Advice) {
			notKnown("together")(c, a)
			is := map[bool]detector.Given{true: detector.GivenYes, false: detector.GivenNo}
			c.Holders[0].Given, c.Holders[1].Given = is[first], is[second]
		}
	}
	newest := func(c *document.Conflict, a *document.Advice) {
		given(true, true)(c, a)
		a.Remove[0].Because = "newer"
	}
	choice := func(c *document.Conflict, a *document.Advice) {
		newest(c, a)
		a.GivenByNodes = true
	}
	for name, test := range map[string]struct {
		change func(*document.Conflict, *document.Advice)
		want   bool
	}{
		"both were given it":               {given(true, true), true},
		"one was":                          {given(true, false), false},
		"one is to be removed first":       {newest, false},
		"the newer one by its node's word": {choice, true},
		"nothing is known":                 {notKnown("together"), false},
	} {
		if got := EachMayBeWrong(situation(test.change)); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
