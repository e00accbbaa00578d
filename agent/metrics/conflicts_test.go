package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
)

// manyConflicts makes suspicions, the later the younger, and every tenth a conflict.
func manyConflicts(n int) []detector.Conflict {
	list := make([]detector.Conflict, n)
	a, b := binding("a", detector.Pod{Namespace: "x", Name: "a"}, 1), binding("b", detector.Pod{Namespace: "x", Name: "b"}, 2)
	for i := range list {
		state := detector.Suspected
		if i%10 == 9 {
			state = detector.Confirmed
		}
		list[i] = conflict(i, state, noon.Add(time.Duration(i)*time.Second), a, b)
	}
	return list
}

func TestConflictsAreBounded(t *testing.T) {
	open := manyConflicts(10_000)
	slices.Reverse(open)
	got := families(t, New(Sources{Loop: answering(LoopStats{Open: open})}))
	for name, want := range map[string]int{
		conflictInfo.name: 100, conflictHolders.name: 100, conflictSuspected.name: 100, conflictInfoOmitted.name: 1,
	} {
		if len(got[name]) != want {
			t.Errorf("%s has %d series, want %d", name, len(got[name]), want)
		}
	}
	if omitted := got[conflictInfoOmitted.name][""]; omitted != 9900 {
		t.Errorf("%v omitted, want 9900", omitted)
	}
	// There are 1,000 conflicts: the oldest 100 of those, and no suspicion.
	for i := range 100 {
		c := conflict(i*10+9, detector.Confirmed, noon)
		if labels := c.ID + "/" + c.Key.IP.String() + "/default"; got[conflictHolders.name][labels] != 2 {
			t.Errorf("no series for %s", labels)
		}
	}
}

func TestConfirmedFirstThenTheOldest(t *testing.T) {
	open := manyConflicts(105)
	chosen, omitted := selectOpen(open)
	if omitted != 5 || len(chosen) != 100 {
		t.Fatalf("%d chosen, %d omitted", len(chosen), omitted)
	}
	for i, c := range chosen {
		if confirmed := i < 10; (c.State == detector.Confirmed) != confirmed {
			t.Errorf("place %d: %s", i, c.State)
		}
		if i != 0 && i != 10 && c.SuspectedAt.Before(chosen[i-1].SuspectedAt) {
			t.Errorf("place %d is older than the one before", i)
		}
	}
	resolved := conflict(1, detector.Resolved, noon)
	if chosen, omitted := selectOpen([]detector.Conflict{resolved}); len(chosen) != 0 || omitted != 0 {
		t.Error("a resolved conflict is exported")
	}
}

// A pod's names must neither break the page nor make it long.
func TestHostileNames(t *testing.T) {
	evil := binding("a\x1b[2J\n"+strings.Repeat("\u202e", 500), detector.Pod{Namespace: "\xff\xfe", Name: strings.Repeat("n", 1<<16)}, 1)
	evil.Holder.InterfaceName = "veth\x00\"}\n# TYPE"
	evil.Holder.ID.Node = strings.Repeat("n", 4096) + "/boot"
	one := conflict(1, detector.Confirmed, noon, evil, evil)
	other := one
	// escape shortens both names to one.
	one.Key.Network, other.Key.Network = strings.Repeat("x", 300)+"1", strings.Repeat("x", 300)+"2"
	observed := []InterfaceRefusals{
		{Generation: 1, Name: "veth\x01", Netns: "\xff", Refused: Refused{3}},
		{Generation: 2, Name: "veth\x02", Netns: "\xfe", Refused: Refused{4}},
	}
	m := New(Sources{
		Version: "\xff\n", Node: strings.Repeat("n", 500), BootID: "\x00", Attach: "tc",
		Loop: answering(LoopStats{
			Open:     []detector.Conflict{one, other},
			Observed: observed, States: map[string]int{"a b": 1, "a\x00b": 2},
			Dropped: map[string]uint64{"\xff": 1, strings.Repeat("r", 1000): 1},
		}),
	})
	got := families(t, m) // fails for what cannot be gathered
	if len(got[conflictInfo.name]) != 1 || got[conflictInfoOmitted.name][""] != 1 {
		t.Errorf("%d series, %v omitted; want one of the two omitted", len(got[conflictInfo.name]), got[conflictInfoOmitted.name][""])
	}
	if got[interfaces.name]["a_b"] != 3 {
		t.Errorf("interfaces: %v", got[interfaces.name])
	}
	if n := got[interfaceRefusedPackets.name]["veth?/data/?/"]; n != 7 {
		t.Errorf("refused: %v, want 7 for both: %v", n, got[interfaceRefusedPackets.name])
	}
	longest := 15 * (maxLabel + 1)
	for name, series := range got {
		for labels := range series {
			if len(labels) > longest || strings.ContainsAny(labels, "\x00\x1b\n\u202e") {
				t.Errorf("%s has the labels %q", name, labels)
			}
		}
	}
	for labels := range got[conflictInfo.name] {
		if parts := strings.Count(labels, "…"); parts != 7 {
			t.Errorf("%d labels were cut, want 7: %s", parts, labels)
		}
	}
}

