package pods

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/detector"
)

const (
	// maxSandboxes bounds the table, and with it everything else.
	maxSandboxes = 4096
	// maxID is longer than any runtime's sandbox id.
	maxID = 256
	// The pause after a status that could not be read grows from minRetry to maxRetry.
	minRetry = time.Second
	maxRetry = 5 * time.Minute
)

// sandbox is one entry of the runtime's list, and what its status had.
type sandbox struct {
	id      string
	ready   bool
	created int64
	// createdAt is the same, on this process's clock; zero if it makes no sense.
	createdAt time.Time
	// done says that its status was read, or need not be.
	done    bool
	tries   int
	retryAt time.Time
	// cookie is that of its netns, 0 if it has none of its own or it is not known.
	cookie uint64
	pod    detector.Pod
	ips    []netip.Addr
}

// table follows the runtime's list. It makes no calls.
type table struct {
	byID map[string]*sandbox
}

// update follows a complete list: it forgets what is not on it. Of one that is too long
// it takes the pods that run and, of the others, the youngest.
func (t *table) update(list []*runtimeapi.PodSandbox) {
	next := make(map[string]*sandbox, len(list))
	now, uptime := time.Now(), uptime()
	for _, entry := range list {
		id, ready := entry.GetId(), entry.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		if id == "" || len(id) > maxID {
			continue
		}
		s := t.byID[id]
		if s == nil {
			s = &sandbox{id: id, created: entry.GetCreatedAt(), createdAt: createdAt(entry.GetCreatedAt(), now, uptime)}
		}
		if ready && !s.ready && s.cookie == 0 {
			// Some runtimes list a sandbox before its netns is there.
			s.done, s.tries, s.retryAt = false, 0, time.Time{}
		}
		s.ready = ready
		next[id] = s
	}
	if t.byID = next; len(next) > maxSandboxes {
		for _, s := range slices.SortedFunc(maps.Values(next), (*sandbox).compare)[maxSandboxes:] {
			delete(next, s.id)
		}
	}
}

// createdAt translates a sandbox's time of creation, in nanoseconds of the wall clock. What
// lies in the future, or before this boot, was not read from the clock of today.
func createdAt(nanoseconds int64, now time.Time, uptime time.Duration) time.Time {
	age := now.Sub(time.Unix(0, nanoseconds))
	if nanoseconds <= 0 || age < 0 || age > uptime {
		return time.Time{}
	}
	return now.Add(-age)
}

// uptime is how long ago the machine was booted.
func uptime() time.Duration {
	var clock unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &clock) != nil {
		return 0
	}
	return time.Duration(clock.Nano())
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

// due returns at most n sandboxes whose status is to be read now: those that were never tried,
// then in order of preference.
func (t *table) due(now time.Time, n int) []*sandbox {
	var all []*sandbox
	for _, s := range t.byID {
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
func (t *table) next() (at time.Time, ok bool) {
	for _, s := range t.byID {
		if !s.done && (!ok || s.retryAt.Before(at)) {
			at, ok = s.retryAt, true
		}
	}
	return at, ok
}

// failing reports whether the status of some sandbox could not be read.
func (t *table) failing() bool {
	for _, s := range t.byID {
		if !s.done && s.tries > 0 {
			return true
		}
	}
	return false
}

// failed puts off the next try to read the status.
func (s *sandbox) failed(now time.Time) {
	s.retryAt = now.Add(min(minRetry<<min(s.tries, 16), maxRetry))
	s.tries++
}

// shortID is how much of an id crictl prints, and takes.
const shortID = 13

// public is what is published of it. The id of containerd and CRI-O is hexadecimal; another
// is not one that people could type.
func (s *sandbox) public() detector.Sandbox {
	public := detector.Sandbox{Stopped: !s.ready}
	if len(s.id) >= shortID && strings.Trim(s.id, "0123456789abcdef") == "" {
		public.ID = s.id[:shortID]
	}
	return public
}

// named returns the name of every netns. Of two sandboxes that claim one netns the
// preferred one has it.
func (t *table) named() map[uint64]Change {
	named := make(map[uint64]Change, len(t.byID))
	for _, s := range slices.SortedFunc(maps.Values(t.byID), (*sandbox).compare) {
		if _, taken := named[s.cookie]; s.cookie != 0 && s.pod.Name != "" && !taken {
			named[s.cookie] = Change{Cookie: s.cookie, Pod: s.pod, CreatedAt: s.createdAt, Sandbox: s.public(), IPs: s.ips}
		}
	}
	return named
}
