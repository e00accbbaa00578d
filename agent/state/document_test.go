package state

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
)

// An invalid conflict costs no other. The document stays until the next write,
// and a copy for people.
func TestInvalidConflictsAreDropped(t *testing.T) {
	opts := testOptions(t.TempDir())
	s := sample(t, opts.NodeID, 2, 0, 3)
	tests := map[string]func(c *conflict){
		"address":           func(c *conflict) { c.IP = "10.0.0.256" },
		"mapped":            func(c *conflict) { c.IP = "::ffff:10.0.0.1" },
		"zone":              func(c *conflict) { c.IP = "fe80::1%eth0" },
		"other form":        func(c *conflict) { c.IP = "fd00:0::1" },
		"no state":          func(c *conflict) { c.State = "" },
		"wrong list":        func(c *conflict) { c.State = "suspected" },
		"scope":             func(c *conflict) { c.Scope = "world" },
		"id":                func(c *conflict) { c.ID = "" },
		"network":           func(c *conflict) { c.Network = "a\nb" },
		"never suspected":   func(c *conflict) { c.SuspectedAt = time.Time{} },
		"before 2000":       func(c *conflict) { c.ConfirmedAt = time.Unix(1, 0) },
		"never confirmed":   func(c *conflict) { c.ConfirmedAt = time.Time{} },
		"never resolved":    func(c *conflict) { c.ResolvedAt = time.Time{} },
		"one holder":        func(c *conflict) { c.Holders = c.Holders[:1] },
		"MAC":               func(c *conflict) { c.Holders[0].MAC = "02:00:00:00:00:00:00:01" },
		"evidence":          func(c *conflict) { c.Holders[0].Evidence = "" },
		"escape":            func(c *conflict) { c.Holders[0].Netns = "\x1b]0;x\a" },
		"turned writing":    func(c *conflict) { c.Holders[0].Pod.Name = "a\u202eb" },
		"long name":         func(c *conflict) { c.Holders[0].Pod.Name = strings.Repeat("x", maxName+1) },
		"long namespace":    func(c *conflict) { c.Holders[0].Pod.Namespace = strings.Repeat("x", maxName+1) },
		"long uid":          func(c *conflict) { c.Holders[0].Pod.UID = strings.Repeat("x", maxName+1) },
		"long interface":    func(c *conflict) { c.Holders[0].Interface = strings.Repeat("x", maxName+1) },
		"long node":         func(c *conflict) { c.Holders[0].Node = strings.Repeat("x", maxName+1) },
		"long boot":         func(c *conflict) { c.Holders[0].BootID = strings.Repeat("x", maxName+1) },
		"no node":           func(c *conflict) { c.Holders[0].Node = "" },
		"no identity":       func(c *conflict) { c.Holders[0].NetnsCookie, c.Holders[0].Ifindex = 0, 0 },
		"holder not seen":   func(c *conflict) { c.Holders[0].FirstSeen = time.Time{} },
		"made before 2000":  func(c *conflict) { c.Holders[0].Pod.CreatedAt = time.Unix(1, 0) },
		"second not seen":   func(c *conflict) { c.SecondSeen = time.Time{} },
		"far in the future": func(c *conflict) { c.ResolvedAt = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).AddDate(0, 0, 1) },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			var log logged
			opts := opts
			opts.Dir, opts.Log = t.TempDir(), log.log()
			d := document{header: header{version, opts.Node, opts.BootID, opts.NodeID}}
			for _, c := range s.Open {
				d.Open = append(d.Open, newConflict(c))
			}
			for _, c := range s.History {
				d.History = append(d.History, newConflict(c))
			}
			bad := d.History[1]
			bad.Holders = slices.Clone(bad.Holders)
			pod := *bad.Holders[0].Pod
			bad.Holders[0].Pod = &pod
			spoil(&bad)
			d.History[1] = bad
			data, err := json.Marshal(d)
			if name == "far in the future" {
				if err == nil {
					t.Fatal("encoding/json takes the year 10000 by now")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(opts.Dir, fileName), data, 0o600); err != nil {
				t.Fatal(err)
			}
			want := detector.Snapshot{Open: s.Open, History: []detector.Conflict{s.History[0], s.History[2]}}
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
	s := sample(t, opts.NodeID, 1, 1, 1)
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
	if lines := log.lines(""); len(lines) != 0 || len(read.Open) != 1 || len(read.Open[0].Holders) != maxHolders {
		t.Fatalf("log %q, read %+v", lines, read)
	}
	got := read.Open[0].Holders[0].Holder
	if got.NetnsName != "a?[31m?" || got.Pod.Name != "x?y" || got.Pod.UID != "?" || got.Pod.Namespace != strings.Repeat("n", maxName-3)+"…" ||
		got.InterfaceName != strings.Repeat("ü", (maxName-3)/2)+"…" || !got.CreatedAt.IsZero() {
		t.Errorf("holder %+v", got)
	}
}

// A document that would be too large loses its oldest history.
func TestEncodeIsBounded(t *testing.T) {
	opts := testOptions(t.TempDir())
	s := sample(t, opts.NodeID, 1, 0, 1)
	c := s.History[0]
	c.Holders = nil
	for i := range maxHolders {
		h := s.History[0].Holders[0]
		h.Holder.ID.Netns = uint64(i + 1)
		h.Holder.Pod.Name = strings.Repeat("x", maxName)
		c.Holders = append(c.Holders, h)
	}
	s.History = nil
	for i := range maxHistory + 10 {
		c.SuspectedAt = testStart.Add(time.Duration(i))
		s.History = append(s.History, c)
	}
	data, err := encode(s, nil, opts)
	if err != nil || len(data) > maxBytes || len(data) < maxBytes-100_000 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	read, err := decode(addTime(data, time.Now()))
	if err != nil || read.dropped != 0 || len(read.snapshot.Open) != 1 {
		t.Fatalf("read %d open, %d left out: %v", len(read.snapshot.Open), read.dropped, err)
	}
	if last := read.snapshot.History[len(read.snapshot.History)-1]; !last.SuspectedAt.Equal(c.SuspectedAt) {
		t.Error("the newest is lost")
	}
}

// Fields of a newer agent under the same version are passed over.
func TestUnknownFieldsAreFine(t *testing.T) {
	opts := testOptions(t.TempDir())
	want := sample(t, opts.NodeID, 2, 0, 2)
	data, err := encode(want, nil, opts)
	if err != nil {
		t.Fatal(err)
	}
	data = []byte(strings.ReplaceAll(string(data), `"ip":`, `"colour":{"r":[1,2]},"ip":`))
	if err := os.WriteFile(filepath.Join(opts.Dir, fileName), addTime(data, time.Now()), 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, get(t, opts), sameSnapshot); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// version1 is the state that version 0.1 wrote.
const version1 = `{"savedAt":"2026-11-21T16:00:52Z","version":1,"node":"n1","bootID":"b1","nodeID":"n1/b1","open":[{
	"id":"477e9622-1","network":"default","ip":"10.245.1.24","state":"confirmed","scope":"cross-node",
	"secondSeen":"2026-11-21T16:00:51Z","suspectedAt":"2026-11-21T16:00:51Z","confirmedAt":"2026-11-21T16:00:52Z","holders":[
	{"node":"n1/b1","cookie":77,"device":{"name":"veth1","ifindex":5,"generation":3},"mac":"02:00:00:00:00:01","netns":"cni-1",
	 "pod":{"namespace":"shop","name":"web-1","uid":"u"},"createdAt":"2026-11-21T15:00:00Z","evidence":"announced",
	 "firstSeen":"2026-11-21T15:00:01Z","foundAtStart":true,"lastSeen":"2026-11-21T16:00:52Z"},
	{"node":"n2/b2","ifindex":9,"generation":4,"device":{"name":"veth9","ifindex":9,"generation":4},"evidence":"data",
	 "firstSeen":"2026-11-21T16:00:51Z","lastSeen":"2026-11-21T16:00:52Z"}]}],"history":[]}`

// An upgrade keeps the conflicts.
func TestVersion1(t *testing.T) {
	at := func(text string) time.Time {
		at, err := time.Parse(time.TimeOnly, text)
		if err != nil {
			t.Fatal(err)
		}
		return at.AddDate(2026, 10, 20)
	}
	read, err := decode([]byte(version1))
	if err != nil {
		t.Fatal(err)
	}
	key := detector.Key{Network: "default", IP: netip.MustParseAddr("10.245.1.24")}
	want := []detector.Conflict{{
		ID: "477e9622-1", Key: key, State: detector.Confirmed, Scope: detector.CrossNode,
		SecondSeen: at("16:00:51"), SuspectedAt: at("16:00:51"), ConfirmedAt: at("16:00:52"),
		Holders: []detector.Binding{{
			Key: key, Evidence: detector.Announced, FirstSeen: at("15:00:01"), LastSeen: at("16:00:52"), FoundAtStart: true,
			Holder: detector.Holder{
				ID: detector.HolderID{Node: "n1/b1", Netns: 77}, Interface: detector.Interface{Ifindex: 5, Generation: 3}, InterfaceName: "veth1",
				MAC: detector.MAC{2, 0, 0, 0, 0, 1}, NetnsName: "cni-1", Pod: detector.Pod{Namespace: "shop", Name: "web-1", UID: "u"}, CreatedAt: at("15:00:00"),
			},
		}, {
			Key: key, Evidence: detector.Data, FirstSeen: at("16:00:51"), LastSeen: at("16:00:52"),
			Holder: detector.Holder{
				ID: detector.HolderID{Node: "n2/b2", Ifindex: 9, Generation: 4}, Interface: detector.Interface{Ifindex: 9, Generation: 4}, InterfaceName: "veth9",
			},
		}},
	}}
	if diff := cmp.Diff(want, read.snapshot.Open, sameSnapshot); diff != "" || read.dropped != 0 {
		t.Errorf("%d left out (-want +got):\n%s", read.dropped, diff)
	}
}

// FuzzDecode: decode never panics, and accepts again what it accepted and encode wrote.
func FuzzDecode(f *testing.F) {
	opts := testOptions("")
	good, err := encode(sample(f, opts.NodeID, 1, 1, 1), testOrigins, opts)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(addTime(good, testStart))
	f.Add(good[:len(good)/2])
	f.Add([]byte(`{"version":1,"node":"a","bootID":"b","nodeID":"c","open":null,"history":[]}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(version1))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := decode(data)
		if err != nil {
			return
		}
		again, err := encode(read.snapshot, read.interfaces, Options{Node: read.node, BootID: read.bootID, NodeID: read.nodeID})
		if err != nil {
			t.Fatal(err)
		}
		twice, err := decode(again)
		if err != nil || twice.dropped != 0 {
			t.Fatalf("%v, %d left out: %v", err, twice.dropped, twice.dropCause)
		}
		if diff := cmp.Diff(read.snapshot, twice.snapshot, sameSnapshot); diff != "" {
			t.Fatalf("(-first +second):\n%s", diff)
		}
		d := detector.New(detector.Options{})
		d.Restore(read.snapshot, testStart)
		d.Tick(testStart.Add(time.Hour))
	})
}

func BenchmarkEncode(b *testing.B) {
	opts := testOptions("")
	s := sample(b, opts.NodeID, 0, 0, 1000)
	b.ReportAllocs()
	for b.Loop() {
		data, err := encode(s, nil, opts)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(data)))
	}
}
