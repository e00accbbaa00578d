package query

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

var night = time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)

func after(s int) time.Time { return night.Add(time.Duration(s) * time.Second) }

// The line says what is in the file, and what is not.
func TestCaptureLine(t *testing.T) {
	capture := func(node, pod string, frames, lost int) document.Capture {
		return document.Capture{Holder: document.Holder{Node: node, Pod: &document.Pod{Namespace: "shop", Name: pod}}, Frames: make([]document.Frame, frames), Lost: lost}
	}
	for want, e := range map[string]document.Captures{
		"f: 3 frames (1 of shop/a on n1, 2 of shop/b on n2), the history of 10.0.0.7, its routes and books, the versions of 1 node.\n": {
			Captures: []document.Capture{capture("n1", "a", 1, 0), capture("n2", "b", 2, 0)},
		},
		"f: 1 frame (1 of shop/a on n1), the history of 10.0.0.7, its routes and books, the versions of 1 node.\n" +
			"Missing: 1 of 2 nodes did not answer: n2.\n" + "Missing: 3 frames that came too fast.\n" +
			"Missing: the frames of 2 holders, which did not fit into the answers.\n": {
			Captures: []document.Capture{capture("n1", "a", 1, 3)}, Coverage: document.Coverage{Asked: 2, Missing: []string{"n2"}, Omitted: 2},
		},
		"f: no frames, the history of 10.0.0.7, its routes and books, the versions of 1 node.\n" +
			"Missing: on node n1, no packets are captured (--capture=off).\n": {Unchecked: []string{"on node n1, no packets are captured (--capture=off)"}},
		"f: no frames, the history of 10.0.0.7, its routes and books, the versions of 1 node.\n" +
			"Missing: frames. Agents keep none from before they started, nor of a suspicion that has faded.\n": {},
	} {
		var out bytes.Buffer
		nodes := document.Nodes{Nodes: []document.Node{{Member: cluster.Member{Name: "n1", Boot: "1", State: "dead"}}, {Member: cluster.Member{Name: "n1", Boot: "2"}}, {Member: cluster.Member{Name: "r1", Role: "reporter"}}}}
		c := &collected{ip: netip.MustParseAddr("10.0.0.7"), captures: e, nodes: nodes}
		if c.print(cli.NewPrinter(&out), "f"); out.String() != want {
			t.Errorf("it prints\n%swant\n%s", out.String(), want)
		}
	}
}

// explain.txt has the times of whoever made the archive, and README.txt says of which zone they are.
func TestZoneOfArchive(t *testing.T) {
	local := time.Local
	time.Local = time.FixedZone("EST", -5*3600)
	t.Cleanup(func() { time.Local = local })
	e := document.Explanation{Stories: []document.Story{{Notes: []document.Note{{At: night, Text: "first seen"}}}}}
	archive, err := new(Program).archive("f", &collected{at: night, ip: netip.MustParseAddr("10.0.0.7"), explanation: e})
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"f/README.txt":  "UTC, those of explain.txt EST (UTC-05:00),",
		"f/explain.txt": "22:00:00.000 first seen",
	} {
		files := tar.NewReader(unzipped)
		for file, err := files.Next(); ; file, err = files.Next() {
			if err != nil {
				t.Fatalf("no %s: %v", name, err)
			}
			if file.Name == name {
				break
			}
		}
		if text, err := io.ReadAll(files); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q: %s %v", name, want, text, err)
		}
		if unzipped, err = gzip.NewReader(bytes.NewReader(archive)); err != nil {
			t.Fatal(err)
		}
	}
}

