package pods

import (
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/detector"
)

// A sandbox that a runtime lists before its netns is there is read again when it runs.
func TestReadyLater(t *testing.T) {
	table := make(table)
	s := listed("a", false)
	table.update(s)
	table["a"].done = true
	now := time.Now()
	if due := table.due(now, 10); len(due) != 0 {
		t.Fatal("a sandbox that was asked for is due")
	}
	table.update(listed("a", true))
	if due := table.due(now, 10); len(due) != 1 {
		t.Error("it is ready now and not due")
	}
	for _, result := range []*books.Result{nil, {}} {
		s := table["a"]
		s.done, s.Cookie, s.Result = true, 1, result
		table.update(listed("a", false))
		table.update(listed("a", true))
		if due := len(table.due(now, 10)) == 1; due != (result == nil) {
			t.Errorf("its netns is known, and its result %v: due is %t", result, due)
		}
	}
}

// A full table keeps sandboxes that run, and the youngest of the others.
func TestTableIsBounded(t *testing.T) {
	var list []*runtimeapi.PodSandbox
	for i := range 3 * maxSandboxes {
		entry := listed(fmt.Sprint(i), false)[0]
		entry.CreatedAt = int64(i)
		list = append(list, entry)
	}
	list[0].State = runtimeapi.PodSandboxState_SANDBOX_READY
	table := make(table)
	table.update(list)
	if n := len(table); n != maxSandboxes {
		t.Errorf("%d sandboxes, want %d", n, maxSandboxes)
	}
	for _, id := range []int{0, 3*maxSandboxes - 1, 2*maxSandboxes + 1} {
		if table[fmt.Sprint(id)] == nil {
			t.Errorf("sandbox %d is left out", id)
		}
	}
	table.update(nil)
	if n := len(table); n != 0 {
		t.Errorf("%d sandboxes after an empty list", n)
	}
}

// Failed sandboxes are tried with growing pauses, after those that were never tried.
func TestFailed(t *testing.T) {
	now := time.Now()
	s := &sandbox{id: "a", ready: true, created: 9}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		s.failed(now)
		if got := s.retryAt.Sub(now); got != want*time.Second {
			t.Errorf("pause %v, want %v", got, want*time.Second)
		}
	}
	for range 100 {
		s.failed(now)
	}
	if got := s.retryAt.Sub(now); got != maxRetry {
		t.Errorf("pause %v after many tries, want %v", got, maxRetry)
	}
	table := table{"a": s, "b": {id: "b"}}
	due := table.due(now.Add(time.Hour), 1)
	if len(due) != 1 || due[0].id != "b" {
		t.Errorf("due is %+v, want the one that was never tried", due)
	}
}

func listed(id string, ready bool) []*runtimeapi.PodSandbox {
	state := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	if ready {
		state = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return []*runtimeapi.PodSandbox{{Id: id, State: state}}
}

// A time of creation in the future or before the boot is dropped.
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
	// The clock may be stepped later: it is read only once.
	var table table
	sandbox := []*runtimeapi.PodSandbox{{Id: "a", CreatedAt: time.Now().Add(-time.Second).UnixNano()}}
	table.update(sandbox)
	before := table["a"].CreatedAt
	table.update(sandbox)
	if after := table["a"].CreatedAt; before.IsZero() || after != before {
		t.Errorf("created at %v, then at %v", before, after)
	}
}

// The published part of a sandbox's id is safe in a command.
func TestSandboxID(t *testing.T) {
	for id, want := range map[string]string{
		"0123456789abcdef0123": "0123456789abc", "0123456789abc": "0123456789abc",
		"0123456789ab": "", "": "", "my-sandbox-0001": "", "0123456789abc;reboot": "", "0123456789ABCDEF": "",
	} {
		if got := (&sandbox{id: id, ready: true}).public(); got != (detector.Sandbox{ID: want}) {
			t.Errorf("%q: %+v, want %q", id, got, want)
		}
	}
}
