package state

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/bounds"
)

// An invalid conflict costs no other. The document stays until the next write,
// and a copy for people.
func TestInvalidConflictsAreDropped(t *testing.T) {
	opts := testOptions(t.TempDir())
	s := sample(t, opts.nodeID(), 2, 0, 3)
	good := encode(State{Snapshot: s}, opts)
	conflict := func(field string, value any) func(c map[string]any) {
		return func(c map[string]any) { c[field] = value }
	}
	holder := func(field string, value any) func(c map[string]any) {
		return func(c map[string]any) { c["holders"].([]any)[0].(map[string]any)[field] = value }
	}
	for name, spoil := range map[string]func(c map[string]any){
		"address":         conflict("ip", "10.0.0.256"),
		"mapped":          conflict("ip", "::ffff:10.0.0.1"),
		"zone":            conflict("ip", "fe80::1%eth0"),
		"another kind":    conflict("ip", 7),
		"no state":        conflict("state", ""),
		"wrong list":      conflict("state", "suspected"),
		"scope":           conflict("scope", "world"),
		"id":              conflict("id", ""),
		"network":         conflict("network", ""),
		"never suspected": conflict("suspectedAt", nil),
		"before 2000":     conflict("confirmedAt", "1970-01-01T00:00:01Z"),
		"never resolved":  conflict("resolvedAt", "0001-01-01T00:00:00Z"),
		"no time":         conflict("resolvedAt", "soon"),
		"one holder":      func(c map[string]any) { c["holders"] = c["holders"].([]any)[:1] },
		"many holders":    func(c map[string]any) { c["holders"] = slices.Repeat(c["holders"].([]any), document.MaxHolders) },
		"MAC":             holder("mac", "02:00:00:00:00:00:00:01"),
		"evidence":        holder("evidence", "hearsay"),
		"no node":         holder("node", ""),
		"no identity":     func(c map[string]any) { holder("netnsCookie", 0)(c); holder("ifindex", 0)(c) },
		"holder not seen": holder("firstSeen", nil),
	} {
		t.Run(name, func(t *testing.T) {
			var log logged
			opts := opts
			opts.Dir, opts.Log = t.TempDir(), log.log()
			var f map[string]any
			decoder := json.NewDecoder(bytes.NewReader(good))
			decoder.UseNumber() // cookies are long
			if err := decoder.Decode(&f); err != nil {
				t.Fatal(err)
			}
			spoil(f["history"].([]any)[1].(map[string]any))
			data, err := json.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(opts.Dir, fileName), data, 0o600); err != nil {
				t.Fatal(err)
			}
			want := detector.Snapshot{Open: s.Open, History: []detector.Conflict{s.History[0], s.History[2]}, Former: s.Former}
			for range 2 { // and again, should the agent be killed before it writes
				if diff := cmp.Diff(want, get(t, opts), sameSnapshot); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}
			}
			lines, list := log.lines(""), corruptFiles(t, opts.Dir)
			if len(lines) != 2 || !strings.Contains(lines[0], "1 of 5 conflicts") || len(list) != 2 || !strings.Contains(lines[1], list[1]) {
				t.Errorf("log %q, corrupt %v", lines, list)
			}
			for _, line := range lines {
				if len(line) > 1000 || strings.ContainsAny(line, "\x1b\a") {
					t.Errorf("unfit for a terminal: %q", line)
				}
			}
		})
	}
}

// encode omits what decode would refuse.
func TestEncodeWritesOnlyWhatCanBeRead(t *testing.T) {
	opts := testOptions(t.TempDir())
	s := sample(t, opts.nodeID(), 1, 1, 1)
	hostile := s.Open[0]
	hostile.Holders = slices.Clone(hostile.Holders)
	h := &hostile.Holders[0].Holder
	h.NetnsName, h.InterfaceName = "a\x1b[31m\xff", strings.Repeat("ü", 200)
	h.CreatedAt = time.Date(1887, 1, 1, 0, 0, 0, 0, time.UTC)
	h.Pod = detector.Pod{Name: "x\u202ey", Namespace: strings.Repeat("n", 1000), UID: "\n"}
	for i := range 100 {
		extra := hostile.Holders[1]
		extra.Holder.ID.Netns = uint64(5000 + i)
		hostile.Holders = append(hostile.Holders, extra)
	}
	unset := s.Open[1]
	unset.SuspectedAt = time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)
	s.Open = []detector.Conflict{hostile, unset, {}}
	put(t, opts, s)
	var log logged
	opts.Log = log.log()
	read := get(t, opts)
	if lines := log.lines(""); len(lines) != 0 || len(read.Open) != 1 || len(read.Open[0].Holders) != document.MaxHolders {
		t.Fatalf("log %q, read %+v", lines, read)
	}
	got := read.Open[0].Holders[0].Holder
	if got.NetnsName != "a?[31m?" || got.Pod.Name != "x?y" || got.Pod.UID != "?" || got.Pod.Namespace != strings.Repeat("n", document.MaxName-3)+"…" ||
		got.InterfaceName != strings.Repeat("ü", (document.MaxName-3)/2)+"…" || !got.CreatedAt.IsZero() {
		t.Errorf("holder %+v", got)
	}
}

