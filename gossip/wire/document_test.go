package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	ourNode   = "n1/b1"
	otherNode = "n2/b2"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

func holding(key detector.Key, node string, netns uint64) detector.Binding {
	return detector.Binding{
		Key: key,
		Holder: detector.Holder{
			ID: detector.HolderID{Node: node, Netns: netns}, Interface: detector.Interface{Ifindex: 17, Generation: 3},
			InterfaceName: "veth17", MAC: podMAC, NetnsName: "cni-17",
			Pod: detector.Pod{Namespace: "shop", Name: fmt.Sprintf("cart-%d", netns), UID: "u"}, CreatedAt: ago(61 * time.Minute),
		},
		Evidence: detector.Announced, FirstSeen: ago(time.Hour), FoundAtStart: true, LastSeen: ago(20 * time.Millisecond),
	}
}

func sampleConflict() detector.Conflict {
	faceless := detector.Binding{
		Key: v4, Unreachable: true, Holder: detector.Holder{ID: detector.HolderID{Node: otherNode, Ifindex: 4, Generation: 5}}, Evidence: detector.Host,
	}
	return detector.Conflict{
		ID: "5f3a9b21-1", Key: v4, State: detector.Confirmed, Scope: detector.PodHost,
		SecondSeen: ago(3 * time.Second), SuspectedAt: ago(2 * time.Second), ConfirmedAt: noon,
		Holders: []detector.Binding{holding(v4, ourNode, 1), holding(v4, otherNode, 1), faceless},
	}
}