// An address has had conflicts before. The last one counts, or the one that is asked for, also where nodes have another number for it.
func TestWhichCaptures(t *testing.T) {
	all := []document.Capture{
		{Holder: document.Holder{Node: "old"}, Conflict: "x-1", Network: "default", Since: after(0), Until: after(10)},
		{Holder: document.Holder{Node: "first"}, Conflict: "x-2", Network: "default", Since: after(100), Until: after(110)}, // it left early
		{Holder: document.Holder{Node: "other number"}, Conflict: "x-1", Network: "default", Since: after(101), Until: after(150)},
		{Holder: document.Holder{Node: "last"}, Conflict: "x-2", Network: "default", Since: after(120)},
		{Holder: document.Holder{Node: "still there"}, Conflict: "x-3", Network: "default", Since: after(90)},
		{Holder: document.Holder{Node: "another network"}, Conflict: "y-1", Network: "storage", Since: after(0), Until: after(1)},
	}
	for name, c := range map[string]struct {
		of   *document.Conflict
		want []string
	}{
		"the last": {nil, []string{"first", "other number", "last", "still there", "another network"}},
		"an open one": {
			&document.Conflict{Network: "default", SuspectedAt: after(100)}, []string{"first", "other number", "last", "still there"},
		},
		"one that has ended": {&document.Conflict{Network: "default", SuspectedAt: after(0), ResolvedAt: after(10)}, []string{"old"}},
		"none of it is left": {&document.Conflict{Network: "default", SuspectedAt: after(20), ResolvedAt: after(30)}, nil},
	} {
		var got []string
		for _, v := range capturesOf(all, c.of) {
			got = append(got, v.Node)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A holder of the conflict without frames is named.
func TestUncaptured(t *testing.T) {
	holders := []document.Binding{{Holder: document.Holder{Node: "n1", Netns: "a", Interface: "veth1"}}, {Holder: document.Holder{Node: "n2", Netns: "b", Interface: "veth2"}}}
	c := &collected{
		captures:    document.Captures{Captures: []document.Capture{{Holder: document.Holder{Node: "n1", Netns: "a"}, Network: "default"}}},
		explanation: document.Explanation{Stories: []document.Story{{Network: "default", Conflict: &document.Conflict{ID: "x-1", State: detector.Confirmed, Holders: holders}}}},
	}
	if lines := c.missing(); len(lines) != 1 || !strings.Contains(lines[0], "none were captured") || !strings.Contains(lines[0], "on n2") || strings.Contains(lines[0], "n1") {
		t.Errorf("it says %q", lines)
	}
	c.of = &document.Conflict{ID: "x-0"}
	if lines := c.missing(); len(lines) != 0 {
		t.Errorf("of an older conflict: %q", lines)
	}
}

func TestWriteNew(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := writeNew(name, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := writeNew(name, []byte("two")); err == nil || !strings.Contains(err.Error(), "name another file with -o") {
		t.Errorf("a second time: %v", err)
	}
	info, err := os.Stat(name)
	if data, _ := os.ReadFile(name); string(data) != "one" || err != nil || info.Mode() != 0o600 {
		t.Errorf("%q, %v, %v", data, info.Mode(), err)
	}
}

// A capture file of one packet, byte by byte as draft-ietf-opsawg-pcapng has it; tests/e2e reads one with tshark and gopacket.
func TestPcapng(t *testing.T) {
	got := pcapng("dupip 1", []document.Capture{{
		Holder: document.Holder{Node: "n", Interface: "v", MAC: detector.MAC{2}}, Conflict: "x-1",
		Frames: []document.Frame{{At: time.Unix(1, 2), Length: 1500, Data: []byte{1, 2, 3, 4, 5}}},
	}}, []string{"p"})
	want := "\x0a\x0d\x0d\x0a\x2c\x00\x00\x00\x4d\x3c\x2b\x1a\x01\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff" +
		"\x04\x00\x07\x00dupip 1\x00\x00\x00\x00\x00\x2c\x00\x00\x00" +
		"\x01\x00\x00\x00\x58\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
		"\x02\x00\x07\x00n/v (p)\x00\x09\x00\x01\x00\x09\x00\x00\x00\x01\x00\x26\x00MAC 02:00:00:00:00:00, p, conflict x-1\x00\x00\x00\x00\x00\x00\x58\x00\x00\x00" +
		"\x06\x00\x00\x00\x34\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\xca\x9a\x3b\x05\x00\x00\x00\xdc\x05\x00\x00" +
		"\x01\x02\x03\x04\x05\x00\x00\x00\x02\x00\x04\x00\x01\x00\x00\x00\x00\x00\x00\x00\x34\x00\x00\x00"
	if string(got) != want {
		t.Errorf("got\n%x, want\n%x", got, want)
	}
}
