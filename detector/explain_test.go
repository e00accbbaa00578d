package detector

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func (w *world) notes() []string {
	var list []string
	for _, s := range w.d.Explain(defaultIP) {
		for _, n := range s.Notes {
			name := w.name(n.Holder.ID)
			if name == "" {
				name = "-"
			}
			list = append(list, fmt.Sprintf("%s %s %s: %s", w.since(n.At), name, n.Kind, n.Text))
		}
	}
	return list
}

func TestExplainTellsTheStory(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		10s b sends
		11.5s b changes-mac
		11.5s b announces
		40s b gone
		50s c guarded 5s it is probing
		50s c forges
		60s r forwards`, time.Second)
	want := []string{
		"0s a seen: first seen: announced on veth1",
		"10s b seen: first seen: data on veth2",
		"10s - conflict: suspected: b has it too (data)",
		"10s a solicited: probed to verify in round 1",
		"10s b solicited: probed to verify in round 1",
		"10s a answered: answered in round 1 after 0.1 ms",
		"10s b evidence: evidence now announced, was data",
		"10s b answered: answered in round 1 after 0.1 ms",
		"11s a solicited: probed to verify in round 2",
		"11s b solicited: probed to verify in round 2",
		"11s a answered: answered in round 2 after 0.1 ms",
		"11s b answered: answered in round 2 after 0.1 ms",
		"11s - conflict: confirmed: 2 live holders answered both rounds 1.0 s apart",
		"11.5s b seen: MAC changed from 02:00:00:00:00:02 to 02:00:00:00:00:66",
		"36s b solicited: probed to re-check (5 times)",
		"36s b answered: answered the re-check after 0.1 ms (5 times)",
		"40s b withdrawn: withdrawn: interface is gone",
		"41s a solicited: probed to re-check (6 times)",
		"41s a answered: answered the re-check after 0.1 ms (6 times)",
		"43s - conflict: resolved: b withdrawn: interface is gone",
		"50s c seen: first seen: announced on veth3",
		"50s - conflict: suspected: c has it too (announced)",
		"50s a solicited: probed to verify in round 1",
		"50s c not-solicited: not probed: it is probing",
		"50s a answered: answered in round 1 after 0.1 ms",
		"55.3s c solicited: probed to verify in round 1 (3 times)",
		"56s c unanswered: did not answer in round 1",
		"56s - conflict: faded: c did not answer",
		"60s r seen: first seen: forwarded on veth4",
	}
	for i := range want {
		want[i] = fixMinutes(want[i])
	}
	if diff := cmp.Diff(want, w.notes()); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	s := w.d.Explain(defaultIP)[0]
	if s.Conflict == nil || s.Conflict.State != Resolved || len(s.Conflict.Holders) != 2 {
		t.Errorf("conflict %+v", s.Conflict)
	}
	if got, want := s.Verdict, "one live holder: not a conflict; the last suspicion faded because c did not answer; "+
		"also forwarded by r: not counted"; got != want {
		t.Errorf("verdict %q, want %q", got, want)
	}
}

func fixMinutes(s string) string {
	if len(s) > 3 && s[:3] == "60s" {
		return "1m0s" + s[3:]
	}
	return s
}

// An hour of re-checks does not remove the beginning of the story.
func TestRechecksDoNotPushTheStoryOut(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces`, time.Hour)
	notes := w.notes()
	if notes[0] != "0s a seen: first seen: announced on veth1" || len(notes) != 16 {
		t.Errorf("%d notes, the first %q", len(notes), notes[0])
	}
}

