package pods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/testneeds"
)

func newResolver(t *testing.T) *Resolver {
	t.Helper()
	r, err := New(Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A slow reader gets the last name of each netns that still has one, and delays nothing.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResolver(t)
		publish := func(cookies int, generation int) {
			r.table = make(table)
			for i := range cookies {
				id := fmt.Sprint(generation, "-", i)
				r.table[id] = &sandbox{id: id, done: true, Change: Change{Cookie: uint64(i + 1), Pod: detector.Pod{Name: id}}}
			}
			r.publish()
		}
		const cookies = 1000
		for generation := range 100 {
			publish(cookies, generation)
		}
		publish(cookies/2, 100)
		if len(r.Changed()) != 1 {
			t.Error("nothing says that there are changes")
		}
		<-r.Changed()
		last := r.Changes(10)
		if len(last) != 10 || len(r.Changed()) != 1 {
			t.Errorf("%d changes, want 10 and more of them", len(last))
		}
		<-r.Changed()
		maps.Copy(last, r.Changes(1000))
		if n := len(last); n > cookies/2 {
			t.Errorf("%d changes wait, want at most one for each netns there is", n)
		}
		for i := range cookies / 2 {
			if want := fmt.Sprint(100, "-", i); last[uint64(i+1)].Pod.Name != want {
				t.Fatalf("the last name of netns %d is %q, want %q", i+1, last[uint64(i+1)].Pod.Name, want)
			}
		}
		// Nothing new, nothing sent.
		publish(cookies/2, 100)
		if n := len(r.Changes(1000)) + len(r.Changed()); n != 0 {
			t.Errorf("%d changes without a change", n)
		}
	})
}

// New names are there at once.
func TestPublish(t *testing.T) {
	r := newResolver(t)
	r.Request(1)
	s := &sandbox{id: "a", done: true, Change: Change{Cookie: 1, Pod: detector.Pod{Name: "a"}}}
	r.table = table{"a": s}
	for _, test := range []struct {
		what   string
		change func()
		sent   bool
	}{
		{"a new name", func() {}, true},
		{"nothing new", func() {}, false},
		{"another name", func() { s.Pod.Name = "b" }, true},
		{"it runs", func() { s.ready = true }, true},
		{"another time", func() { s.CreatedAt = time.Now() }, true},
		{"another address", func() { s.IPs = []netip.Addr{netip.IPv6Loopback()} }, true},
		{"it is gone", func() { clear(r.table) }, false},
	} {
		test.change()
		r.publish()
		select {
		case <-r.Changed():
			if got, want := r.Changes(1000), r.known[1]; !test.sent || len(got) != 1 || !got[1].equal(want) {
				t.Errorf("%s: sent %+v, known is %+v", test.what, got, want)
			}
		default:
			if test.sent {
				t.Errorf("%s: nothing was sent", test.what)
			}
		}
	}
	if _, known := r.Pod(1); known || r.Status().Pending != 0 {
		t.Errorf("known %t, %d wanted; want neither", known, r.Status().Pending)
	}
}

// Each change of the connection is logged once.
func TestConnectionLog(t *testing.T) {
	var log strings.Builder
	r := newResolver(t)
	r.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	broken, rt := errors.New("broken"), &runtime{socket: "/run/x.sock", name: "x", version: "1"}
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() { r.lost(ErrNoSocket) }, "no container runtime, pods have no names until there is one"},
		{func() { r.lost(broken) }, ""},
		{func() { r.connected(rt, 1, 0) }, "connected to the container runtime"},
		{func() { r.connected(rt, 2, 0) }, ""},
		{func() { r.lost(broken) }, "lost the container runtime, new pods have no names until it is back"},
		{func() { r.lost(ErrNoSocket) }, ""},
		{func() { r.connected(rt, 3, 0) }, "the container runtime is back"},
	} {
		log.Reset()
		step.do()
		if got := log.String(); (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("step %d: logged %q, want %q", i+1, got, step.want)
		}
	}
	if got, want := r.Status(), (Status{RuntimeStatus: document.RuntimeStatus{Socket: "/run/x.sock", Name: "x", Version: "1", Connected: true, Sandboxes: 3}}); !reflect.DeepEqual(got, want) {
		t.Errorf("status %+v, want %+v", got, want)
	}
	// A runtime that comes and goes all the time does not fill the log.
	log.Reset()
	for range 100 {
		r.lost(broken)
		r.connected(rt, 1, 0)
	}
	if n := strings.Count(log.String(), "level="); n == 0 || n > logBurst {
		t.Errorf("%d lines, want 1 to %d", n, logBurst)
	}
	// One that never responded.
	r = newResolver(t)
	log.Reset()
	r.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	r.lost(broken)
	r.lost(broken)
	if got := log.String(); strings.Count(got, "the container runtime does not answer") != 1 {
		t.Errorf("logged %q, want that it does not answer, once", got)
	}
	if got := r.Status(); got.Connected || got.Error != "broken" {
		t.Errorf("status %+v, want the error", got)
	}
}

