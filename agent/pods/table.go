package pods

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/detector"
)

const (
	maxSandboxes = 4096 // also limits everything else
	maxID        = 256  // longer than any runtime's sandbox id
	// The pause after a failed status grows from minRetry to maxRetry.
	minRetry = time.Second
	maxRetry = 5 * time.Minute
)

// sandbox is one entry of the runtime's list, and its status.
type sandbox struct {
	Change  // with its own netns, 0 if there is none or it is unknown
	id      string
	ready   bool
	created int64 // by the runtime's clock
	done    bool  // its status was read, or need not be
	tries   int
	retryAt time.Time
}

// table follows the runtime's list, by id. It makes no calls.
type table map[string]*sandbox

// update applies a complete list and removes other sandboxes. Of a list that is too long it keeps the
// pods that run and, of the others, the youngest.
func (t *table) update(list []*runtimeapi.PodSandbox) {
	next := make(table, len(list))
	now := time.Now()
	var uptime unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &uptime) // it cannot fail
	for _, entry := range list {
		id, ready := entry.GetId(), entry.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		if id == "" || len(id) > maxID {
			continue
		}
		s := (*t)[id]
		if s == nil {
			s = &sandbox{id: id, created: entry.GetCreatedAt(), Change: Change{CreatedAt: createdAt(entry.GetCreatedAt(), now, time.Duration(uptime.Nano()))}}
		}
		if ready && !s.ready && (s.Cookie == 0 || s.Result == nil) {
			// Some runtimes list a sandbox before CNI has finished.
			s.done, s.tries, s.retryAt = false, 0, time.Time{}
		}
		s.ready = ready
		next[id] = s
	}
	if *t = next; len(next) > maxSandboxes {
		for _, s := range slices.SortedFunc(maps.Values(next), (*sandbox).compare)[maxSandboxes:] {
			delete(next, s.id)
		}
	}
}

// createdAt converts a time of creation in nanoseconds of the wall clock. In the future, or before the
// boot, it comes from a clock that was wrong.
func createdAt(nanoseconds int64, now time.Time, uptime time.Duration) time.Time {
	age := now.Sub(time.Unix(0, nanoseconds))
	if nanoseconds <= 0 || age < 0 || age > uptime {
		return time.Time{}
	}
	return now.Add(-age)
}

// compare orders sandboxes: those that run, the younger ones, by id.
func (s *sandbox) compare(other *sandbox) int {
	if s.ready != other.ready {
		if s.ready {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(other.created, s.created), cmp.Compare(s.id, other.id))
}

// due returns at most n sandboxes whose status is to be read now: first those that were never tried,
// then in the order of compare.
func (t table) due(now time.Time, n int) []*sandbox {
	var all []*sandbox
	for _, s := range t {
		if !s.done && !s.retryAt.After(now) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *sandbox) int {
		return cmp.Or(cmp.Compare(min(a.tries, 1), min(b.tries, 1)), a.compare(b))
	})
	return all[:min(n, len(all))]
}

// next returns when the next sandbox is due, false for never.
func (t table) next() (at time.Time, ok bool) {
	for _, s := range t {
		if !s.done && (!ok || s.retryAt.Before(at)) {
			at, ok = s.retryAt, true
		}
	}
	return at, ok
}

// failing reports whether reading a status failed.
func (t table) failing() bool {
	for _, s := range t {
		if !s.done && s.tries > 0 {
			return true
		}
	}
	return false
}

// failed postpones the next try to read the status.
func (s *sandbox) failed(now time.Time) {
	s.retryAt = now.Add(min(minRetry<<min(s.tries, 16), maxRetry))
	s.tries++
}

// ShortID is how many characters of the id of a sandbox crictl prints, and accepts.
const ShortID = 13

// public returns the published part. The ids of containerd and CRI-O are hexadecimal; it omits others.
func (s *sandbox) public() detector.Sandbox {
	public := detector.Sandbox{Stopped: !s.ready, VM: s.Sandbox.VM}
	if len(s.id) >= ShortID && strings.Trim(s.id, "0123456789abcdef") == "" {
		public.ID = s.id[:ShortID]
	}
	return public
}

// named returns the name of every netns. Of two sandboxes with one netns the first by compare has it.
func (t table) named() map[uint64]Change {
	named := make(map[uint64]Change, len(t))
	for _, s := range slices.SortedFunc(maps.Values(t), (*sandbox).compare) {
		if _, taken := named[s.Cookie]; s.Cookie != 0 && s.Pod.Name != "" && !taken {
			s.Sandbox = s.public()
			named[s.Cookie] = s.Change
		}
	}
	return named
}

// namespaces returns the cookies of the namespaces that sandboxes have, each with whether one of them is ready, and reports whether all
// sandboxes were read.
func (t table) namespaces() (ready map[uint64]bool, all bool) {
	ready, all = make(map[uint64]bool, len(t)), true
	for _, s := range t {
		if all = all && s.done; s.Cookie != 0 {
			ready[s.Cookie] = ready[s.Cookie] || s.ready
		}
	}
	return ready, all
}