// A document that would be too large loses its oldest history.
func TestEncodeIsBounded(t *testing.T) {
	opts := testOptions(t.TempDir())
	s := sample(t, opts.nodeID(), 1, 0, 1)
	c := s.History[0]
	c.Holders = nil
	for i := range document.MaxHolders {
		h := s.History[0].Holders[0]
		h.Holder.ID.Netns = uint64(i + 1)
		h.Holder.Pod.Name = strings.Repeat("x", document.MaxName)
		c.Holders = append(c.Holders, h)
	}
	s.History = nil
	for i := range maxHistory + 10 {
		c.SuspectedAt = testStart.Add(time.Duration(i))
		s.History = append(s.History, c)
	}
	for i := range maxFormer {
		former := c.Holders[0]
		former.LastSeen = testStart.Add(time.Duration(i))
		s.Former = append(s.Former, former)
	}
	before := bounds.Counts()["state file full"]
	data := encode(State{Snapshot: s, Interfaces: testOrigins}, opts)
	if bounds.Counts()["state file full"] < before+10 {
		t.Error("what is left out is not counted")
	}
	if len(data) > maxBytes || len(data) < maxBytes-100_000 {
		t.Fatalf("%d bytes", len(data))
	}
	read, err := decode(addTime(data, time.Now()))
	if err != nil || len(read.invalid) != 0 || len(read.Open) != 1 || len(read.Interfaces) != len(testOrigins) {
		t.Fatalf("read %d open, %d interfaces, %d left out: %v", len(read.Open), len(read.Interfaces), len(read.invalid), err)
	}
	if last := read.History[len(read.History)-1]; !last.SuspectedAt.Equal(c.SuspectedAt) {
		t.Error("the newest is lost")
	}
	if n := len(read.Former); n < 1000 || !read.Former[n-1].LastSeen.Equal(s.Former[len(s.Former)-1].LastSeen) {
		t.Errorf("%d former holders, perhaps without the last one", n)
	}
}

// What is saved belongs to others, who read it meanwhile.
func TestEncodeChangesNothing(t *testing.T) {
	opts := testOptions(t.TempDir())
	s := fullState(t, opts.nodeID())
	for _, books := range s.Books {
		books[0].Kind, books[0].Reservation.Pod.Name = "a\x1b", "b\x1b"
	}
	encode(s, opts)
	for _, books := range s.Books {
		if books[0].Kind != "a\x1b" || books[0].Reservation.Pod.Name != "b\x1b" {
			t.Errorf("%+v", books[0])
		}
	}
}

