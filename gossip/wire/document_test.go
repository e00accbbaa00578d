package wire

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

func sampleConflict() detector.Conflict {
	unreachable := detector.Binding{Key: v4, Holder: faceless(otherNode).Holder, Evidence: detector.Host, Unreachable: true}
	return detector.Conflict{
		ID: "5f3a9b21-1", Key: v4, State: detector.Confirmed, Scope: detector.PodHost,
		SecondSeen: ago(3 * time.Second), SuspectedAt: ago(2 * time.Second), ConfirmedAt: ago(time.Second),
		Holders: []detector.Binding{documented(v4, ourNode, 4242), documented(v4, otherNode, 4242), unreachable},
	}
}

func documented(key detector.Key, node string, netns uint64) detector.Binding {
	b := complete(node)
	b.Holder.ID.Netns = netns
	return detector.Binding{Key: key, Holder: b.Holder, Evidence: b.Evidence, FirstSeen: b.FirstSeen, LastSeen: b.LastSeen, FoundAtStart: true}
}

func sampleDocument() cluster.Document {
	c, past := sampleConflict(), sampleConflict()
	past.State, past.ResolvedAt, past.ID = detector.Resolved, ago(time.Millisecond), "5f3a9b21-2"
	given := documented(v4, ourNode, 1)
	given.Holder.Given = detector.GivenYes
	return cluster.Document{
		Bindings:  []detector.Binding{given, documented(v6, ourNode, 2)},
		Conflicts: []detector.Conflict{c, past, {ID: "x", Key: v6, State: detector.Suspected, Scope: detector.CrossNode}},
		Stories: []detector.Story{
			{
				Key: v4, Bindings: []detector.Binding{documented(v4, ourNode, 1), documented(v4, otherNode, 2)}, Conflict: &c, Verdict: "a conflict",
				Notes: []detector.Note{
					{At: ago(time.Minute), Kind: detector.NoteSeen, Holder: detector.HolderID{Node: ourNode, Netns: 1}, Text: "first seen: data"},
					{At: ago(time.Second), Kind: detector.NoteAnswered, Holder: detector.HolderID{Node: otherNode, Netns: 2}},
					{Kind: detector.NoteConflict, Text: "suspected"},
				},
			},
			{Key: v6, Verdict: "no live holder: not a conflict"},
		},
		NextHops: []cluster.NextHop{
			{Key: v4, Kind: cluster.NextHopHolder, Holder: detector.HolderID{Node: ourNode, Netns: 1}, Device: "veth17"},
			{Key: v6, Kind: cluster.NextHopHolder, Holder: detector.HolderID{Node: otherNode, Ifindex: 4, Generation: 5}, Device: "cni0"},
			{Key: v4, Kind: cluster.NextHopNode, Node: otherNode, Device: "eth0", Gateway: netip.MustParseAddr("192.0.2.2")},
			{Key: v6, Kind: cluster.NextHopAway, Device: "eth0", Gateway: netip.MustParseAddr("fe80::1")},
			{Key: v4, Kind: cluster.NextHopNone},
		},
		Omitted: 7,
	}
}

// passed is a document that passed from our node to another one, whose clock is another.
func passed(t testing.TB, d cluster.Document, limit int, now time.Time) cluster.Document {
	t.Helper()
	b := MarshalDocument(d, ourNode, limit, noon)
	if len(b) > limit {
		t.Errorf("%d bytes, %d are allowed", len(b), limit)
	}
	got, unknown, err := UnmarshalDocument(b, ourNode, now)
	if err != nil || unknown {
		t.Errorf("unknown is %v, %v", unknown, err)
	}
	return got
}

func TestDocument(t *testing.T) {
	for _, want := range []cluster.Document{{}, sampleDocument(), {Omitted: 1}, {Bindings: sampleDocument().Bindings}} {
		before := fmt.Sprintf("%+v", want)
		if diff := cmp.Diff(want, passed(t, want, 1<<20, noon), compare); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if after := fmt.Sprintf("%+v", want); after != before {
			t.Errorf("sending changed\n%s to\n%s", before, after)
		}
	}
	later := noon.Add(1000 * time.Hour)
	got := passed(t, sampleDocument(), 1<<20, later)
	if c := got.Conflicts[0]; c.ConfirmedAt.Sub(later).Round(time.Second) != -time.Second || !c.ResolvedAt.IsZero() || c.Holders[1].Key != v4 {
		t.Errorf("%+v", c)
	}
}