// A conflict without a time has no series with a time.
func TestZeroTimeIsNotExported(t *testing.T) {
	open := []detector.Conflict{conflict(1, detector.Confirmed, time.Time{})}
	got := families(t, New(Sources{Loop: answering(LoopStats{Open: open})}))
	if len(got[conflictSuspected.name]) != 0 || len(got[conflictInfo.name]) != 1 {
		t.Errorf("%v, %v", got[conflictSuspected.name], got[conflictInfo.name])
	}
}

// The holders of other nodes are exported with the names of their nodes and pods.
func TestRemoteHolders(t *testing.T) {
	here, there := binding("a", detector.Pod{Namespace: "x", Name: "a"}, 1), binding("b", detector.Pod{Namespace: "y", Name: "b"}, 1)
	there.Holder.ID.Node = "n2/77aa"
	there.Unreachable = true
	c := conflict(1, detector.Confirmed, noon, here, there)
	c.Scope = detector.CrossNode
	got := families(t, New(Sources{Loop: answering(LoopStats{Open: []detector.Conflict{c}})}))
	want := "veth-a/02:00:00:00:00:01/a/n1/x/a/00000001-1/10.0.0.1/default/cross-node/veth-b/02:00:00:00:00:01/b/n2/y/b/confirmed"
	if len(got[conflictInfo.name]) != 1 || got[conflictInfo.name][want] != 1 {
		t.Errorf("got %v, want %s", got[conflictInfo.name], want)
	}
}

// The pods of a confirmed conflict have series of their own only if that is switched on: each pod once, of a crowd the oldest.
func TestHoldersOfConflicts(t *testing.T) {
	named := func(n int) detector.Binding {
		return binding("x", detector.Pod{Namespace: "shop", Name: fmt.Sprint("web-", n)}, uint64(n))
	}
	var crowd []detector.Binding
	for n := range 64 {
		crowd = append(crowd, named(n))
	}
	open := []detector.Conflict{
		conflict(1, detector.Confirmed, noon, named(1), named(2), named(2), binding("no name", detector.Pod{}, 3),
			binding("a container", detector.Pod{Name: "web", Engine: "docker"}, 4)),
		conflict(2, detector.Suspected, noon, named(1), named(2)),
		conflict(3, detector.Confirmed, noon, crowd...),
	}
	for n := range 2 { // escape shortens both networks to one
		c := conflict(4, detector.Confirmed, noon, named(1), named(2))
		c.ID, c.Key.Network = fmt.Sprintf("0000000%d-1", 4+n), fmt.Sprint(strings.Repeat("x", 300), n)
		open = append(open, c)
	}
	sources := Sources{Loop: answering(LoopStats{Open: open})}
	if got := families(t, New(sources))[conflictHolderInfo.name]; len(got) > 0 {
		t.Errorf("nobody has asked for %v", got)
	}
	sources.Holders = true
	got := families(t, New(sources))[conflictHolderInfo.name]
	for _, want := range []string{"shop/web-1/10.0.0.1/default", "shop/web-2/10.0.0.1/default", "shop/web-0/10.0.0.3/default", "shop/web-7/10.0.0.3/default"} {
		if got[want] != 1 {
			t.Errorf("%s is missing", want)
		}
	}
	if len(got) != 2+maxHolders+2 {
		t.Errorf("%d series, want %d: %v", len(got), 2+maxHolders+2, got)
	}
}
