package pods

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/detector"
)

func TestParseSocket(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
		ok   bool
	}{
		{"", DefaultSockets, true},
		{"none", nil, true},
		{"off", nil, true},
		{"/run/x.sock", []string{"/run/x.sock"}, true},
		{"unix:///run/x.sock", []string{"/run/x.sock"}, true},
		{"tcp://127.0.0.1:1", nil, false},
		{"run/x.sock", nil, false},
		{"unix://", nil, false},
		{"/" + strings.Repeat("x", 107), nil, false},
		{"/run/\x00", nil, false},
	} {
		got, err := parseSocket(test.text)
		if (err == nil) != test.ok {
			t.Errorf("%q: error %v, want ok %v", test.text, err, test.ok)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.text, diff)
		}
	}
}

func TestWants(t *testing.T) {
	w := wants{cookies: make(map[uint64]struct{})}
	now := time.Unix(0, 0)
	if !w.add(1, now) || w.add(1, now) {
		t.Error("one cookie is wanted twice, or not at all")
	}
	var got []time.Duration
	for !w.at.IsZero() {
		got = append(got, w.at.Sub(now))
		now = w.at
		w.listed(now)
	}
	if diff := cmp.Diff(pauses, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
	// The next one starts anew, and what is resolved asks for nothing.
	w.add(2, now)
	if got := w.at.Sub(now); got != pauses[0] {
		t.Errorf("the next cookie waits %v, want %v", got, pauses[0])
	}
	clear(w.cookies)
	w.listed(now)
	if !w.at.IsZero() {
		t.Error("a list is due though nothing is wanted")
	}
	for i := range uint64(3 * maxWanted) {
		w.add(i, now)
	}
	if len(w.cookies) > maxWanted {
		t.Errorf("%d cookies, want at most %d", len(w.cookies), maxWanted)
	}
}

// Who reads slowly, or not at all, gets the last name of each netns, and nothing of those
// that are gone; nobody waits for them.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.deliver(ctx)
		synctest.Wait()
		publish := func(cookies int, generation int) {
			clear(r.table.byID)
			for i := range cookies {
				id := fmt.Sprint(generation, "-", i)
				r.table.byID[id] = &sandbox{id: id, asked: true, cookie: uint64(i + 1), pod: detector.Pod{Name: id}}
			}
			r.publish()
			synctest.Wait()
		}
		const cookies = 1000
		for generation := range 100 {
			publish(cookies, generation)
		}
		publish(cookies/2, 100)
		if n := len(r.pending); n > cookies/2 {
			t.Errorf("%d changes wait, want at most one for each netns there is", n)
		}
		last := make(map[uint64]string)
		for {
			synctest.Wait()
			select {
			case change := <-r.Changes():
				last[change.Cookie] = change.Pod.Name
				continue
			default:
			}
			break
		}
		for i := range cookies / 2 {
			if want := fmt.Sprint(100, "-", i); last[uint64(i+1)] != want {
				t.Fatalf("the last name of netns %d is %q, want %q", i+1, last[uint64(i+1)], want)
			}
		}
		// Nothing new, nothing sent.
		publish(cookies/2, 100)
		if n := len(r.pending) + len(r.changes); n != 0 {
			t.Errorf("%d changes without a change", n)
		}
	})
}

// A sandbox that a runtime lists before its netns is there is asked for again when it runs.
func TestReadyLater(t *testing.T) {
	table := table{byID: make(map[string]*sandbox)}
	s := listed("a", false)
	table.update(s)
	table.byID["a"].asked = true
	now := time.Now()
	if due := table.due(now, 10); len(due) != 0 {
		t.Fatal("a sandbox that was asked for is due")
	}
	table.update(listed("a", true))
	if due := table.due(now, 10); len(due) != 1 {
		t.Error("it is ready now and not due")
	}
	table.byID["a"].asked, table.byID["a"].cookie = true, 1
	table.update(listed("a", false))
	table.update(listed("a", true))
	if due := table.due(now, 10); len(due) != 0 {
		t.Error("its netns is known and it is due")
	}
}

