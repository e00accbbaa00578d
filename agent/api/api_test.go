package api_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// table is a backend whose table the test changes.
type table struct {
	bindings  chan []document.Binding // one element: the present table
	conflicts chan document.ConflictEvent
	queries   chan document.Query
}

func newTable() *table {
	t := &table{bindings: make(chan []document.Binding, 1), conflicts: make(chan document.ConflictEvent, 8), queries: make(chan document.Query, 8)}
	t.bindings <- nil
	return t
}

func (t *table) set(bindings ...document.Binding) { <-t.bindings; t.bindings <- bindings }

func (t *table) note(q document.Query) {
	select {
	case t.queries <- q:
	default:
	}
}

func (t *table) Bindings(_ context.Context, q document.Query) (document.Bindings, error) {
	t.note(q)
	if q.Node != "" {
		return document.Bindings{}, fmt.Errorf("%w as %q", document.ErrNoSuchNode, q.Node)
	}
	bindings := <-t.bindings
	t.bindings <- bindings
	return document.Bindings{Node: "n1", Bindings: bindings}, nil
}

// Acknowledge returns what it is told, as a conflict.
func (t *table) Acknowledge(_ context.Context, q document.Query) (document.Conflicts, error) {
	t.note(q)
	return document.Conflicts{Conflicts: []document.Conflict{{IP: q.IP, Network: q.Network, Acknowledged: &document.Ack{By: q.Ack.By, Why: q.Ack.Why, Seconds: q.Ack.Seconds}}}}, nil
}

func (t *table) Conflicts(_ context.Context, q document.Query) (document.Conflicts, error) {
	t.note(q)
	doc := document.Conflicts{Node: "n1"}
	if q.All {
		doc.Conflicts = []document.Conflict{{ID: "x-1", State: detector.Resolved}}
	}
	if q.Cluster {
		doc.Pairs = []document.Pair{{Nodes: []string{"n1", "n2"}, Addresses: 1, Examples: []document.Address{{Network: "default", IP: netip.MustParseAddr("10.0.0.1")}}}}
		doc.Coverage = document.Coverage{Asked: 3, Missing: []string{"n3"}, Partial: true}
	}
	return doc, nil
}

func (t *table) Audit(_ context.Context, q document.Query) (document.Audit, error) {
	t.note(q)
	return document.Audit{Node: "n1", Findings: []document.Finding{{Kind: "unreserved", IP: netip.MustParseAddr("10.0.0.1")}}}, nil
}

func (t *table) Explain(_ context.Context, q document.Query) (document.Explanation, error) {
	t.note(q)
	return document.Explanation{}, errors.New("the agent is stopping")
}

func (t *table) Captures(_ context.Context, q document.Query) (document.Captures, error) {
	t.note(q)
	return document.Captures{IP: q.IP, Captures: []document.Capture{{Frames: []document.Frame{{Length: 1000, Data: []byte{0, 0xff}}}}}}, nil
}

func (t *table) Nodes(_ context.Context, _ document.Query) (document.Nodes, error) {
	return document.Nodes{Node: "n1", Nodes: []document.Node{{Member: cluster.Member{Name: "n1", State: "alive", Self: true}}}}, nil
}

func (t *table) Status(context.Context, document.Query) (document.Status, error) {
	return document.Status{Node: "n1"}, nil
}

func (t *table) WatchConflicts(context.Context) (<-chan document.ConflictEvent, error) {
	return t.conflicts, nil
}

// serve starts a server on a socket of its own.
func serve(t *testing.T, backend api.Backend) *api.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api", "dupip.sock")
	listener, err := api.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- api.Serve(ctx, listener, api.NewHandler(backend, api.MaxPolls), slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return api.NewClient(path)
}

