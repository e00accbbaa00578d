package state

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/internal/testneeds"
)

const testBoot = "8d5f5c52-0000-4000-8000-1b2f6f3f0a11"

func testOptions(dir string) Options {
	return Options{Dir: dir, Node: "n1", BootID: testBoot}
}

func (o Options) nodeID() string { return cluster.NodeID(o.Node, o.BootID) }

// sameSnapshot compares what snapshots say; no list is an empty list.
var sameSnapshot = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	sameOrigins,
}

// logged is a log that can be read while it is written.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// lines returns the lines with that text.
func (l *logged) lines(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []string
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list
}

func (l *logged) log() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

var testStart = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// sampleKey is the i-th address; every third is an IPv6 one.
func sampleKey(i int) detector.Key {
	if i%3 == 2 {
		return detector.Key{Network: "net1@br1", IP: netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)})}
	}
	return detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
}

// sample makes conflicts by a real detector: open and suspected ones and history.
func sample(t testing.TB, node string, confirmed, suspected, resolved int) detector.Snapshot {
	t.Helper()
	s, err := makeSample(node, confirmed, suspected, resolved)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func makeSample(node string, confirmed, suspected, resolved int) (detector.Snapshot, error) {
	now := testStart
	d := detector.New(detector.Options{Node: node, MaxHistory: 10_000, MaxBindings: 100_000})
	var run func(fx detector.Effects)
	see := func(key detector.Key, netns uint64, answer bool) {
		h := detector.Holder{
			ID: detector.HolderID{Node: node, Netns: netns}, Interface: detector.Interface{Ifindex: uint32(netns), Generation: 7},
			InterfaceName: fmt.Sprintf("veth%d", netns), Bridge: "shop", MAC: detector.MAC{2, 0, 0, 0, byte(netns >> 8), byte(netns)},
			NetnsName: fmt.Sprintf("cni-%d", netns), Pod: detector.Pod{Namespace: "shop", Name: fmt.Sprintf("web-%d", netns), UID: "u"},
			CreatedAt: testStart.Add(-time.Duration(netns) * time.Second),
		}
		run(d.Observe(detector.Sighting{Key: key, Holder: h, Evidence: detector.Announced, Answer: answer, At: now, FoundAtStart: netns%2 == 0}, now))
	}
	run = func(fx detector.Effects) {
		for _, s := range fx.Probes {
			if int(s.Holder.Netns) > 2*(confirmed+resolved) {
				run(d.Probed(s, detector.Result{Outcome: detector.Refused, Reason: "off", Until: time.Time{}}, now))
				continue
			}
			d.Probed(s, detector.Result{Outcome: detector.Sent}, now)
			see(s.Key, s.Holder.Netns, true)
		}
	}
	pass := func(span time.Duration) {
		for end := now.Add(span); ; {
			next := d.Next()
			if next.IsZero() || next.After(end) {
				now = end
				return
			}
			now = next
			run(d.Tick(now))
		}
	}
	for i := range resolved + confirmed + suspected {
		see(sampleKey(i), uint64(2*i+1), false)
		see(sampleKey(i), uint64(2*i+2), false)
		now = now.Add(time.Microsecond)
	}
	pass(2 * time.Second)
	for i := range resolved {
		d.Withdraw(sampleKey(i), detector.HolderID{Node: node, Netns: uint64(2*i + 2)}, "gone", now)
	}
	pass(4 * time.Second)
	s := d.Snapshot()
	if len(s.Open) != confirmed+suspected || len(s.History) != resolved {
		return s, fmt.Errorf("%d open, %d in the history", len(s.Open), len(s.History))
	}
	return s, nil
}

// put writes one snapshot, as an agent that runs and stops.
func put(t testing.TB, opts Options, snapshot detector.Snapshot) {
	t.Helper()
	s, _ := Open(opts)
	s.Save(State{Snapshot: snapshot})
	s.flush()
	s.writer.unlock()
	if _, _, err := s.Status(); err != nil {
		t.Fatal(err)
	}
}

// get reads it, as the next agent does.
func get(t testing.TB, opts Options) detector.Snapshot {
	t.Helper()
	s, read := Open(opts)
	s.writer.unlock()
	return read.Snapshot
}

func TestRoundTrip(t *testing.T) {
	for _, n := range [][3]int{{0, 0, 0}, {3, 2, 4}, {0, 0, 1000}, {300, 0, 0}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			opts := testOptions(dir)
			want := sample(t, opts.nodeID(), n[0], n[1], n[2])
			put(t, opts, want)
			if diff := cmp.Diff(want, get(t, opts), sameSnapshot); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for path, mode := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, filepath.Join(dir, fileName): 0o600} {
				if info, err := os.Stat(path); err != nil || info.Mode() != mode {
					t.Errorf("%s is %v, %v", path, info.Mode(), err)
				}
			}
			if names := (&Store{opts: opts}).names(); !slices.Equal(names, []string{fileName}) {
				t.Errorf("in the directory: %v", names)
			}
		})
	}
}