// A netns without a name shortens the pause before the next attempt to connect, to a
// second and not below.
func TestPause(t *testing.T) {
	for _, test := range []struct {
		pause time.Duration
		want  bool
		rest  time.Duration
	}{
		{30 * time.Second, false, 30 * time.Second},
		{30 * time.Second, true, time.Second},
		{100 * time.Millisecond, true, 100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newResolver(t)
			if test.want {
				r.Request(1)
				r.Request(2)
			}
			began := time.Now()
			r.pause(t.Context(), test.pause)
			if took := time.Since(began); took != test.rest {
				t.Errorf("pause %v, wanted %v: rests %v, want %v", test.pause, test.want, took, test.rest)
			}
		})
	}
}

// A host end leads to the running pod: that of a stopped one may have the same name.
func TestByHostEnd(t *testing.T) {
	r := newResolver(t)
	result := &books.Result{HostEnds: []string{"cali7"}}
	r.table = make(table)
	for cookie := range uint64(20) {
		id := fmt.Sprint(cookie)
		r.table[id] = &sandbox{id: id, ready: cookie == 7, done: true, Change: Change{Cookie: cookie + 1, Pod: detector.Pod{Name: id}, Result: result}}
	}
	r.publish()
	if got, ok := r.ByHostEnd("cali7"); !ok || got.Pod.Name != "7" {
		t.Errorf("%+v, %t; want the running pod", got, ok)
	}
	if got, ok := r.ByHostEnd("cali8"); ok {
		t.Errorf("a host end that no result names: %+v", got)
	}
}

// libcni's cache stands in for a runtime that was never there, not for one that restarts: that one knows more.
func TestCacheOnly(t *testing.T) {
	testneeds.Root(t) // a netns is entered
	dir := t.TempDir()
	entry := `{"kind":"cniCacheV1","containerId":"aa11","ifName":"eth0","netns":"/proc/self/ns/net","cniArgs":[["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME","cart"]],"result":{}}`
	if err := os.WriteFile(filepath.Join(dir, "pods-aa11-eth0"), []byte(entry), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, before := range []string{"", "/run/x.sock"} {
		socket := filepath.Join(dir, fmt.Sprint(i, ".sock"))
		r, err := New(Options{Log: slog.New(slog.DiscardHandler), Socket: socket, Cache: dir})
		if err != nil {
			t.Fatal(err)
		}
		r.status.Socket = before
		rt, err := r.connect(t.Context())
		if before != "" {
			if !errors.Is(err, ErrNoSocket) {
				t.Errorf("connected to %+v, error %v", rt, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer rt.close()
		if list, err := rt.list(t.Context()); err != nil || len(list) != 1 || list[0].GetId() != "aa11" {
			t.Errorf("list %v, error %v", list, err)
		}
		if read, err := rt.read(t.Context(), "aa11"); err != nil || read.pod.Name != "cart" {
			t.Errorf("read %+v, error %v", read, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "pods-cc33-eth0"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]codes.Code{"bb22": codes.NotFound, "cc33": codes.Unavailable} { // gone, half written
			if _, err := rt.read(t.Context(), id); status.Code(err) != want {
				t.Errorf("entry %s: error %v, want %v", id, err, want)
			}
		}
		// A socket ends it.
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		ctx, end := rt.alive(t.Context())
		defer end()
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), errAppeared) {
			t.Errorf("ended by %v", context.Cause(ctx))
		}
	}
}