// A holder that changes its MAC again and again does not remove the beginning either.
func TestMACsDoNotPushTheStoryOut(t *testing.T) {
	w := newWorld(t, Options{})
	for range 50 {
		w.do("0s a announces")
		w.do("0s a changes-mac")
	}
	notes := w.notes()
	want := []string{
		"0s a seen: first seen: announced on veth1",
		"0s a seen: MAC changed from 02:00:00:00:00:c1 to 02:00:00:00:00:25 (49 times)",
	}
	if diff := cmp.Diff(want, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestVerdicts(t *testing.T) {
	tests := []struct{ script, want string }{
		{`0s b guarded 10s it is probing
			0s a announces
			0s b announces`, "two holders, one is not probed yet (it is probing): suspected, not confirmed"},
		{`0s a announces
			0s b announces`, "two holders, being verified: suspected, not confirmed"},
		{`0s a announces
			0s b announces
			5s b gone`, "two holders answered both rounds 1.0 s apart: a conflict; one live holder is left; " +
			"it is about to end because b withdrawn: interface is gone"},
		{`0s a announces
			0s b announces
			5s c forges`, "two live holders answered both rounds 1.0 s apart: a conflict; not verified yet: c"},
		{`0s a forwards
			0s b forwards
			0s c forwards
			0s d forwards
			0s e forwards`, "known only as forwarded by a, b, c and 2 more: not counted"},
		{`0s b guarded because
			0s a announces
			0s b announces
			0s agent shares`, "two live holders, but declared shared: not a conflict"},
		{`0s host1 announces
			0s host2 sends
			0s host2 announces`, "two nodes have it as their own address, and not on one segment as far as is known: not a conflict; the last suspicion faded because " +
			"only nodes' own addresses are left"},
	}
	for _, tt := range tests {
		w := newWorld(t, Options{})
		w.play(tt.script, 500*time.Millisecond)
		if got := w.verdict(); got != tt.want {
			t.Errorf("%s\nverdict %q, want %q", tt.script, got, tt.want)
		}
	}
}

// The same address in two networks makes two stories and no conflict.
func TestNetworksAreApart(t *testing.T) {
	w := newWorld(t, Options{})
	w.do("0s a announces")
	blue := w.actor("b").sighting(defaultIP, Announced, w.now)
	blue.Key.Network = "blue"
	w.apply(w.d.Observe(blue, w.now))
	stories := w.d.Explain(defaultIP)
	if len(stories) != 2 || stories[0].Key.Network != "blue" || stories[1].Key.Network != "default" {
		t.Fatalf("stories %+v", stories)
	}
	if len(w.log()) != 0 {
		t.Errorf("events %v", w.log())
	}
	if got := w.d.Explain(ipv4(99)); got != nil {
		t.Errorf("stories of an unknown address: %+v", got)
	}
}

// A remote holder without a name is shown without one.
func TestRemoteHolderInTheStory(t *testing.T) {
	w := newWorld(t, Options{})
	a, b := w.actor("a"), w.actor("b@n2")
	w.d.Observe(a.sighting(defaultIP, Announced, w.now), w.now)
	nameless := b.sighting(defaultIP, Announced, w.now)
	nameless.Holder = Holder{ID: b.id}
	fx := w.d.Observe(nameless, w.now)
	for _, s := range fx.Probes {
		if s.Holder == b.id {
			w.d.Probed(s, Result{Outcome: Unreachable}, w.now)
		}
	}
	var got []string
	for _, n := range w.d.Explain(defaultIP)[0].Notes {
		if n.Holder.ID != a.id {
			got = append(got, n.Text)
		}
	}
	want := []string{
		"first seen: announced, as its node reports",
		"suspected: a holder on node n2 has it too (announced)",
		"a probe request was sent to its node in round 1",
		"not verified: node n2 does not answer",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// The other node has the name of this one and another boot id.
func TestRemoteHolderOfANamesake(t *testing.T) {
	w := newWorld(t, Options{Node: "n1/89abcdef-0"})
	w.do("0s a announces " + defaultIP.String())
	w.run(w.now.Add(time.Second))
	other := Sighting{
		Key: Key{"default", defaultIP}, Evidence: Announced, At: w.now,
		Holder: Holder{ID: HolderID{Node: "n1/01234567-89", Netns: 7}},
	}
	fx := w.d.Observe(other, w.now)
	for _, s := range fx.Probes {
		if s.Holder == other.Holder.ID {
			w.d.Probed(s, Result{Outcome: Unreachable}, w.now)
		}
	}
	var got []string
	for _, n := range w.d.Explain(defaultIP)[0].Notes {
		got = append(got, n.Text)
	}
	for _, want := range []string{
		"suspected: a holder on node n1 (boot 01234567) has it too (announced)", "not verified: node n1 (boot 01234567) does not answer",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("notes %q, want %q", got, want)
		}
	}
}

// The notes of a holder keep its name when it is gone, also if the name came after the first of them, and as long as there
// are notes.
func TestNamesOfHoldersThatAreGone(t *testing.T) {
	w := newWorld(t, Options{})
	a := w.actor("a")
	for n := range 3 * maxNotes {
		w.d.Observe(a.sighting(defaultIP, Announced, w.now), w.now)
		b := w.actor("b@n2")
		b.id.Netns = uint64(1000 + n) // another pod each time
		w.d.Observe(b.sighting(defaultIP, Announced, w.now), w.now)
		name := Pod{Namespace: "shop", Name: fmt.Sprint("web-", n)}
		w.d.Describe(b.id, func(_ Key, h *Holder) { h.Pod, h.NetnsName = name, "cni-1" }, w.now)
		w.d.Withdraw(Key{"default", defaultIP}, b.id, "its node: it has gone", w.now)
		w.run(w.now.Add(time.Second))
		noted := 0
		for _, note := range w.d.Explain(defaultIP)[0].Notes {
			if note.Holder.ID == b.id {
				noted++
				if h := note.Holder; h.Pod != name || h.NetnsName != "cni-1" {
					t.Errorf("%q is about %v in %q", note.Text, h.Pod, h.NetnsName)
				}
			}
		}
		if noted < 2 {
			t.Fatalf("%d notes of the holder", noted)
		}
	}
	if e := w.d.table.entries[Key{"default", defaultIP}]; len(e.former) > maxNotes {
		t.Errorf("%d names are kept", len(e.former))
	}
	w.mustAudit()
}

// A holder that has left its bridge has none; one on another node has the last that its node sent.
func TestBridgeThatWasLeft(t *testing.T) {
	for name, want := range map[string]string{"a": "", "b@n2": "shop"} {
		w := newWorld(t, Options{Node: "n1"})
		w.d.Observe(w.actor("c").sighting(defaultIP, Announced, w.now), w.now)
		holder := w.actor(name)
		for _, bridge := range []string{"shop", ""} {
			s := holder.sighting(defaultIP, Announced, w.now)
			s.Holder.Bridge = bridge
			w.d.Observe(s, w.now)
		}
		for _, b := range w.d.Explain(defaultIP)[0].Bindings {
			if b.Holder.ID == holder.id && b.Holder.Bridge != want {
				t.Errorf("%s: bridge %q, want %q", name, b.Holder.Bridge, want)
			}
		}
	}
}