// A detector continues with the state of its predecessor.
func TestFromDetectorToDetector(t *testing.T) {
	opts := testOptions(t.TempDir())
	want := sample(t, opts.nodeID(), 3, 2, 4)
	put(t, opts, want)
	d := detector.New(detector.Options{Node: opts.nodeID()})
	fx, dropped := d.Restore(get(t, opts), testStart.Add(time.Minute))
	if dropped != 0 || len(fx.Events) != 0 {
		t.Errorf("%d dropped, events %v", dropped, fx.Events)
	}
	if diff := cmp.Diff(want, d.Snapshot(), sameSnapshot); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSameBootRenamesOurHoldersOnly(t *testing.T) {
	old := testOptions(t.TempDir())
	present := old
	present.Node = "renamed"
	left := sample(t, old.nodeID(), 1, 0, 1)
	left.Open[0].Holders[1].Holder.ID.Node = "n1/other" // a namesake
	left.History[0].Holders[1].Holder.ID.Node = "n1/other"
	put(t, old, left)
	read := get(t, present)
	for _, c := range slices.Concat(read.Open, read.History) {
		if a, b := c.Holders[0].Holder.ID.Node, c.Holders[1].Holder.ID.Node; a != present.nodeID() || b != "n1/other" {
			t.Errorf("%s: the holders are of %q and %q", c.State, a, b)
		}
	}
	s := fullState(t, old.nodeID())
	renameNode(&s, old.nodeID(), present.nodeID())
	if former, book := s.Former[0].Holder.ID.Node, s.Books[s.History[0].ID][0].NodeID(); former != present.nodeID() || book != present.nodeID() {
		t.Errorf("a former holder is of %q, a book of %q", former, book)
	}
	if c := s.History[0]; s.Facts[c.ID][c.Holders[0].Holder.ID] == nil || len(s.Facts[c.ID]) != 1 {
		t.Errorf("facts of %v, the holder is %v", s.Facts[c.ID], c.Holders[0].Holder.ID)
	}
}

func TestAnotherBoot(t *testing.T) {
	old := testOptions(t.TempDir())
	present := old
	present.BootID = "another"
	put(t, old, sample(t, old.nodeID(), 2, 3, 1))
	before := time.Now()
	read := get(t, present)
	if len(read.Open) != 0 || len(read.History) != 3 {
		t.Fatalf("%d open, %d in the history", len(read.Open), len(read.History))
	}
	for _, c := range read.History[1:] {
		if c.State != detector.Resolved || c.ResolvedAt.Before(before) || c.ConfirmedAt.IsZero() || c.Holders[0].Holder.ID.Node != old.nodeID() {
			t.Errorf("%+v", c)
		}
	}
	if !read.History[0].ResolvedAt.Before(before) {
		t.Errorf("the old history ends at %v", read.History[0].ResolvedAt)
	}
	if _, dropped := detector.New(detector.Options{}).Restore(read, time.Now()); dropped != 0 {
		t.Errorf("the detector drops %d", dropped)
	}
}

// A disk image that was copied to another machine has the state of another node.
func TestAnotherNode(t *testing.T) {
	old := testOptions(t.TempDir())
	put(t, old, sample(t, old.nodeID(), 2, 0, 1))
	var log logged
	present := Options{Dir: old.Dir, Node: "n2", BootID: "another", Log: log.log()}
	if read := get(t, present); len(read.Open)+len(read.History) != 0 {
		t.Errorf("read %+v", read)
	}
	if got := log.lines(`belongs to node`); len(got) != 1 || len(corruptFiles(t, old.Dir)) != 1 {
		t.Errorf("log %q, corrupt %v", got, corruptFiles(t, old.Dir))
	}
}

func corruptFiles(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, corruptPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Whatever the file is, the agent starts, logs one line, and keeps the file under another name.
func TestInvalidFileIsRenamed(t *testing.T) {
	opts := testOptions("")
	good := encode(State{Snapshot: sample(t, opts.nodeID(), 2, 0, 2), Interfaces: testOrigins}, opts)
	text := func(s string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(s), 0o600) }
	}
	tests := []struct {
		name string
		make func(path string) error
		says string
	}{
		{"empty", text(""), "unexpected end"},
		{"no JSON", text("\x00\x01\x02"), "invalid character"},
		{"cut short", text(string(good[:len(good)/2])), "unexpected end"},
		{"zeros after a crash", text(strings.Repeat("\x00", 4096)), "invalid character"},
		{"null", text("null"), "version is 0"},
		{"a list", text("[]"), "reading the document"},
		{"trailing data", text(string(good) + "{}"), "invalid character"},
		{"no version", text(`{}`), "version is 0"},
		{"a newer version of another shape", text(`{"version":3,"open":{"a":1}}`), "its version is 3, this agent knows version 2"},
		{"no names", text(`{"version":2}`), "it names no node"},
		{"a wrong type", text(strings.Replace(string(good), `"history":[`, `"history":7,"h":[`, 1)), "reading the document"},
		{"too many conflicts", text(strings.Replace(string(good), `"history":[`, `"history":[`+strings.Repeat(`{},`, maxHistory), 1)), "it has 2 and 10002 conflicts"},
		{"deep", text(`{"version":2,"open":` + strings.Repeat("[", 1<<20)), "exceeded max depth"},
		{"too large", func(path string) error {
			return errorOf(text(" ")(path), os.Truncate(path, maxBytes+1))
		}, "larger than 16777216 bytes"},
		{"a huge sparse file", func(path string) error {
			return errorOf(text(" ")(path), os.Truncate(path, 1<<40))
		}, "larger than 16777216 bytes"},
		{"a FIFO", func(path string) error { return unix.Mkfifo(path, 0o600) }, "not a regular file"},
		{"a directory", func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) }, "not a regular file"},
		{"a device", func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) }, "not a regular file"},
		{"a socket", func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err == nil {
				l.SetUnlinkOnClose(false)
				l.Close()
			}
			return err
		}, "not a regular file"},
		{"a link", func(path string) error { return os.Symlink("elsewhere", path) }, "not a regular file"},
		{"a link to a good document", func(path string) error {
			other := filepath.Join(filepath.Dir(path), "other")
			return errorOf(os.WriteFile(other, good, 0o600), os.Symlink(other, path))
		}, "not a regular file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log logged
			opts := opts
			opts.Dir, opts.Log = t.TempDir(), log.log()
			path := filepath.Join(opts.Dir, fileName)
			err := tt.make(path)
			if errors.Is(err, unix.EPERM) {
				testneeds.Root(t) // to make a device
			}
			if err != nil {
				t.Fatal(err)
			}
			made, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			opened := make(chan detector.Snapshot, 1)
			go func() { opened <- get(t, opts) }()
			select {
			case read := <-opened:
				if len(read.Open)+len(read.History) != 0 {
					t.Errorf("read %+v", read)
				}
			case <-time.After(time.Minute):
				t.Fatal("it hangs")
			}
			list := corruptFiles(t, opts.Dir)
			if len(list) != 1 {
				t.Fatalf("renamed to %v", list)
			}
			if now, err := os.Lstat(list[0]); err != nil || !os.SameFile(made, now) {
				t.Errorf("%s is another file: %v", list[0], err)
			}
			lines := log.lines("")
			if len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], tt.says) ||
				!strings.Contains(lines[0], list[0]) || !strings.Contains(lines[0], "are lost") {
				t.Errorf("log %q, want one line with %q", lines, tt.says)
			}
			for _, line := range lines {
				if len(line) > 1000 || strings.ContainsAny(line, "\x1b\x00") {
					t.Errorf("unfit for a terminal: %q", line)
				}
			}
			put(t, opts, sample(t, opts.nodeID(), 1, 0, 0))
			if read := get(t, opts); len(read.Open) != 1 {
				t.Errorf("after the next write: %+v", read)
			}
		})
	}
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestCorruptFilesAreBounded(t *testing.T) {
	opts := testOptions(t.TempDir())
	for i := range maxCorrupt + 3 {
		if err := os.WriteFile(filepath.Join(opts.Dir, fileName), fmt.Append(nil, i), 0o600); err != nil {
			t.Fatal(err)
		}
		get(t, opts)
	}
	var kept []string
	for _, path := range corruptFiles(t, opts.Dir) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, string(data))
	}
	if !slices.Equal(kept, []string{"3", "4", "5"}) {
		t.Errorf("kept %v", kept)
	}
}
