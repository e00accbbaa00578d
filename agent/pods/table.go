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
	// The pause after a question in vain grows from minAskAgain to maxAskAgain.
	minAskAgain = time.Second
	maxAskAgain = 5 * time.Minute
)

// sandbox is one entry of the runtime's list, and what its status said.
type sandbox struct {
	id      string
	ready   bool
	created int64
	// createdAt is the same, on this process's clock; zero if it makes no sense.
	createdAt time.Time
	// asked says that there is nothing more to ask.
	asked bool
	tries int
	askAt time.Time
	// cookie is that of its netns, 0 if it has none of its own or it is not known.
	cookie uint64
	pod    detector.Pod
	ips    []netip.Addr
}

// table follows the runtime's list. It makes no calls.
type table struct {
	byID map[string]*sandbox
}

// update takes a complete list: what is not on it is forgotten. Of one that is too long
// it takes the pods that run and, of the others, the youngest.
func (t *table) update(list []*runtimeapi.PodSandbox) {
	if len(list) > maxSandboxes {
		list = slices.Clone(list)
		slices.SortFunc(list, func(a, b *runtimeapi.PodSandbox) int {
			return preference(isReady(a), isReady(b), a.GetCreatedAt(), b.GetCreatedAt(), a.GetId(), b.GetId())
		})
		list = list[:maxSandboxes]
	}
	next := make(map[string]*sandbox, len(list))
	for _, entry := range list {
		id := entry.GetId()
		if id == "" || len(id) > maxID {
			continue
		}
		s := t.byID[id]
		if s == nil {
			s = &sandbox{id: id, created: entry.GetCreatedAt()}
			s.createdAt = createdAt(s.created, time.Now(), uptime())
		}
		if isReady(entry) && !s.ready && s.cookie == 0 {
			// Some runtimes list a sandbox before its netns is there.
			s.asked, s.tries, s.askAt = false, 0, time.Time{}
		}
		s.ready = isReady(entry)
		next[id] = s
	}
	t.byID = next
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

func isReady(s *runtimeapi.PodSandbox) bool {
	return s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
}

// preference orders sandboxes: those that run, the younger ones, by id.
func preference(aReady, bReady bool, aCreated, bCreated int64, aID, bID string) int {
	if aReady != bReady {
		if aReady {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(bCreated, aCreated), cmp.Compare(aID, bID))
}

func (s *sandbox) compare(other *sandbox) int {
	return preference(s.ready, other.ready, s.created, other.created, s.id, other.id)
}

// due returns at most n sandboxes to ask about now: those that were never asked for, then
// in order of preference.
func (t *table) due(now time.Time, n int) []*sandbox {
	var all []*sandbox
	for _, s := range t.byID {
		if !s.asked && !s.askAt.After(now) {
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
		if !s.asked && (!ok || s.askAt.Before(at)) {
			at, ok = s.askAt, true
		}
	}
	return at, ok
}

// troubled says that some sandbox was asked for in vain.
func (t *table) troubled() bool {
	for _, s := range t.byID {
		if !s.asked && s.tries > 0 {
			return true
		}
	}
	return false
}

// vain puts off the next question about a sandbox.
func (s *sandbox) vain(now time.Time) {
	s.askAt = now.Add(min(minAskAgain<<min(s.tries, 16), maxAskAgain))
	s.tries++
}

// shortID is how much of an id crictl prints, and takes.
const shortID = 13

// public is what others are told of it. The id of containerd and CRI-O is hexadecimal; another
// is not one that people could type.
func (s *sandbox) public() detector.Sandbox {
	told := detector.Sandbox{Stopped: !s.ready}
	if len(s.id) >= shortID && strings.Trim(s.id, "0123456789abcdef") == "" {
		told.ID = s.id[:shortID]
	}
	return told
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