func TestQueries(t *testing.T) {
	backend := newTable()
	client := serve(t, backend)
	want := []document.Binding{{Network: "default", IP: netip.MustParseAddr("10.0.0.1"), Holder: document.Holder{Node: "n1", Pod: &document.Pod{Namespace: "a", Name: "b"}}, Evidence: detector.Data}}
	backend.set(want...)
	got, err := client.Bindings(t.Context(), document.Query{IP: netip.MustParseAddr("::ffff:10.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Bindings, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
	if q := <-backend.queries; q.IP != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("got a query for %s, want the address unmapped", q.IP)
	}
	if _, err := client.Bindings(t.Context(), document.Query{Prefix: netip.MustParsePrefix("::ffff:10.0.0.5/120")}); err != nil {
		t.Fatal(err)
	}
	if q := <-backend.queries; q.Prefix != netip.MustParsePrefix("10.0.0.0/24") {
		t.Errorf("got a query for %s, want the prefix unmapped and masked", q.Prefix)
	}
	for _, all := range []bool{false, true} {
		conflicts, err := client.Conflicts(t.Context(), document.Query{All: all})
		if err != nil || (len(conflicts.Conflicts) == 1) != all {
			t.Errorf("conflicts, all=%t: %+v, %v", all, conflicts, err)
		}
	}
	if _, err := client.Explain(t.Context(), document.Query{IP: netip.MustParseAddr("10.0.0.1")}); err == nil || err.Error() != "the agent is stopping" {
		t.Errorf("error %v, want the error of the agent", err)
	}
	nodes, err := client.Nodes(t.Context(), document.Query{})
	if err != nil || len(nodes.Nodes) != 1 || !nodes.Nodes[0].Self {
		t.Errorf("nodes %+v, %v", nodes, err)
	}
}

// The backend receives the client's query.
func TestQueriesArrive(t *testing.T) {
	ip := netip.MustParseAddr("fd00::1")
	for _, want := range []document.Query{
		{},
		{IP: ip},
		{All: true},
		{Cluster: true},
		{Node: "n2"},
		{IP: ip, All: true, Cluster: true, Node: "n 2&all=0"},
		{Prefix: netip.MustParsePrefix("10.0.0.0/24"), Namespace: "shop", Pod: "web-0", Network: "storage"},
		{State: "suspected"},
		{State: "resolved", All: true},
		{Since: 36 * time.Hour, All: true},
		{Since: document.MaxSince, All: true, Cluster: true},
	} {
		backend := newTable()
		client := serve(t, backend)
		calls := map[string]func() error{
			"bindings":  func() error { _, err := client.Bindings(t.Context(), want); return err },
			"conflicts": func() error { _, err := client.Conflicts(t.Context(), want); return err },
			"audit":     func() error { _, err := client.Audit(t.Context(), want); return err },
		}
		if want.IP.IsValid() {
			calls["explain"] = func() error { _, err := client.Explain(t.Context(), want); return err }
			calls["capture"] = func() error {
				got, err := client.Captures(t.Context(), want)
				if len(got.Captures) != 1 || !slices.Equal(got.Captures[0].Frames[0].Data, []byte{0, 0xff}) {
					t.Errorf("evidence: %+v", got)
				}
				return err
			}
		}
		for name, call := range calls {
			err := call()
			// Each document has its own parameters.
			want := want
			switch name {
			case "bindings", "audit":
				want.All, want.State, want.Since = false, "", 0
			case "explain", "capture":
				want = document.Query{IP: want.IP, Cluster: want.Cluster}
			}
			if got := <-backend.queries; got != want {
				t.Errorf("%s: got %+v, want %+v", name, got, want)
			}
			if name == "bindings" && want.Node != "" && (err == nil || !strings.Contains(err.Error(), want.Node)) {
				t.Errorf("error %v, want one about the node", err)
			}
		}
	}
}

func TestCoverageArrives(t *testing.T) {
	got, err := serve(t, newTable()).Conflicts(t.Context(), document.Query{Cluster: true})
	if err != nil {
		t.Fatal(err)
	}
	if !got.Partial || got.Asked != 3 || !slices.Equal(got.Missing, []string{"n3"}) || len(got.Pairs) != 1 || got.Pairs[0].Examples[0].IP != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("got %+v", got)
	}
}

func TestWatchBindings(t *testing.T) {
	backend := newTable()
	client := serve(t, backend)
	one := document.Binding{IP: netip.MustParseAddr("10.0.0.1"), Evidence: detector.Data, Holder: document.Holder{Pod: &document.Pod{Name: "p"}}}
	backend.set(one)
	var got []string
	step := 0
	err := client.WatchBindings(t.Context(), document.Query{}, func() {}, func(event document.BindingEvent) error {
		got = append(got, event.Type+" "+event.Binding.IP.String()+" "+event.Binding.Evidence.String())
		switch step++; step {
		case 1:
			changed := one
			changed.Evidence = detector.Announced
			changed.Pod = &document.Pod{Name: "p"}
			backend.set(changed)
		case 2:
			later := one
			later.Evidence = detector.Announced
			later.LastSeen = time.Now() // no event
			backend.set(later, document.Binding{IP: netip.MustParseAddr("10.0.0.2"), Evidence: detector.Host})
		case 3:
			backend.set()
		case 5:
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	want := []string{"added 10.0.0.1 data", "changed 10.0.0.1 announced", "added 10.0.0.2 host"}
	if diff := cmp.Diff(want, got[:3]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for _, removed := range got[3:] {
		if !strings.HasPrefix(removed, "removed ") {
			t.Errorf("event %q, want a removal", removed)
		}
	}
}

var errStop = errors.New("enough")

func TestWatchConflictsEndsWithTheBackend(t *testing.T) {
	backend := newTable()
	client := serve(t, backend)
	backend.conflicts <- document.ConflictEvent{Type: "resolved", Conflict: document.Conflict{IP: netip.MustParseAddr("10.0.0.2")}} // another address
	backend.conflicts <- document.ConflictEvent{Type: "confirmed", Reason: "twice", Conflict: document.Conflict{IP: netip.MustParseAddr("10.0.0.1")}}
	close(backend.conflicts)
	var got []document.ConflictEvent
	err := client.WatchConflicts(t.Context(), document.Query{IP: netip.MustParseAddr("10.0.0.1")}, func() {}, func(event document.ConflictEvent) error {
		got = append(got, event)
		return nil
	})
	if err == nil || len(got) != 1 || got[0].Type != "confirmed" {
		t.Errorf("events %+v, error %v: want one event and an error", got, err)
	}
}

func TestTooManyWatches(t *testing.T) {
	backend := newTable()
	client := serve(t, backend)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 64)
	for range 40 {
		go func() {
			failed <- client.WatchConflicts(ctx, document.Query{}, func() {}, func(document.ConflictEvent) error { return nil })
		}()
	}
	for range 8 {
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "too many watches") {
			t.Fatalf("error %v, want too many watches", err)
		}
	}
}

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dupip.sock")
	first, err := api.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: want 0600", info.Mode(), err)
	}
	if _, err := api.Listen(path); !errors.Is(err, api.ErrOccupied) {
		t.Errorf("second listener: %v, want ErrOccupied", err)
	}
	// A killed agent leaves the file without a listener.
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	again, err := api.Listen(path)
	if err != nil {
		t.Fatalf("over a stale socket: %v", err)
	}
	again.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Listen(path); err == nil {
		t.Error("listened over a file that is no socket")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Errorf("Listen removed a file that is no socket: %q, %v", data, err)
	}
}

// Inspect reports what Listen would do, and changes nothing.
func TestInspect(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	served, err := api.Listen(path("served"))
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	killed, err := api.Listen(path("killed"))
	if err != nil {
		t.Fatal(err)
	}
	killed.(*net.UnixListener).SetUnlinkOnClose(false)
	killed.Close()
	if err := os.WriteFile(path("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path string
		left bool
		want string
	}{
		{path("none"), false, ""},
		{path("none/yet"), false, ""},
		{path("killed"), true, ""},
		{path("served"), false, api.ErrOccupied.Error()},
		{path("file"), false, "no socket"},
		{path("file/a"), false, "not a directory"},
		{path(strings.Repeat("x", 120)), false, "at most 107"},
	} {
		left, err := api.Inspect(test.path)
		if left != test.left || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %t, %v; want %t, %q", test.path, left, err, test.left, test.want)
		}
		if err == nil {
			continue
		}
		if _, failed := api.Listen(test.path); failed == nil {
			t.Errorf("%s: Listen succeeded, but Inspect returned %v", test.path, err)
		}
	}
}

func TestClientSaysWhatToDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.sock")
	_, err := api.NewClient(path).Status(t.Context(), document.Query{})
	if !errors.Is(err, api.ErrNoAgent) || !strings.Contains(err.Error(), "dupip agent") {
		t.Errorf("error %v, want one that names the command to start", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error of more than one line: %v", err)
	}
}

// An acknowledgement arrives as it was, and its answer.
func TestAcknowledge(t *testing.T) {
	q := document.Query{IP: netip.MustParseAddr("10.0.0.1"), Network: "blue", Ack: cluster.Ack{By: "alice", Why: "a & b; 100%", Seconds: 3600}}
	table := newTable()
	doc, err := serve(t, table).Acknowledge(t.Context(), q)
	if got := <-table.queries; err != nil || got != q {
		t.Fatalf("%+v, %v, want %+v", got, err, q)
	}
	if a := doc.Conflicts[0].Acknowledged; a.By != "alice" || a.Why != q.Ack.Why || a.Seconds != 3600 {
		t.Errorf("%+v", a)
	}
}