// The table keeps to its bound: what runs stays, and the youngest of the rest.
func TestTableIsBounded(t *testing.T) {
	var list []*runtimeapi.PodSandbox
	for i := range 3 * maxSandboxes {
		entry := listed(fmt.Sprint(i), false)[0]
		entry.CreatedAt = int64(i)
		list = append(list, entry)
	}
	list[0].State = runtimeapi.PodSandboxState_SANDBOX_READY
	table := table{byID: make(map[string]*sandbox)}
	table.update(list)
	if n := len(table.byID); n != maxSandboxes {
		t.Errorf("%d sandboxes, want %d", n, maxSandboxes)
	}
	for _, id := range []int{0, 3*maxSandboxes - 1, 2*maxSandboxes + 1} {
		if table.byID[fmt.Sprint(id)] == nil {
			t.Errorf("sandbox %d is left out", id)
		}
	}
	table.update(nil)
	if n := len(table.byID); n != 0 {
		t.Errorf("%d sandboxes after an empty list", n)
	}
}

// A netns without a name shortens the pause before the next attempt to connect, to a
// second and not below.
func TestRest(t *testing.T) {
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
			r, err := New(Options{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			if test.want {
				r.Want(1)
				r.Want(2)
			}
			began := time.Now()
			r.rest(t.Context(), test.pause)
			if took := time.Since(began); took != test.rest {
				t.Errorf("pause %v, wanted %v: rests %v, want %v", test.pause, test.want, took, test.rest)
			}
		})
	}
}

// Questions in vain come ever more seldom, and after those that were never asked.
func TestVain(t *testing.T) {
	now := time.Now()
	s := &sandbox{id: "a", ready: true, created: 9}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		s.vain(now)
		if got := s.askAt.Sub(now); got != want*time.Second {
			t.Errorf("pause %v, want %v", got, want*time.Second)
		}
	}
	for range 100 {
		s.vain(now)
	}
	if got := s.askAt.Sub(now); got != maxAskAgain {
		t.Errorf("pause %v after many tries, want %v", got, maxAskAgain)
	}
	table := table{byID: map[string]*sandbox{"a": s, "b": {id: "b"}}}
	due := table.due(now.Add(time.Hour), 1)
	if len(due) != 1 || due[0].id != "b" {
		t.Errorf("due is %+v, want the one that was never asked for", due)
	}
}

func listed(id string, ready bool) []*runtimeapi.PodSandbox {
	state := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	if ready {
		state = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return []*runtimeapi.PodSandbox{{Id: id, State: state}}
}

// A sandbox has an age only if the clock that it was made by may be that of today.
func TestCreatedAt(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const uptime = time.Hour
	for _, test := range []struct {
		name        string
		nanoseconds int64
		want        time.Time
	}{
		{"a moment ago", now.Add(-time.Millisecond).UnixNano(), now.Add(-time.Millisecond)},
		{"at boot", now.Add(-uptime).UnixNano(), now.Add(-uptime)},
		{"before this boot", now.Add(-uptime - 1).UnixNano(), time.Time{}},
		{"in the future", now.Add(1).UnixNano(), time.Time{}},
		{"never", 0, time.Time{}},
		{"nonsense", -1 << 63, time.Time{}},
		{"more nonsense", 1<<63 - 1, time.Time{}},
	} {
		if got := createdAt(test.nanoseconds, now, uptime); !got.Equal(test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	// The clock may be stepped while the sandbox lives: it is asked only once.
	var table table
	sandbox := []*runtimeapi.PodSandbox{{Id: "a", CreatedAt: time.Now().Add(-time.Second).UnixNano()}}
	table.update(sandbox)
	before := table.byID["a"].createdAt
	table.update(sandbox)
	if after := table.byID["a"].createdAt; before.IsZero() || after != before {
		t.Errorf("created at %v, then at %v", before, after)
	}
}

// A path below /var/run is found where only /run is there.
func TestPaths(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]string{
		"":                      nil,
		"/run/netns/a":          {"/run/netns/a"},
		"/var/run/netns/a":      {"/var/run/netns/a", "/run/netns/a"},
		"/var/running/a":        {"/var/running/a"},
		"/proc/4711/ns/net":     {"/proc/4711/ns/net"},
		"/data/var/run/netns/a": {"/data/var/run/netns/a"},
	} {
		if diff := cmp.Diff(want, report{path: path}.paths()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", path, diff)
		}
	}
}