// Fields of a newer agent under the same version are passed over.
func TestUnknownFieldsAreFine(t *testing.T) {
	opts := testOptions(t.TempDir())
	want := sample(t, opts.nodeID(), 2, 0, 2)
	data := encode(State{Snapshot: want}, opts)
	data = []byte(strings.ReplaceAll(string(data), `"ip":`, `"colour":{"r":[1,2]},"ip":`))
	if err := os.WriteFile(filepath.Join(opts.Dir, fileName), addTime(data, time.Now()), 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, get(t, opts), sameSnapshot); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// fullState has one of everything.
func fullState(t testing.TB, node string) State {
	s := State{Snapshot: sample(t, node, 1, 1, 1), Interfaces: testOrigins}
	s.Former = append(s.Former, s.History[0].Holders...)
	s.Books = map[string][]document.Book{s.History[0].ID: {{
		Node: "n1", BootID: testBoot, Kind: "host-local", CNINetwork: "pods", Covers: true, Range: "10.0.0.1-10.0.0.254", Unreserved: 4,
		Reservation: &document.Reservation{Sandbox: "0123456789abc", Pod: &document.Pod{Namespace: "shop", Name: "web-0"}, Since: testStart},
	}}}
	s.Facts = map[string]map[detector.HolderID]*document.Facts{s.History[0].ID: {s.History[0].Holders[0].Holder.ID: {
		Behind: document.BehindStopped, GivenOthers: []netip.Addr{s.History[0].Key.IP.Next()}, NetnsPath: "/run/netns/cni-1", NetnsInode: 4026531840,
		Process: &document.Process{PID: 7, Command: "cat"}, Machine: &document.Machine{Device: "eth0", Prefix: netip.PrefixFrom(s.History[0].Key.IP, 24), Since: testStart},
	}}}
	s.Acks = map[string]*document.Ack{s.Open[0].ID: {By: "alice", Why: "node is replaced", At: testStart, Seconds: 3600}}
	return s
}

// What explains a conflict survives a restart: who had the address before, what was known of the holders, and what the books said. Holders that no agent observes, and
// what is too much, do not.
func TestExplanationIsKept(t *testing.T) {
	opts := testOptions(t.TempDir())
	want := fullState(t, opts.nodeID())
	hostile := want
	hostile.Former = append(slices.Clone(want.Former), detector.Binding{Key: sampleKey(1)})
	hostile.Books = map[string][]document.Book{want.History[0].ID: want.Books[want.History[0].ID], "gone-1": {{Kind: "host-local"}}}
	first, known := want.History[0], *want.Facts[want.History[0].ID][want.History[0].Holders[0].Holder.ID]
	known.NetnsPath, known.Behind = "/run/netns/x; reboot", "odd"
	hostile.Facts = map[string]map[detector.HolderID]*document.Facts{"gone-1": {}, first.ID: {{Node: "nobody"}: {Behind: document.BehindRunning}, first.Holders[0].Holder.ID: &known}}
	before := known
	read, err := decode(addTime(encode(hostile, opts), testStart))
	if f := read.Facts[first.ID][first.Holders[0].Holder.ID]; err != nil || len(read.Facts) != 1 || f.NetnsPath != "" || f.Behind != "" || f.Process.PID != 7 {
		t.Fatalf("%+v, %v", read.Facts, err)
	}
	if !reflect.DeepEqual(before, known) {
		t.Errorf("encoding has changed %+v", known)
	}
	hostile.Facts = want.Facts
	hostile.Acks = map[string]*document.Ack{"gone-1": {By: "bob", At: testStart}, first.ID: {By: "bob", At: testStart}, want.Open[0].ID: want.Acks[want.Open[0].ID]}
	read, err = decode(addTime(encode(hostile, opts), testStart))
	if err != nil || len(read.invalid) != 0 {
		t.Fatalf("%d dropped: %v", len(read.invalid), err)
	}
	if diff := cmp.Diff(want, read.State, sameSnapshot); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want.Books[want.History[0].ID] = slices.Repeat(want.Books[want.History[0].ID], 100)
	if read, err = decode(addTime(encode(want, opts), testStart)); err != nil || len(read.Books[want.History[0].ID]) != maxBooks {
		t.Errorf("%d books: %v", len(read.Books[want.History[0].ID]), err)
	}
}

// FuzzDecode: decode never panics, and accepts again what it accepted and encode wrote.
func FuzzDecode(f *testing.F) {
	opts := testOptions("")
	good := encode(fullState(f, opts.nodeID()), opts)
	f.Add(good)
	f.Add(addTime(good, testStart))
	f.Add(good[:len(good)/2])
	f.Add([]byte(`{"version":2,"node":"a","bootID":"b","open":null,"history":[]}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := decode(data)
		if err != nil {
			return
		}
		again := encode(read.State, Options{Node: read.Node, BootID: read.BootID})
		twice, err := decode(again)
		if err != nil || len(twice.invalid) != 0 {
			t.Fatalf("%v, %d left out: %v", err, len(twice.invalid), twice.invalid)
		}
		if diff := cmp.Diff(read.State, twice.State, sameSnapshot); diff != "" {
			t.Fatalf("(-first +second):\n%s", diff)
		}
		d := detector.New(detector.Options{})
		d.Restore(read.Snapshot, testStart)
		d.Tick(testStart.Add(time.Hour))
	})
}

func BenchmarkEncode(b *testing.B) {
	opts := testOptions("")
	s := sample(b, opts.nodeID(), 0, 0, 1000)
	b.ReportAllocs()
	for b.Loop() {
		data := encode(State{Snapshot: s}, opts)
		b.SetBytes(int64(len(data)))
	}
}
