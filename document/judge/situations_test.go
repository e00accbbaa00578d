package judge

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// holder returns a live pod that was given the address, n minutes ago.
func holder(node, name string, minutes int) document.Binding {
	seen := now.Add(-time.Duration(minutes) * time.Minute)
	return document.Binding{
		Network: "default", IP: at, Evidence: detector.Announced, FirstSeen: seen, Facts: &document.Facts{Behind: document.BehindRunning, CNINetwork: "pods"},
		Holder: document.Holder{
			Node: node, BootID: "boot-" + node, NetnsCookie: uint64(minutes), Given: detector.GivenYes,
			Pod: &document.Pod{Namespace: "shop", Name: name, UID: "uid-" + name, Sandbox: "sandbox-" + name, CreatedAt: seen.Add(-time.Second)},
		},
	}
}

// machine is an address of a node itself, with a lifetime or without.
func machine(node string, minutes int, dynamic bool) document.Binding {
	b := holder(node, "", minutes)
	b.Pod, b.Evidence, b.Given = nil, detector.Host, detector.GivenUnknown
	b.Facts = &document.Facts{Machine: &document.Machine{Device: "eth1", Prefix: netip.PrefixFrom(at, 24), Dynamic: dynamic, Since: b.FirstSeen}}
	return b
}

func given(b document.Binding, given detector.Given) document.Binding {
	b.Given = given
	return b
}

func behindIt(b document.Binding, is document.Behind) document.Binding {
	b.Facts = &document.Facts{Behind: is}
	return b
}

// changed returns a holder with other facts than those of [holder], which are its own.
func changed(b document.Binding, change func(*document.Binding)) document.Binding {
	if b.Pod != nil {
		b.Pod = new(*b.Pod)
	}
	b.Facts = new(*b.Facts)
	change(&b)
	return b
}

func book(node, sandbox string) document.Book {
	b := document.Book{Node: node, BootID: "boot-" + node, Kind: "host-local", CNINetwork: "pods", Covers: true}
	if sandbox != "" {
		b.Reservation = &document.Reservation{Sandbox: sandbox}
	}
	return b
}