// What is too much is left out, in whole elements, and counted.
func TestDocumentOmits(t *testing.T) {
	long := strings.Repeat("x", 300)
	wide := func(node string, netns uint64) detector.Binding {
		b := documented(v4, node, netns)
		b.Holder.Pod = detector.Pod{Namespace: long, Name: long, UID: long}
		return b
	}
	c := sampleConflict()
	c.Holders = nil
	for i := range uint64(2 * maxHolders) {
		c.Holders = append(c.Holders, wide(otherNode, i+1))
	}
	d := cluster.Document{Omitted: 5}
	for range 20 {
		d.Conflicts = append(d.Conflicts, c)
	}
	for i := range uint64(5000) {
		d.Bindings = append(d.Bindings, documented(v4, ourNode, i+1))
	}
	for _, limit := range []int{1 << 20, 1 << 18, 5000, 200} {
		got := passed(t, d, limit, noon)
		if sum := len(got.Conflicts) + len(got.Bindings) + got.Omitted; sum != 20+5000+5 {
			t.Errorf("%d bytes: %d conflicts, %d bindings and %d omitted", limit, len(got.Conflicts), len(got.Bindings), got.Omitted)
		}
		if limit > 200 && len(got.Bindings) == 0 { // also where a conflict has no room
			t.Errorf("%d bytes: no bindings", limit)
		}
		for _, c := range got.Conflicts {
			if len(c.Holders) != maxHolders || len(c.Holders[0].Holder.Pod.Name) != maxText {
				t.Errorf("a conflict of %d holders", len(c.Holders))
			}
		}
	}
	// Of small elements there may be more than are accepted.
	small := cluster.Document{}
	for range maxElements + 5 {
		small.Stories = append(small.Stories, detector.Story{Key: detector.Key{Network: "n", IP: v4.IP}})
	}
	if got := passed(t, small, 1<<20, noon); len(got.Stories) != maxElements || got.Omitted != 5 {
		t.Errorf("%d stories, %d omitted", len(got.Stories), got.Omitted)
	}
}

// Texts and lists are cut, times are over, and bindings of others are not this node's to list.
func TestDocumentFits(t *testing.T) {
	long := strings.Repeat("x", 2000) + "\n"
	id := detector.HolderID{Node: long, Netns: 1}
	s := detector.Story{
		Key: v6, Verdict: long, Conflict: &detector.Conflict{ID: long, Key: v4, State: detector.Resolved, Scope: detector.SameNode},
		Bindings: []detector.Binding{{
			Holder: detector.Holder{ID: id, InterfaceName: long, Bridge: long, NetnsName: long, Pod: detector.Pod{Namespace: long, Name: long, UID: long}, Given: 77},
			Key:    v6, Evidence: detector.Data, FirstSeen: noon.Add(time.Hour), LastSeen: time.Unix(0, 0).AddDate(-1000, 0, 0),
		}},
	}
	for i := range 100 {
		s.Notes = append(s.Notes, detector.Note{Kind: detector.NoteSeen, Holder: id, Text: fmt.Sprint(i, long)})
	}
	d := cluster.Document{
		Stories: []detector.Story{s}, Bindings: []detector.Binding{documented(v4, otherNode, 1)},
		NextHops: []cluster.NextHop{{Key: v6, Kind: cluster.NextHopAway, Gateway: netip.MustParseAddr("fe80::1%" + long[:100])}},
	}
	all := passed(t, d, 1<<20, noon)
	got := all.Stories[0]
	if n := len(got.Notes); n != maxNotes || !strings.HasPrefix(got.Notes[n-1].Text, "99xxx") || len(got.Verdict) != maxSentence {
		t.Errorf("%d notes, not the newest", n)
	}
	if !got.Bindings[0].FirstSeen.Equal(noon) || got.Bindings[0].Holder.Given != detector.GivenUnknown || len(got.Bindings[0].Holder.ID.Node) != maxNodeID || len(got.Conflict.ID) != maxText {
		t.Errorf("%+v", got.Bindings[0])
	}
	if len(all.Bindings) != 0 || all.Omitted != 0 || all.NextHops[0].Gateway != netip.MustParseAddr("fe80::1") {
		t.Errorf("%d bindings, gateway %s", len(all.Bindings), all.NextHops[0].Gateway)
	}
}

