package events

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/judge"
	"github.com/dupip/dupip/document/say"
)

// given makes a conflict in which a was not given the address, and b was. Of by's own holder there are facts.
func (w *world) given(n int, by string) document.Conflict {
	c := w.conflict(n, detector.Confirmed)
	for i := range c.Holders {
		b := &c.Holders[i]
		b.FirstSeen = w.now
		if b.Node != by {
			b.Facts = nil
		} else if b.Given = detector.GivenYes; i == 0 {
			b.Given, b.Facts.GivenOthers = detector.GivenNo, []netip.Addr{netip.MustParseAddr("10.0.9.9")}
		}
	}
	return c
}

// notes are those of the Events about pods, by pod.
func (w *world) notes() map[string]string {
	notes := make(map[string]string)
	for _, e := range w.api {
		if e.Reason == ReasonDuplicate {
			notes[e.Regarding.Name] = e.Note
		}
	}
	return notes
}

// short returns the short form of the first judgement.
func (w *world) short() Judgement {
	w.Helper()
	all := w.p.Judgements(w.now)
	if len(all) == 0 {
		w.Fatal("nothing is judged")
	}
	return all[0]
}

// An Event has the short form of the judgement of all nodes' facts, and is not written before they have come.
func TestJudgement(t *testing.T) {
	w := newWorld(t)
	c := w.given(1, "red")
	w.report(w.p, "red", c)
	w.run(2 * time.Second)
	w.expect("blue's facts are on their way", "")
	if j := w.p.Judgements(w.now); len(j) != 0 {
		t.Errorf("judged without them: %+v", j)
	}
	all := c
	all.Holders = []document.Binding{c.Holders[0], w.given(1, "blue").Holders[1]}
	w.report(w.p, "blue", w.given(1, "blue"))
	w.run(judgedEvery)
	w.expect("they have come", "DuplicateIP a1, DuplicateIP b1")
	all.Judgement = judge.Of(all, judge.Context{Now: w.now})
	say.Fill(&all, nil)
	for pod, other := range map[string]string{"a1": "b1 on node blue", "b1": "a1 on node red"} {
		want := "pod shop/" + other + " also has this pod's address 10.0.0.1; packets to it may reach the other one. " +
			all.Judgement.Short + " What to do: kubectl dupip explain 10.0.0.1"
		if got := w.notes()[pod]; got != want {
			t.Errorf("of %s: %q, want %q", pod, got, want)
		}
	}
	want := Judgement{"default", "10.0.0.1", document.CauseByHand, document.Likely, all.Judgement.Short}
	if got := w.p.Judgements(w.now); len(got) != 1 || got[0] != want {
		t.Errorf("judged: %+v, want %+v", got, want)
	}
	for _, node := range []string{"red", "blue"} {
		w.report(w.p, node, w.conflict(1, detector.Resolved))
	}
	w.run(judgedEvery)
	if got := w.p.Judgements(w.now); len(got) != 0 {
		t.Errorf("after its end: %+v", got)
	}
}

// A replica that starts hears of an old conflict from one node after the other: what it says of it waits as for a new one.
func TestJudgementAfterStart(t *testing.T) {
	w := newWorld(t)
	red, blue := w.given(1, "red"), w.given(1, "blue")
	w.run(time.Hour)
	w.report(w.p, "red", red)
	w.run(2 * time.Second)
	w.expect("one node", "")
	if got := w.p.Judgements(w.now); len(got) != 0 {
		t.Errorf("of one node: %+v", got)
	}
	w.report(w.p, "blue", blue)
	w.run(time.Second)
	w.expect("both", "DuplicateIP a1, DuplicateIP b1")
	w.run(judgedEvery)
	if j, note := w.short(), w.notes()["b1"]; j.Cause != document.CauseByHand || !strings.Contains(note, j.Text) {
		t.Errorf("%+v, %q", j, note)
	}
}

// The reporter waits once for facts that do not come, not again for each later holder.
func TestFactsThatDoNotCome(t *testing.T) {
	w := newWorld(t)
	begin := w.now
	w.report(w.p, "red", w.given(1, "red"))
	third := w.given(2, "red")
	for n := range uint64(5) {
		third.Holders = append(third.Holders[:2], holder("blue", fmt.Sprint("new", n), 100+n))
		third.Holders[2].Facts, third.Holders[2].FirstSeen = nil, w.now
		w.report(w.p, "red", third)
		w.run(time.Second)
	}
	for pod, late := range map[string]time.Duration{"a1": 0, "b1": 0, "a2": 0, "b2": 0, "new4": 0} {
		if pod == "new4" {
			w.run(factsTime)
			late = 4 * time.Second
		}
		if at := w.at["DuplicateIP "+pod].Sub(begin) - late; at < factsTime || at > factsTime+200*time.Millisecond {
			t.Errorf("the Event of %s comes after %v, want %v", pod, at, factsTime)
		}
	}
	notes := w.notes()
	if j := w.short(); j.IP != "10.0.0.1" || j.Cause != document.CauseUnknown || !strings.Contains(notes["a1"], j.Text) {
		t.Errorf("without facts: %+v, %q", j, notes["a1"])
	}
	if !strings.Contains(notes["a2"], "reach the other one. What to do: ") {
		t.Errorf("while others come: %q", notes["a2"])
	}
}