func sampleDocument() cluster.Document {
	c, past := sampleConflict(), sampleConflict()
	past.State, past.ResolvedAt, past.ID = detector.Resolved, ago(time.Millisecond), "5f3a9b21-2"
	return cluster.Document{
		Bindings:  []detector.Binding{holding(v4, ourNode, 1), holding(v6, ourNode, 2)},
		Conflicts: []detector.Conflict{c, past, {ID: "x", Key: v6, State: detector.Suspected, Scope: detector.CrossNode}},
		Stories: []detector.Story{
			{
				Key: v4, Bindings: []detector.Binding{holding(v4, ourNode, 1), holding(v4, otherNode, 2)}, Conflict: &c, Verdict: "a conflict",
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
			{Key: v4, Kind: cluster.NextHopUnknown, Device: "cni0"},
			{Key: v4, Kind: cluster.NextHopDevice, Device: "ovn0"},
			{Key: v4, Kind: cluster.NextHopSelf},
			{Key: v4, Kind: cluster.NextHopNone},
		},
		Omitted: 7,
	}
}

func join(t testing.TB, pages [][]byte) cluster.Document {
	t.Helper()
	got, err := JoinDocument(pages, ourNode, noon)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestDocument(t *testing.T) {
	for _, want := range []cluster.Document{{}, sampleDocument(), {Omitted: 1}, {Bindings: sampleDocument().Bindings}} {
		pages := SplitDocument(want, ourNode, noon)
		if diff := cmp.Diff(want, join(t, pages), compareAddrs); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// TestDocumentOtherClock: ages travel, so the reader's clock may be any.
func TestDocumentOtherClock(t *testing.T) {
	pages := SplitDocument(sampleDocument(), ourNode, noon)
	later := noon.Add(1000 * time.Hour)
	got, err := JoinDocument(pages, ourNode, later)
	if err != nil {
		t.Fatal(err)
	}
	if seen := got.Bindings[0].FirstSeen; !seen.Equal(later.Add(-time.Hour)) {
		t.Errorf("first seen at %v, want an hour before %v", seen, later)
	}
	if c := got.Conflicts[0]; !c.ResolvedAt.IsZero() || !c.ConfirmedAt.Equal(later) {
		t.Errorf("confirmed at %v, resolved at %v", c.ConfirmedAt, c.ResolvedAt)
	}
}

func TestDocumentPages(t *testing.T) {
	var d cluster.Document
	for i := range 1000 {
		key := detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
		d.Bindings = append(d.Bindings, holding(key, ourNode, uint64(i+1)))
	}
	c := sampleConflict()
	c.Holders = nil
	for i := range maxHolders {
		c.Holders = append(c.Holders, holding(v4, otherNode, uint64(i+1)))
	}
	d.Conflicts = []detector.Conflict{c, c}
	pages := SplitDocument(d, ourNode, noon)
	size := 0
	for i, page := range pages {
		size += len(page)
		packet := Encode(us, Answer{ID: 1 << 63, Page: i, Pages: len(pages), Entries: page})
		if got, err := entries(t, packet); err != nil || len(got) != 1 {
			t.Fatalf("page %d: %d entries, %v", i, len(got), err)
		}
	}
	t.Logf("%d pages, %d bytes a record", len(pages), size/(1000+2*maxHolders))
	if diff := cmp.Diff(d, join(t, pages), compareAddrs); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestDocumentOmits: what is too much is left out in whole things, and counted.
func TestDocumentOmits(t *testing.T) {
	long := strings.Repeat("x", 300)
	wide := func(node string, netns uint64) detector.Binding {
		b := holding(v4, node, netns)
		b.Holder.Pod = detector.Pod{Namespace: long, Name: long, UID: long}
		return b
	}
	var d cluster.Document
	for range 60 {
		c := sampleConflict()
		c.Holders = nil
		for i := range maxHolders + 9 {
			c.Holders = append(c.Holders, wide(otherNode, uint64(i+1)))
		}
		d.Conflicts = append(d.Conflicts, c)
	}
	for i := range uint64(50_000) {
		d.Bindings = append(d.Bindings, holding(v4, ourNode, i+1), holding(v4, otherNode, i+1))
	}
	pages := SplitDocument(d, ourNode, noon)
	if len(pages) != MaxPages {
		t.Fatalf("%d pages, want %d", len(pages), MaxPages)
	}
	for i, page := range pages {
		if len(page) == 0 || len(page) > maxPage {
			t.Fatalf("page %d has %d bytes", i, len(page))
		}
	}
	got := join(t, pages)
	if sum := len(got.Conflicts) + len(got.Bindings) + got.Omitted; sum != 60+50_000 {
		t.Errorf("%d conflicts, %d bindings and %d omitted are %d", len(got.Conflicts), len(got.Bindings), got.Omitted, sum)
	}
	if len(got.Conflicts) == 60 || len(got.Bindings) == 0 {
		t.Errorf("%d conflicts and %d bindings", len(got.Conflicts), len(got.Bindings))
	}
	for _, c := range got.Conflicts {
		if len(c.Holders) != maxHolders {
			t.Errorf("a conflict of %d holders", len(c.Holders))
		}
	}
}

// TestDocumentMostRecords: what is made of the smallest records is accepted, too.
func TestDocumentMostRecords(t *testing.T) {
	var d cluster.Document
	for range maxRecords + 5 {
		d.Stories = append(d.Stories, detector.Story{Key: v4})
	}
	got := join(t, SplitDocument(d, ourNode, noon))
	if len(got.Stories) != maxRecords || got.Omitted != 5 {
		t.Errorf("%d stories, %d omitted", len(got.Stories), got.Omitted)
	}
}

// TestDocumentFits: texts and lists are cut as they are in entries.
func TestDocumentFits(t *testing.T) {
	long := strings.Repeat("x", 2000) + "\n"
	id := detector.HolderID{Node: long, Netns: 1}
	s := detector.Story{
		Key: detector.Key{Network: long, IP: v6.IP}, Verdict: long,
		Bindings: []detector.Binding{{
			Holder: detector.Holder{
				ID: id, InterfaceName: long, NetnsName: long, Pod: detector.Pod{Namespace: long, Name: long, UID: long},
			}, Evidence: detector.Data, FirstSeen: noon.Add(time.Hour), LastSeen: time.Unix(0, 0).AddDate(-1000, 0, 0),
		}},
		Conflict: &detector.Conflict{ID: long, Key: v4, State: detector.Resolved, Scope: detector.SameNode},
	}
	for i := range 100 {
		s.Notes = append(s.Notes, detector.Note{Kind: detector.NoteSeen, Holder: id, Text: fmt.Sprint(i, long)})
	}
	pages := SplitDocument(cluster.Document{Stories: []detector.Story{s}}, ourNode, noon)
	got := join(t, pages).Stories[0]
	if n := len(got.Notes); n != maxNotes || !strings.HasPrefix(got.Notes[n-1].Text, "99xxx") {
		t.Errorf("%d notes, not the newest", n)
	}
	if !got.Bindings[0].FirstSeen.Equal(noon) {
		t.Errorf("what is seen in an hour was seen at %v", got.Bindings[0].FirstSeen)
	}
}

func TestDocumentRefused(t *testing.T) {
	binding := SplitDocument(cluster.Document{Bindings: []detector.Binding{holding(v4, ourNode, 1)}}, ourNode, noon)[0]
	foreign := SplitDocument(cluster.Document{Bindings: []detector.Binding{holding(v4, otherNode, 1)}}, otherNode, noon)[0]
	c := sampleConflict()
	c.Holders = c.Holders[:1]
	conflict := SplitDocument(cluster.Document{Conflicts: []detector.Conflict{c}}, ourNode, noon)[0]
	c.Holders = nil
	holder := conflict[len(SplitDocument(cluster.Document{Conflicts: []detector.Conflict{c}}, ourNode, noon)[0]):]
	note := []byte{tagNote, 0, byte(detector.NoteConflict), 0, 0}
	story := []byte{tagStory, 0, 10, 0, 0, 7, 0}
	for _, test := range []struct {
		name string
		page []byte
		fine bool
	}{
		{"binding", binding, true},
		{"story", slices.Concat(story, note), true},
		{"unknown tag", []byte{99}, false},
		{"tag 0", []byte{0}, false},
		{"holders", slices.Concat(conflict, bytes.Repeat(holder, maxHolders-1)), true},
		{"holder of nothing", holder, false},
		{"holder after a binding", slices.Concat(conflict, binding, holder), false},
		{"too many holders", slices.Concat(conflict, bytes.Repeat(holder, maxHolders)), false},
		{"note of nothing", note, false},
		{"note of a conflict", slices.Concat(conflict, note), false},
		{"many notes", slices.Concat(story, bytes.Repeat(note, maxNotes)), true},
		{"too many notes", slices.Concat(story, bytes.Repeat(note, maxNotes+1)), false},
		{"note of kind 0", slices.Concat(story, []byte{tagNote, 0, 0, 0, 0}), false},
		{"note of kind 10", slices.Concat(story, []byte{tagNote, 0, 10, 0, 0}), false},
		{"note, flags without holder", slices.Concat(story, []byte{tagNote, flagInterface, 1, 0, 0}), false},
		{"note with a new line", slices.Concat(story, []byte{tagNote, 0, 1, 0, 1, '\n'}), false},
		{"conflict without state", []byte{tagConflict, 1 << scopeShift, 10, 0, 0, 7, 0, 0, 0, 0, 0}, false},
		{"conflict without scope", []byte{tagConflict, 1 << stateShift, 10, 0, 0, 7, 0, 0, 0, 0, 0}, false},
		{"conflict", []byte{tagConflict, 1<<stateShift | 1<<scopeShift, 10, 0, 0, 7, 0, 0, 0, 0, 0}, true},
		{"lead", []byte{tagLead, byte(cluster.NextHopSelf) << kindOfLeadShift, 10, 0, 0, 7, 0}, true},
		{"lead of kind 0", []byte{tagLead, 0, 10, 0, 0, 7, 0}, false},
		{"lead to no holder", []byte{tagLead, byte(cluster.NextHopHolder) << kindOfLeadShift, 10, 0, 0, 7, 0, 0, 0}, false},
		{"lead to no node", []byte{tagLead, byte(cluster.NextHopNode) << kindOfLeadShift, 10, 0, 0, 7, 0, 0}, false},
		{"lead, the family of no gateway", []byte{tagLead, byte(cluster.NextHopAway)<<kindOfLeadShift | flagGatewayV6, 10, 0, 0, 7, 0}, false},
		{"lead by no gateway", []byte{tagLead, byte(cluster.NextHopAway)<<kindOfLeadShift | flagGateway, 10, 0, 0, 7, 0, 0, 0, 0, 0}, false},
		{"holder after a lead", slices.Concat(conflict, []byte{tagLead, byte(cluster.NextHopSelf) << kindOfLeadShift, 10, 0, 0, 7, 0}, holder), false},
		{"omitted", []byte{tagOmitted, 1}, true},
		{"omitted 0", []byte{tagOmitted, 0}, false},
		{"omitted twice", []byte{tagOmitted, 1, tagOmitted, 1}, false},
		{"breaks off", binding[:len(binding)-1], false},
		{"too many records", bytes.Repeat(story, maxRecords+2), false},
	} {
		if d, err := JoinDocument([][]byte{test.page}, ourNode, noon); test.fine != (err == nil) || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", test.name, d, err)
		}
	}
	if _, err := JoinDocument([][]byte{foreign}, otherNode, noon); err != nil {
		t.Error(err)
	}
	named := bytes.Clone(binding)
	named[1] |= flagRemote
	named = slices.Insert(named, 6, append([]byte{byte(len(otherNode))}, otherNode...)...)
	if d, err := JoinDocument([][]byte{named}, ourNode, noon); err == nil {
		t.Errorf("a binding of another node: %+v", d)
	}
}

func FuzzJoinDocument(f *testing.F) {
	for _, page := range SplitDocument(sampleDocument(), ourNode, noon) {
		f.Add(page, []byte{})
		f.Add(page[:len(page)/2], page[len(page)/2:])
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		d, err := JoinDocument([][]byte{one, two}, ourNode, noon)
		if err != nil {
			return
		}
		again, err := JoinDocument(SplitDocument(d, ourNode, noon), ourNode, noon)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, again, compareAddrs); diff != "" {
			t.Fatalf("(-first +again)\n%s", diff)
		}
	})
}

func BenchmarkSplitJoinDocument(b *testing.B) {
	var d cluster.Document
	for i := range 250 {
		key := detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
		d.Bindings = append(d.Bindings, holding(key, ourNode, uint64(i+1)))
	}
	b.ReportAllocs()
	for b.Loop() {
		join(b, SplitDocument(d, ourNode, noon))
	}
}

func leases(n int) []Lease {
	g := generator{rand.New(rand.NewPCG(1, 1))}
	list := make([]Lease, n)
	for i := range list {
		list[i] = Lease{Seq: uint64(i + 1), Key: detector.Key{Network: "default", IP: g.ip()}, Claim: g.claim(us, false)}
	}
	return list
}

func BenchmarkEncodeLeases(b *testing.B) {
	list := leases(1000)
	b.ReportAllocs()
	for b.Loop() {
		batch := Batch{Sender: us}
		for i := range list {
			batch.Add(list[i])
		}
		batch.Take()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/lease")
}

func BenchmarkDecodeLeases(b *testing.B) {
	batch := Batch{Sender: us}
	for _, l := range leases(1000) {
		batch.Add(l)
	}
	packets := batch.Take()
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range packets {
			if _, err := leasesOf(p); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/lease")
}

func leasesOf(b []byte) ([]Lease, error) {
	p, err := Decode(b)
	if err != nil {
		return nil, err
	}
	return p.Leases()
}