// Elements that are invalid, or not the sender's to list, are left out and counted.
func TestDocumentRefused(t *testing.T) {
	c := sampleConflict()
	raw := func(v any) []any { return []any{v} }
	change := func(f func(*detector.Conflict)) detector.Conflict {
		c := c
		f(&c)
		return c
	}
	for name, test := range map[string]struct {
		field int
		value any
		want  bool
	}{
		"a binding":                       {1, documented(v4, "", 1), true},
		"a binding of another node":       {1, documented(v4, otherNode, 1), false},
		"a binding of no address":         {1, documented(detector.Key{Network: "default"}, "", 1), false},
		"a binding of no holder":          {1, documented(v4, "", 0), false},
		"a binding that is a number":      {1, 7, false},
		"a conflict":                      {2, c, true},
		"a conflict without a state":      {2, change(func(c *detector.Conflict) { c.State = 0 }), false},
		"a conflict without a scope":      {2, change(func(c *detector.Conflict) { c.Scope = 9 }), false},
		"a conflict of no address":        {2, change(func(c *detector.Conflict) { c.Key.IP = netip.Addr{} }), false},
		"a conflict with an odd holder":   {2, change(func(c *detector.Conflict) { c.Holders = []detector.Binding{{Key: v4}} }), false},
		"a story":                         {3, detector.Story{Key: v4}, true},
		"a story of no address":           {3, detector.Story{}, false},
		"a story with an odd holder":      {3, detector.Story{Key: v4, Bindings: []detector.Binding{{}}}, false},
		"a story with an odd conflict":    {3, detector.Story{Key: v4, Conflict: &detector.Conflict{}}, false},
		"a next hop":                      {4, cluster.NextHop{Key: v4, Kind: cluster.NextHopSelf}, true},
		"a next hop of no kind":           {4, cluster.NextHop{Key: v4}, false},
		"a next hop of an unknown kind":   {4, cluster.NextHop{Key: v4, Kind: cluster.NextHopNone + 1}, false},
		"a next hop to no holder":         {4, cluster.NextHop{Key: v4, Kind: cluster.NextHopHolder}, false},
		"a next hop to a holder":          {4, cluster.NextHop{Key: v4, Kind: cluster.NextHopHolder, Holder: detector.HolderID{Netns: 1}}, true},
		"a next hop of no address":        {4, cluster.NextHop{Kind: cluster.NextHopSelf}, false},
		"a number of omitted":             {5, 0, true},
		"a large number of omitted":       {5, 1 << 40, false},
		"a field that is not known":       {99, "x", true},
		"a binding with an unknown field": {1, map[int]any{1: v4, 2: documented(v4, "", 1).Holder, 3: 3, 99: "x"}, true},
	} {
		var value any = raw(test.value)
		if test.field == 5 {
			value = test.value
		}
		d, unknown, err := UnmarshalDocument(Marshal(map[int]any{test.field: value}), ourNode, noon)
		n := len(d.Bindings) + len(d.Conflicts) + len(d.Stories) + len(d.NextHops)
		switch {
		case err != nil, d.Omitted < 0, d.Omitted > maxElements:
			t.Errorf("%s: %+v, %v", name, d, err)
		case test.field < 5 && (n == 1) != test.want, (d.Omitted == 0) != test.want:
			t.Errorf("%s: %+v", name, d)
		case unknown != strings.Contains(name, "known field") && unknown != strings.Contains(name, "not known"):
			t.Errorf("%s: unknown is %v", name, unknown)
		}
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "a number": {1}, "a field twice": {0xa2, 1, 0x80, 1, 0x80}, "too many": Marshal(map[int]any{1: make([]struct{}, maxElements+1)}),
	} {
		if _, _, err := UnmarshalDocument(b, ourNode, noon); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzUnmarshalDocument(f *testing.F) {
	for _, d := range []cluster.Document{{}, sampleDocument(), sampleFindings(), {Omitted: 3}} {
		f.Add(MarshalDocument(d, ourNode, 1<<20, noon))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, _, err := UnmarshalDocument(b, ourNode, noon)
		if err != nil {
			return
		}
		d.Omitted = 0
		again, unknown, err := UnmarshalDocument(MarshalDocument(d, ourNode, 1<<30, noon), ourNode, noon)
		if err != nil || unknown {
			t.Fatalf("unknown is %v, %v", unknown, err)
		}
		if diff := cmp.Diff(d, again, compare); diff != "" {
			t.Fatalf("(-first +again)\n%s", diff)
		}
	})
}

func BenchmarkDocument(b *testing.B) {
	var d cluster.Document
	for i := range 250 {
		key := detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
		d.Bindings = append(d.Bindings, documented(key, ourNode, uint64(i+1)))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := UnmarshalDocument(MarshalDocument(d, ourNode, 1<<20, noon), ourNode, noon); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLeases(b *testing.B) {
	lease := Lease{Seq: 1 << 20, Key: v4, Binding: binding(ourNode)}
	b.ReportAllocs()
	for b.Loop() {
		var p Builder
		n := 0
		for ; p.Add(Encode(lease, noon)); n++ {
			lease.Seq = uint64(rand.Uint32())
		}
		if p, _, _, err := Decode(p.Bytes(), ourNode, noon); err != nil || len(p.Leases) != n {
			b.Fatal(err)
		}
	}
}
