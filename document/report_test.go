package document

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/gossip/wire"
)

// fullConflict has everything, each time an hour before it is reported.
func fullConflict(at time.Time) Conflict {
	c := fullAnswer(at).Conflicts[0]
	c.Routes = nil
	c.Holders[0].Given = detector.GivenYes
	return c
}

// conflictOf has so many holders, each of another node.
func conflictOf(n int, node, text func() string) detector.Conflict {
	key := detector.Key{Network: "default", IP: netip.MustParseAddr("10.0.0.7")}
	c := detector.Conflict{
		ID: "5f3a9b21-1", Key: key, State: detector.Resolved, Scope: detector.CrossNode, SecondSeen: noon.Add(-time.Hour), SuspectedAt: noon.Add(-59 * time.Minute),
		ConfirmedAt: noon.Add(-58 * time.Minute), ResolvedAt: noon,
	}
	for _, real := range realBindings(n) {
		b := real.Detector()
		b.Key, b.Holder.ID.Node = key, node()
		if h := &b.Holder; text != nil {
			h.InterfaceName, h.Bridge, h.NetnsName, h.Pod = text(), text(), text(), detector.Pod{Namespace: text(), Name: text(), UID: text()}
		}
		c.Holders = append(c.Holders, b)
	}
	return c
}

func realNode() string {
	return "ip-10-0-12-34.eu-central-1.compute.internal/" + realBindings(1)[0].BootID
}