// What holds for minutes only is in no Event: it stays for an hour.
func TestUnreachable(t *testing.T) {
	w := newWorld(t)
	c := w.given(1, "red")
	c.Holders[1].Unreachable = true
	w.report(w.p, "red", c)
	w.run(factsTime)
	if got := w.notes()["a1"]; !strings.HasSuffix(got, "; packets to it may reach the other one. What to do: kubectl dupip explain 10.0.0.1") {
		t.Errorf("%q", got)
	}
	if j := w.short(); j.Cause != document.CauseUnreachable || j.Text == "" {
		t.Errorf("%+v", j)
	}
}

// That two machines have one name is known from gossip, too: no Event says which pod has to go then.
func TestJudgementOfNamesakes(t *testing.T) {
	w := newWorld(t)
	twice := agents("red/boot", "red/later", "blue/boot")
	twice[0].Namesake, twice[1].Namesake = true, true
	w.p.Members(twice, w.now)
	w.report(w.p, "red", w.given(1, "red"))
	w.report(w.p, "blue", w.given(1, "blue"))
	w.run(factsTime)
	j := w.short()
	for pod, note := range w.notes() {
		if j.Cause != document.CauseNamesakes || !strings.Contains(note, j.Text) {
			t.Errorf("of %s: %q, not %+v", pod, note, j)
		}
	}
	w.expect("written", "DuplicateIP a1, DuplicateIP b1")
}

// The command is there, however long the names are.
func TestLongNames(t *testing.T) {
	w := newWorld(t)
	c := w.given(1, "red")
	c.Holders[0].Facts, c.Network = nil, strings.Repeat("n", 253)
	for i := range c.Holders {
		c.Holders[i].Pod.Namespace = strings.Repeat("s", 63)
		c.Holders[i].Pod.Name += strings.Repeat("o", 240)
		c.Holders[i].Node = strings.Repeat("m", 240) + c.Holders[i].Node
	}
	w.report(w.p, c.Holders[0].Node, c)
	w.run(factsTime + time.Second)
	for _, note := range w.notes() {
		if len(note) > maxNote || !strings.HasSuffix(note, "… What to do: kubectl dupip explain 10.0.0.1") {
			t.Errorf("%d bytes: %q", len(note), note)
		}
	}
	if got := w.p.Judgements(w.now); len(w.notes()) != 2 || len(got) != 1 || len(got[0].Network) > maxNetwork || len(got[0].Text) > maxShort {
		t.Errorf("%d Events, %+v", len(w.notes()), got)
	}
}

// Of a network the oldest conflicts are judged, and of all networks not more than a hundred.
func TestJudgementBounds(t *testing.T) {
	w := newWorld(t)
	for n := range 3 * maxJudgedOf {
		w.now = w.now.Add(-time.Second) // the later, the older
		c := w.conflict(n, detector.Confirmed)
		w.report(w.p, "red", c)
	}
	w.run(time.Minute)
	got := w.p.Judgements(w.now)
	if len(got) != maxJudgedOf || got[0].IP != "10.0.0.29" || got[maxJudgedOf-1].IP != "10.0.0.20" {
		t.Errorf("%+v", got)
	}
	for n := range 2 * maxJudged {
		c := w.conflict(1000+n, detector.Confirmed)
		c.Network = strings.Repeat("x", maxNetwork) + fmt.Sprint(n/2) // cut, they are one
		if n >= maxJudged {
			c.Network = fmt.Sprint(n)
		}
		w.report(w.p, "red", c)
	}
	w.run(factsTime + judgedEvery)
	got = w.p.Judgements(w.now)
	slices.SortFunc(got, func(a, b Judgement) int { return strings.Compare(a.Network+a.IP, b.Network+b.IP) })
	if unique := slices.CompactFunc(slices.Clone(got), func(a, b Judgement) bool { return a.Network == b.Network && a.IP == b.IP }); len(got) != maxJudged || len(unique) != len(got) {
		t.Errorf("%d judged, %d of them with labels of their own", len(got), len(unique))
	}
}