// TestSituations judges the situations that people meet.
func TestSituations(t *testing.T) {
	pair := func(a, b document.Binding) []document.Binding { return []document.Binding{a, b} }
	old, young := holder("n1", "old", 60), holder("n1", "young", 5)
	others := holder("n1", "other", 60)
	others.Given, others.Facts = detector.GivenUnknown, &document.Facts{Behind: document.BehindRunning, GivenOthers: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	lost := holder("n2", "far", 5)
	lost.Unreachable = true
	bare := holder("n2", "bare", 5)
	bare.Facts = nil
	silent := behindIt(lost, document.BehindRunning)
	second := book("n1", "")
	second.CNINetwork = "other"
	third, elsewhere, unreadable := book("n1", "sandbox-third"), second, second
	elsewhere.Covers, unreadable.Covers, unreadable.Error = false, false, "permission denied"
	gone := changed(young, func(b *document.Binding) { b.Gone = true })
	heir := changed(young, func(b *document.Binding) { b.Pod.Name = "old" })
	noUID := func(b document.Binding) document.Binding {
		return changed(b, func(b *document.Binding) { b.Pod.UID = "" })
	}
	process := changed(given(holder("n2", "", 5), detector.GivenNo), func(b *document.Binding) { b.Pod, b.Facts.Behind = nil, document.BehindAlive })
	unnamed := changed(given(young, detector.GivenNo), func(b *document.Binding) { b.Pod = nil })
	noSandbox := func(b document.Binding) document.Binding {
		return changed(b, func(b *document.Binding) { b.Pod.Sandbox = "" })
	}
	atOnce := func(dynamic bool, later time.Duration) document.Binding { // an address of a node, so long after old was made
		return changed(machine("n1", 60, dynamic), func(b *document.Binding) {
			b.Facts.Machine = new(*b.Facts.Machine)
			b.Facts.Machine.Since = old.Pod.CreatedAt.Add(later)
		})
	}
	sinceUnknown := changed(machine("n2", 5, true), func(b *document.Binding) {
		b.Facts.Machine = new(*b.Facts.Machine)
		b.Facts.Machine.Since = time.Time{}
	})
	byHand := func(seen time.Duration, found bool) document.Binding { // seen so long after old
		return changed(given(young, detector.GivenNo), func(b *document.Binding) { b.FirstSeen, b.FoundAtStart = old.FirstSeen.Add(seen), found })
	}
	several := func(sandboxes ...string) document.Book {
		b := book("n1", "")
		b.Reservation = &document.Reservation{Sandboxes: sandboxes}
		return b
	}
	clone, namesake := holder("n2", "old", 5), holder("n1", "young", 5)
	clone.Pod.UID = "uid-old"
	namesake.BootID = "another"
	for _, c := range []struct {
		name       string
		holders    []document.Binding
		books      []document.Book
		shared     int
		cause      string
		verdicts   string // of each holder
		confidence string
	}{
		{"a sandbox that the runtime has forgotten", pair(behindIt(old, document.BehindForgotten), young), []document.Book{book("n1", "sandbox-young")}, 0, document.CauseLeftOver, "remove forgotten, keep last", document.Certain},
		{"a stopped sandbox, and a pod of which nothing is known", pair(behindIt(old, document.BehindStopped), behindIt(young, "")), nil, 0, document.CauseLeftOver, "remove stopped, open", document.Certain},
		{"two nodes with one address", pair(machine("n1", 60, false), machine("n2", 5, false)), nil, 0, document.CauseTwoNodes, "open, open", document.Undecided},
		{"a node's younger address with a lifetime", pair(old, machine("n1", 5, true)), nil, 0, document.CauseNodeAddress, "keep given, remove lifetime", document.Certain},
		{"a node's older address with a lifetime", pair(machine("n1", 60, true), young), nil, 0, document.CauseNodeAddress, "keep node, remove on-node", document.Certain},
		{"a node's younger address, permanent", pair(old, machine("n2", 5, false)), nil, 0, document.CauseNodeAddress, "remove on-node, keep node", document.Likely},
		{"a node's younger address, and a pod of which nothing is known", pair(given(old, detector.GivenUnknown), machine("n1", 5, true)), nil, 0, document.CauseNodeAddress, "open, open", document.Undecided},
		{"a pod that was given another address", pair(others, young), nil, 0, document.CauseByHand, "remove not-given, keep given", document.Likely},
		{"an address taken by hand", pair(old, given(young, detector.GivenNo)), nil, 0, document.CauseByHand, "keep given, remove not-given", document.Certain},
		{"two addresses taken by hand", pair(given(old, detector.GivenNo), given(young, detector.GivenNo)), nil, 0, document.CauseByHand, "keep older, remove newer", document.Likely},
		{"two nodes with one range", pair(old, holder("n2", "far", 5)), []document.Book{book("n1", "sandbox-old"), book("n2", "sandbox-far")}, 0, document.CauseSharedRange, "open, open", document.Undecided},
		{"two nodes that share many addresses", pair(old, holder("n2", "far", 5)), nil, 9, document.CauseSharedRange, "open, open", document.Undecided},
		{"a reservation that moved to the newcomer", pair(old, young), []document.Book{book("n1", "sandbox-young")}, 0, document.CauseLost, "remove not-reserved, keep reserved", document.Certain},
		{"a reservation that stays with the older one", pair(old, young), []document.Book{book("n1", "sandbox-old")}, 0, document.CauseLost, "keep reserved, remove not-reserved", document.Certain},
		{"a reservation of nobody", pair(old, young), []document.Book{book("n1", "")}, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"a reservation of one of the networks that give out the range", pair(old, young), []document.Book{book("n1", "sandbox-young"), second}, 0, document.CauseSharedRange, "open, open", document.Undecided},
		{"a reservation, and a pod of another node that was given the address, too", append(pair(old, young), holder("n2", "far", 3)), []document.Book{book("n1", "sandbox-young"), book("n2", "sandbox-far")}, 0, document.CauseSharedRange, "open, open, open", document.Undecided},
		{"a stopped sandbox, and a node that does not answer", pair(behindIt(old, document.BehindStopped), silent), nil, 0, document.CauseLeftOver, "remove stopped, open", document.Certain},
		{"a reservation, and a network that does not give out the range", pair(old, young), []document.Book{book("n1", "sandbox-young"), elsewhere}, 0, document.CauseLost, "remove not-reserved, keep reserved", document.Certain},
		{"a reservation, and a pod that another network gave the address, whose book is not read", pair(old, changed(young, func(b *document.Binding) { b.Facts.CNINetwork = "other" })), []document.Book{book("n1", "sandbox-old")}, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"a reservation for a pod that is in another network", pair(old, changed(young, func(b *document.Binding) { b.Facts.CNINetwork = "other" })), []document.Book{book("n1", "sandbox-young")}, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"a reservation in another network's book", pair(old, young), []document.Book{{Node: "n1", BootID: "boot-n1", CNINetwork: "other", Reservation: &document.Reservation{Sandbox: "sandbox-old"}}}, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"a reservation, and pods whose networks are not known", pair(behindIt(old, document.BehindRunning), behindIt(young, document.BehindRunning)), []document.Book{book("n1", "sandbox-old")}, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"a reservation, and a book that cannot be read", pair(old, young), []document.Book{book("n1", "sandbox-young"), unreadable}, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"a reservation of a third sandbox", pair(old, young), []document.Book{third}, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"a reservation for two interfaces of one sandbox", pair(old, changed(young, func(b *document.Binding) { b.Pod.Sandbox = "sandbox-old" })), []document.Book{book("n1", "sandbox-old")}, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"a reservation, and a holder whose sandbox is not known", pair(noSandbox(old), young), []document.Book{book("n1", "sandbox-young")}, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"a reservation without a sandbox yet, and a holder whose sandbox is not known", pair(old, noSandbox(young)), []document.Book{{Node: "n1", BootID: "boot-n1", Covers: true, Reservation: &document.Reservation{}}}, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"a reservation, and a node's address of unknown age", append(pair(old, young), sinceUnknown), []document.Book{book("n1", "sandbox-young")}, 0, document.CauseNodeAddress, "remove not-reserved, open, open", document.Undecided},
		{"a pod in whose place another one was made", pair(old, heir), []document.Book{book("n1", "sandbox-young")}, 0, document.CauseLeftOver, "remove replaced, keep reserved", document.Certain},
		{"a pod in whose place another one was made, and one of another node", append(pair(old, heir), holder("n2", "far", 3)), []document.Book{book("n1", "sandbox-young"), book("n2", "sandbox-far")}, 0, document.CauseSharedRange, "remove replaced, open, open", document.Undecided},
		{"an address taken by hand, reserved for a third sandbox", pair(old, given(young, detector.GivenNo)), []document.Book{third}, 0, document.CauseByHand, "keep given, remove not-given", document.Certain},
		{"an address taken by hand, and a reservation without a sandbox yet", pair(noSandbox(old), given(young, detector.GivenNo)), []document.Book{{Node: "n1", BootID: "boot-n1", Covers: true, Reservation: &document.Reservation{}}}, 0, document.CauseByHand, "keep given, remove not-given", document.Certain},
		{"two addresses taken by hand at about the same time", pair(given(old, detector.GivenNo), byHand(tolerance/2, false)), nil, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"two addresses taken by hand, one found when the agent started", pair(given(old, detector.GivenNo), byHand(time.Minute, true)), nil, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"an address taken by hand, and a node's younger one", pair(given(old, detector.GivenNo), machine("n1", 5, true)), nil, 0, document.CauseNodeAddress, "remove on-node, keep node", document.Certain},
		{"a node's address of unknown age", pair(old, sinceUnknown), nil, 0, document.CauseNodeAddress, "open, open", document.Undecided},
		{"a node's address just before the pod", pair(old, atOnce(true, -tolerance/2)), nil, 0, document.CauseNodeAddress, "open, open", document.Undecided},
		{"a node's address just after the pod", pair(old, atOnce(true, tolerance/2)), nil, 0, document.CauseNodeAddress, "open, open", document.Undecided},
		{"a process on another node", pair(old, process), nil, 0, document.CauseByHand, "keep given, remove not-given", document.Likely},
		{"an address taken by hand, and a pod that the runtime does not list", pair(behindIt(old, document.BehindAlive), given(young, detector.GivenNo)), nil, 0, document.CauseByHand, "keep given, remove not-given", document.Certain},
		{"an address taken by hand, and a pod that CNI's result has no more", pair(given(others, detector.GivenYes), given(young, detector.GivenNo)), nil, 0, document.CauseByHand, "keep given, remove not-given", document.Certain},
		{"a node's permanent address, also taken by hand", append(pair(old, given(young, detector.GivenNo)), machine("n1", 5, false)), nil, 0, document.CauseNodeAddress, "remove on-node, remove not-given, keep node", document.Certain},
		{"a reservation that moved to a pod of that name in another namespace", pair(old, changed(heir, func(b *document.Binding) { b.Pod.Namespace = "test" })), []document.Book{book("n1", "sandbox-young")}, 0, document.CauseLost, "remove not-reserved, keep reserved", document.Certain},
		{"a reservation that moved, of pods without names", pair(changed(old, func(b *document.Binding) { b.Pod.Name = "" }), changed(young, func(b *document.Binding) { b.Pod.Name = "" })), []document.Book{book("n1", "sandbox-young")}, 0, document.CauseLost, "remove not-reserved, keep reserved", document.Certain},
		{"a pod without a name yet on one node", pair(old, unnamed), nil, 0, document.CauseByHand, "keep given, remove not-given", document.Certain},
		{"a pod that has gone", pair(old, gone), nil, 0, document.CauseEnding, "keep last, remove gone", document.Certain},
		{"pods of one name on two nodes", pair(old, changed(clone, func(b *document.Binding) { b.Pod.UID = "another" })), nil, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"pods of one name and without UIDs on two nodes", pair(noUID(old), noUID(clone)), nil, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"a book that has it for a dead sandbox, too", pair(old, young), []document.Book{several("sandbox-third", "sandbox-young")}, 0, document.CauseLost, "remove not-reserved, keep reserved", document.Certain},
		{"a book that has it for both", pair(old, young), []document.Book{several("sandbox-old", "sandbox-young")}, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"two nodes, one of which gives out the range", pair(old, holder("n2", "far", 5)), []document.Book{book("n1", "sandbox-old"), {Node: "n2", BootID: "boot-n2"}}, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"two nodes that share few addresses", pair(old, holder("n2", "far", 5)), nil, document.FewShared, document.CauseUnknown, "open, open", document.Undecided},
		{"one node of two that share many addresses", pair(old, young), nil, 9, document.CauseUnknown, "open, open", document.Undecided},
		{"a book that was not read", pair(old, young), nil, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"another node's book that was not read", pair(old, holder("n2", "far", 5)), nil, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"a node that does not answer", pair(old, lost), nil, 0, document.CauseUnreachable, "open, open", document.Undecided},
		{"facts that another node has not told", pair(given(old, detector.GivenNo), bare), nil, 0, document.CauseUnknown, "open, open", document.Undecided},
		{"one pod on two nodes", pair(old, clone), nil, 0, document.CauseClone, "open, open", document.Undecided},
		{"two nodes of one name", pair(behindIt(old, document.BehindStopped), namesake), nil, 0, document.CauseNamesakes, "open, open", document.Undecided},
	} {
		conflict := document.Conflict{Network: "default", IP: at, State: detector.Confirmed, ConfirmedAt: now.Add(-4 * time.Minute), Holders: c.holders, Books: c.books, Shared: c.shared}
		j := Of(conflict, ctx)
		if got := verdicts(j); got != c.verdicts || j.Cause != c.cause || j.Confidence != c.confidence {
			t.Errorf("%s: %s, %s, %s; want %s, %s, %s", c.name, j.Cause, got, j.Confidence, c.cause, c.verdicts, c.confidence)
		}
		conflict.State, conflict.ResolvedAt = detector.Resolved, now
		if j := Of(conflict, ctx); c.cause != document.CauseUnreachable && c.cause != document.CauseEnding && j.Cause != c.cause {
			t.Errorf("%s, when it is over: %s", c.name, j.Cause)
		}
	}
}

func verdicts(j *document.Judgement) (text string) {
	for n, v := range byHolder(j) {
		if n > 0 {
			text += ", "
		}
		if text += v.Verdict; v.Reason != "" {
			text += " " + v.Reason
		}
	}
	return text
}

// TestByWhom: what decides against a holder only by another node's word is marked with that node, whatever order the holders are in.
func TestByWhom(t *testing.T) {
	byHand := func(node, name string, minutes int) document.Binding {
		return given(holder(node, name, minutes), detector.GivenNo)
	}
	for _, c := range []struct {
		name    string
		holders []document.Binding
		want    string // by whom the last holder goes
	}{
		{"given on another node", []document.Binding{holder("n2", "far", 60), byHand("n1", "young", 5)}, "n2"},
		{"given on its own node, too", []document.Binding{holder("n2", "far", 60), holder("n1", "old", 40), byHand("n1", "young", 5)}, ""},
		{"given on two others", []document.Binding{holder("n3", "other", 60), holder("n2", "far", 40), byHand("n1", "young", 5)}, "n2"},
		{"taken by hand, later than on another node", []document.Binding{byHand("n2", "far", 60), byHand("n1", "young", 5)}, "n2"},
		{"taken by hand, later than on its own node, too", []document.Binding{byHand("n2", "far", 60), byHand("n1", "old", 40), byHand("n1", "young", 5)}, ""},
		{"the address of another node", []document.Binding{machine("n2", 60, true), holder("n1", "young", 5)}, "n2"},
		{"given on another node before this one had it", []document.Binding{holder("n2", "far", 60), machine("n1", 5, true)}, "n2"},
		{"given there and here before this one had it", []document.Binding{holder("n2", "far", 60), holder("n1", "old", 40), machine("n1", 5, true)}, ""},
		{"reserved on its own node", []document.Binding{holder("n1", "old", 60), holder("n1", "young", 5)}, ""},
	} {
		conflict := document.Conflict{
			Network: "default", IP: at, State: detector.Confirmed, ConfirmedAt: now.Add(-4 * time.Minute), Holders: c.holders,
			Books: []document.Book{book("n1", "sandbox-old")},
		}
		last := len(c.holders) - 1
		v := byHolder(Of(conflict, ctx))[last]
		slices.Reverse(conflict.Holders)
		turned := byHolder(Of(conflict, ctx))[0]
		if v.Verdict != document.Remove || v.By != c.want || turned.Verdict != document.Remove || turned.By != c.want {
			t.Errorf("%s: %+v, turned %+v", c.name, v, turned)
		}
	}
}

// TestWaits: no holder is named before the facts of all have come, or three seconds are over.
func TestWaits(t *testing.T) {
	c := document.Conflict{
		Network: "default", IP: at, State: detector.Confirmed, ConfirmedAt: now,
		Holders: []document.Binding{given(holder("n1", "old", 60), detector.GivenNo), holder("n2", "far", 5)},
	}
	c.Holders[1].Facts = nil
	for _, step := range []struct {
		after time.Duration
		cause string
	}{{time.Second, document.CauseComing}, {factsTime, document.CauseUnknown}} {
		if j := Of(c, Context{Now: now.Add(step.after)}); j.Cause != step.cause {
			t.Errorf("after %s: %s", step.after, j.Cause)
		}
	}
	c.Holders[1].Facts = &document.Facts{Behind: document.BehindRunning}
	if j := Of(c, Context{Now: now.Add(time.Second)}); j.Cause != document.CauseByHand {
		t.Errorf("with all facts: %s", j.Cause)
	}
	late := c
	late.ConfirmedAt, late.Holders = now.Add(-time.Hour), append(slices.Clone(c.Holders), holder("n3", "late", 0))
	late.Holders[2].Facts = nil
	if j := Of(late, Context{Now: now.Add(time.Second)}); j.Cause != document.CauseComing {
		t.Errorf("a holder that came late: %s", j.Cause)
	}
	c.Holders[1].Facts = nil
	c.Holders[0].Facts = &document.Facts{Behind: document.BehindStopped}
	if j := Of(c, Context{Now: now.Add(time.Second)}); j.Cause != document.CauseLeftOver {
		t.Errorf("what is left over need not wait: %s", j.Cause)
	}
}

// TestOrder: those that have to go are first, by their reasons, and who stays is last.
func TestOrder(t *testing.T) {
	j := Of(document.Conflict{Network: "default", IP: at, State: detector.Confirmed, ConfirmedAt: now.Add(-time.Minute), Holders: []document.Binding{
		holder("n1", "old", 60), given(holder("n1", "young", 5), detector.GivenNo), behindIt(holder("n1", "left", 70), document.BehindStopped),
		given(holder("n2", "far", 5), detector.GivenUnknown),
	}}, ctx)
	var order []int
	for _, v := range j.Holders {
		order = append(order, v.Holder)
	}
	if !slices.Equal(order, []int{2, 1, 0, 3}) {
		t.Errorf("%v: %+v", order, j.Holders)
	}
}

// TestAround: only live agents are compared.
func TestAround(t *testing.T) {
	away := now.Add(-time.Hour)
	member := func(name string, change func(*cluster.Member)) cluster.Member {
		m := cluster.Member{Name: name, Boot: "boot-" + name, Role: cluster.Agent, State: cluster.Alive, Namesake: true, AwayFrom: away, AwayUntil: now}
		change(&m)
		return m
	}
	c := Around([]cluster.Member{
		member("n1", func(*cluster.Member) {}),
		member("n2", func(m *cluster.Member) { m.Namesake, m.AwayFrom = false, time.Time{} }),
		member("n3", func(m *cluster.Member) { m.State = cluster.Dead }),
		member("n4", func(m *cluster.Member) { m.Role = cluster.Reporter }),
	})
	if want := (Context{Away: map[string][]Away{"n1/boot-n1": {{away, now}}}, Namesakes: map[string]bool{"n1": true}, Doubled: map[string]bool{}}); !reflect.DeepEqual(c, want) {
		t.Errorf("%+v", c)
	}
}

// TestAway: an elder one whose node was lost may have been replaced.
func TestAway(t *testing.T) {
	c := document.Conflict{
		Network: "default", IP: at, State: detector.Confirmed, ConfirmedAt: now.Add(-time.Minute),
		Holders: []document.Binding{holder("n1", "old", 60), holder("n2", "far", 5)},
	}
	lost := Context{Now: now, Away: map[string][]Away{"n1/boot-n1": {{From: now.Add(-10 * time.Minute), Until: now.Add(-time.Minute)}}}}
	j := Of(c, lost)
	if w := j.Away; j.Cause != document.CauseAway || w == nil || w.Elder != 0 || w.Newer != 1 || !slices.Equal(w.Nodes, []string{c.Holders[0].NodeID(), c.Holders[1].NodeID()}) {
		t.Errorf("%+v, %+v", j, w)
	}
	if c.Shared = 9; Of(c, lost).Cause != document.CauseAway {
		t.Errorf("many were replaced: %+v", Of(c, lost))
	}
	for what, away := range map[string]Away{
		"it came later":   {now.Add(-10 * time.Minute), now.Add(-6 * time.Minute)},
		"it came earlier": {c.Holders[1].FirstSeen.Add(noticedWithin + time.Second), now},
	} {
		if j := Of(c, Context{Now: now, Away: map[string][]Away{"n1/boot-n1": {away}}}); j.Cause == document.CauseAway {
			t.Errorf("%s: %+v", what, j)
		}
	}
	began := changed(c.Holders[1], func(b *document.Binding) { b.FirstSeen, b.FoundAtStart = now, true })
	if j := Of(document.Conflict{IP: at, State: detector.Confirmed, Holders: []document.Binding{c.Holders[0], began}}, lost); j.Cause != document.CauseAway {
		t.Errorf("it was made meanwhile, before its agent started: %+v", j)
	}
	noticed := []Away{{c.Holders[1].FirstSeen.Add(noticedWithin / 2), now}}
	if j := Of(c, Context{Now: now, Away: map[string][]Away{"n2/boot-n2": noticed}}); j.Cause != document.CauseAway {
		t.Errorf("the newer one's node was lost, which was noticed later: %+v", j)
	}
	of := Context{Now: now, Away: map[string][]Away{"n1/boot-n1": noticed, "n2/boot-n2": noticed}}
	if c.Holders[1] = holder("n1", "young", 5); Of(c, of).Cause == document.CauseAway {
		t.Errorf("both are on one node: %+v", Of(c, of))
	}
	c.Holders, c.Shared = []document.Binding{given(holder("n1", "old", 60), detector.GivenUnknown), machine("n2", 5, true)}, 0
	if j := Of(c, of); j.Cause != document.CauseNodeAddress {
		t.Errorf("the newer one is a node: %+v", j)
	}
}

// TestOver: a conflict that is over is explained by what was known, also by other nodes.
func TestOver(t *testing.T) {
	old, young := holder("n1", "old", 60), given(holder("n2", "young", 5), detector.GivenNo)
	is := func(b document.Binding, change func(*document.Binding)) document.Binding { return changed(b, change) }
	for _, c := range []struct {
		name            string
		holders         []document.Binding
		cause, verdicts string
	}{
		{"all have gone", []document.Binding{is(old, func(b *document.Binding) { b.Gone = true }), is(young, func(b *document.Binding) { b.Gone = true })}, document.CauseByHand, "keep given, remove not-given"},
		{"the node of the other one did not answer", []document.Binding{behindIt(old, document.BehindStopped), is(young, func(b *document.Binding) { b.Unreachable = true })}, document.CauseLeftOver, "remove stopped, keep last"},
		{"its node has not told", []document.Binding{old, is(young, func(b *document.Binding) { b.Facts = nil })}, document.CauseByHand, "keep given, remove not-given"},
		{"no UID came", []document.Binding{old, is(young, func(b *document.Binding) { b.Pod.UID = "" })}, document.CauseByHand, "keep given, remove not-given"},
	} {
		over := document.Conflict{Network: "default", IP: at, State: detector.Resolved, ConfirmedAt: now, ResolvedAt: now, Holders: c.holders}
		j := Of(over, Context{Now: now, Namesakes: map[string]bool{"n1": true}}) // who has its name now
		if got := verdicts(j); j.Cause != c.cause || got != c.verdicts {
			t.Errorf("%s: %s, %s", c.name, j.Cause, got)
		}
	}
}

// TestDoubled: while two machines have the name of a holder's node, no holder goes, whatever the facts are. What is over stays as it was.
func TestDoubled(t *testing.T) {
	given := holder("n1", "old", 60)
	given.Given = detector.GivenYes
	taken := holder("n2", "far", 5)
	taken.Given = detector.GivenNo
	c := document.Conflict{Network: "default", IP: at, State: detector.Confirmed, ConfirmedAt: now, Holders: []document.Binding{given, taken}}
	for _, tt := range []struct {
		doubled string
		state   detector.State
		cause   string
		removed bool
	}{
		{"", detector.Confirmed, document.CauseByHand, true},
		{"n3", detector.Confirmed, document.CauseByHand, true},
		{"n1", detector.Confirmed, document.CauseComing, false},
		{"n2", detector.Confirmed, document.CauseComing, false},
		{"n2", detector.Resolved, document.CauseByHand, true},
	} {
		c.State = tt.state
		j := Of(c, Context{Now: now.Add(time.Minute), Doubled: map[string]bool{tt.doubled: true}})
		removed := strings.Contains(verdicts(j), "remove")
		if j.Cause != tt.cause || removed != tt.removed {
			t.Errorf("two of %q, %v: %s, %s", tt.doubled, tt.state, j.Cause, verdicts(j))
		}
	}
}

// TestNone: suspicions and drills are not judged.
func TestNone(t *testing.T) {
	c := document.Conflict{Network: "default", IP: at, State: detector.Suspected, Holders: []document.Binding{holder("n1", "old", 60), holder("n2", "far", 5)}}
	if j := Of(c, ctx); j != nil {
		t.Errorf("%+v", j)
	}
	if c.State, c.Drill = detector.Confirmed, true; Of(c, ctx) != nil {
		t.Error("a drill")
	}
	if c.Drill = false; len(Of(c, Context{Now: now, Namesakes: map[string]bool{"n2": true}}).Nodes) != 1 {
		t.Error("a namesake that has not the address")
	}
}