// reported passes a report on.
func reported(t *testing.T, c detector.Conflict) Conflict {
	t.Helper()
	packed, err := new(NewConflict(c)).EncodeReport(noon, wire.MaxReport)
	if err != nil {
		t.Fatal(err)
	}
	if len(packed) > wire.MaxReport {
		t.Errorf("%d bytes, %d are allowed", len(packed), wire.MaxReport)
	}
	got, err := DecodeReport(packed, "n1/b1", noon)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A report is read as it was told, by the clock of the reporter.
func TestReport(t *testing.T) {
	want := fullConflict(noon)
	for _, off := range []time.Duration{0, 5 * time.Hour, -30 * time.Hour, time.Unix(300, 0).Sub(noon)} {
		packed, err := new(fullConflict(noon.Add(off))).EncodeReport(noon.Add(off), wire.MaxReport)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeReport(packed, "n1/b1", noon)
		if diff := cmp.Diff(want, got, compare); diff != "" || err != nil {
			t.Errorf("off by %v: %v (-want +got)\n%s", off, err, diff)
		}
	}
	// Few holders with the names that they mostly have arrive in full.
	for n := range 4 {
		c := conflictOf(n, realNode, nil)
		if diff := cmp.Diff(NewConflict(c), reported(t, c), compare); diff != "" {
			t.Errorf("%d holders (-want +got)\n%s", n, diff)
		}
	}
}

// sameIDs fails if a report has not the first holders, or if something that identifies was cut.
func sameIDs(t *testing.T, c detector.Conflict, got Conflict) {
	t.Helper()
	if got.ID != c.ID || got.Network != c.Key.Network || got.IP != c.Key.IP || got.State != c.State || got.Scope != c.Scope || len(got.Holders) < min(2, len(c.Holders)) {
		t.Errorf("%+q of %d holders in %+q", got.ID, len(got.Holders), got.Network)
	}
	for i, b := range got.Holders {
		if b.ID() != c.Holders[i].Holder.ID || b.MAC != c.Holders[i].Holder.MAC {
			t.Errorf("holder %d is %+q, not %+q", i, b.NodeID(), c.Holders[i].Holder.ID.Node)
		}
	}
}

// From a report that is too long the last holders are left out, then the ends of texts, but nothing that identifies.
func TestReportIsCut(t *testing.T) {
	c := conflictOf(MaxHolders, realNode, nil)
	c.Pending = random(maxSentence / 2)
	before := fmt.Sprintf("%+v", c)
	got := reported(t, c)
	sameIDs(t, c, got)
	want := NewConflict(c)
	want.Holders = want.Holders[:len(got.Holders)]
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, packed, _ := pack(report{noon, NewConflict(detector.Conflict{ID: c.ID, Key: c.Key, Pending: c.Pending, Holders: c.Holders[:len(got.Holders)+1]})}, small); len(packed) < wire.MaxReport-64 {
		t.Errorf("%d holders, there is room for more", len(got.Holders))
	}
	t.Logf("%d of %d usual holders", len(got.Holders), MaxHolders)

	long := func() string { return random(500) }
	for _, n := range []int{1, 2, 3, MaxHolders} {
		c := conflictOf(n, realNode, long)
		c.Pending = long()
		got := reported(t, c)
		sameIDs(t, c, got)
		if h := got.Holders[0]; len(got.Holders) != min(n, 2) || len(h.Pod.Name) < 8 || !strings.HasPrefix(c.Holders[0].Holder.Pod.Name, strings.TrimSuffix(h.Pod.Name, "…")) {
			t.Errorf("%d holders, the first is %+v", len(got.Holders), h)
		}
	}
	if after := fmt.Sprintf("%+v", c); after != before {
		t.Error("sending changed the conflict")
	}
	for _, limit := range []int{0, 20, 200} {
		if packed, err := new(NewConflict(c)).EncodeReport(noon, limit); err == nil {
			t.Errorf("%d bytes of %d", len(packed), limit)
		}
	}
}

// With the longest names that there can be, of nodes and networks, a report of two holders fits. Texts that no node has may
// be too much: then it is not sent, and says so.
func TestLongestReport(t *testing.T) {
	of := func(first, last byte) func(n int) string {
		return func(n int) string {
			b := make([]byte, n)
			for i := range b {
				b[i] = first + byte(rand.IntN(int(last-first)+1))
			}
			return string(b)
		}
	}
	for what, test := range map[string]struct {
		text func(n int) string
		fits bool
	}{"names": {random, true}, "ASCII": {of('!', '~'), false}, "bytes": {of(0, 255), false}} {
		node := func() string { return strings.ReplaceAll(test.text(253), "/", "x") + "/" + realBindings(1)[0].BootID }
		for try := range 10 {
			c := conflictOf([]int{MaxHolders, 2}[min(try, 1)], node, func() string { return test.text(253) })
			c.Key.Network, c.Pending = test.text(128), test.text(maxSentence)
			for i := range c.Holders {
				c.Holders[i].Key = c.Key
			}
			packed, err := new(NewConflict(c)).EncodeReport(noon, wire.MaxReport)
			if t.Logf("%s: %d bytes, %v", what, len(packed), err); (err == nil) != test.fits {
				t.Errorf("%s: %d bytes, %v", what, len(packed), err)
			}
			if err != nil {
				continue
			}
			got, err := DecodeReport(packed, "n1/b1", noon)
			if err != nil {
				t.Fatal(err)
			}
			sameIDs(t, c, got)
		}
	}
}

// A holder has the same identity in a document: a netns, an interface, and an interface of another node, of which only the identity is known.
func TestHolderIdentity(t *testing.T) {
	link := detector.Interface{Ifindex: 17, Generation: 3}
	for what, h := range map[string]detector.Holder{
		"netns":                     {ID: detector.HolderID{Node: "n1/b1", Netns: 4026}, Interface: link},
		"netns of another node":     {ID: detector.HolderID{Node: "n2/b2", Netns: 4026}},
		"interface":                 {ID: detector.HolderID{Node: "n1/b1", Ifindex: 17, Generation: 3}, Interface: link},
		"interface of another node": {ID: detector.HolderID{Node: "n2/b2", Ifindex: 17, Generation: 3}},
	} {
		if doc := NewHolder(h); doc.ID() != h.ID || doc.Detector().ID != h.ID {
			t.Errorf("%s: %+v, not %+v", what, doc.ID(), h.ID)
		}
	}
	// Other nodes, and the reporter, believe a conflict of two pods whose netns is not seen.
	c := conflictOf(2, realNode, nil)
	for i := range c.Holders {
		h := &c.Holders[i].Holder
		h.ID = detector.HolderID{Node: fmt.Sprint("n", i+1, "/b"), Ifindex: uint32(17 + i), Generation: 3}
		h.Interface = []detector.Interface{{Ifindex: 17, Generation: 3}, {}}[i]
	}
	sameIDs(t, c, reported(t, c))
	if got := said(t, Answer{At: noon, Conflicts: []Conflict{NewConflict(c)}}); len(got.Conflicts) != 1 || got.Omitted != 0 {
		t.Errorf("%d conflicts, %d omitted", len(got.Conflicts), got.Omitted)
	}
}

// What no agent reports is refused.
func TestReportRefused(t *testing.T) {
	c := fullConflict(noon)
	valid := zip(t, asJSON(t, report{noon, c}))
	if _, err := DecodeReport(valid, "n1/b1", noon); err != nil {
		t.Fatal(err)
	}
	of := func(change func(*Conflict)) []byte {
		c := fullConflict(noon)
		change(&c)
		return zip(t, asJSON(t, report{noon, c}))
	}
	for name, packed := range map[string][]byte{
		"nothing":               nil,
		"half of it":            valid[:len(valid)/2],
		"an empty one":          zip(t, "{}"),
		"a bomb":                zip(t, asJSON(t, report{noon, c})+strings.Repeat(" ", reportSize.bytes)),
		"a bomb of many parts":  bytes.Repeat(zip(t, strings.Repeat(" ", 1<<20)), 40),
		"many holders":          zip(t, strings.Replace(asJSON(t, report{noon, c}), `"holders":[`, `"holders":[`+strings.Repeat("{},", reportSize.elements), 1)),
		"too many holders":      of(func(c *Conflict) { c.Holders = slices.Repeat(c.Holders[:1], MaxHolders+1) }),
		"no state":              of(func(c *Conflict) { c.State = 0 }),
		"no scope":              of(func(c *Conflict) { c.Scope = 0 }),
		"no id":                 of(func(c *Conflict) { c.ID = "" }),
		"no address":            of(func(c *Conflict) { c.IP, c.Holders = netip.Addr{}, nil }),
		"an odd holder":         of(func(c *Conflict) { c.Holders[1].Evidence = 0 }),
		"of times that are off": zip(t, asJSON(t, report{noon.AddDate(5000, 0, 0), c})),
	} {
		got, err := DecodeReport(packed, "n1/b1", noon)
		if err == nil || !reflect.ValueOf(got).IsZero() || !strings.Contains(err.Error(), "n1/b1") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	// What is refused costs little, though it is as small as others.
	many := zip(t, `{"conflict":{"holders":[`+strings.Repeat("{},", answerSize.elements-1)+"{}]}}")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := DecodeReport(many, "n1/b1", noon)
	if runtime.ReadMemStats(&after); err == nil || len(many) > wire.MaxReport || after.TotalAlloc-before.TotalAlloc > 8*uint64(reportSize.bytes) {
		t.Errorf("%d bytes take %d kB: %v", len(many), (after.TotalAlloc-before.TotalAlloc)>>10, err)
	}
	// What is not for an agent to say is left out, and texts are clean.
	got, err := DecodeReport(of(func(c *Conflict) {
		c.Pending, c.Holders[0].Pod.Name, c.Drill, c.Judgement = "a\x1b[31m", strings.Repeat("x", 1000), true, &Judgement{}
		c.Routes = []Route{{Node: "liar", To: ToSelf}, {Node: "liar", To: ToAway}}
	}), "n1/b1", noon)
	if err != nil || got.Pending != "a?[31m" || len(got.Holders[0].Pod.Name) != MaxName || got.Drill || got.Judgement != nil || len(got.Routes) != 1 || got.Routes[0].NodeID() != "n1/b1" {
		t.Errorf("%+v, %v", got, err)
	}
}
