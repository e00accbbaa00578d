package soak

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/soak/judge"
)

const (
	// maxEntries is how many entries are kept for histories; the file has all.
	maxEntries = 50_000
	// storyTime is how far back the history of a finding goes.
	historyTime = 60 * time.Second
	// maxEnd is how many entries are printed where the file cannot be kept.
	maxEnd = 5_000
)

// entry is one line of the journal. It is about some addresses and pods; about nothing
// means about everything.
type entry struct {
	at   time.Duration
	ips  []netip.Addr
	pods []string
	text string
}

func (e *entry) String() string { return fmt.Sprintf("%10.3f  %s", e.at.Seconds(), e.text) }

// journal is the log of all that happens: in a file, and the latest in memory.
type journal struct {
	// dir is where the file is, and what else is kept of findings.
	dir   string
	start time.Time

	mu      sync.Mutex
	file    *os.File
	entries []entry
	has     map[judge.Holder]string
}

// newJournal begins a journal. Its folder is removed unless the test fails or -keep is given.
func newJournal(t *lab.T, start time.Time) *journal {
	dir, err := os.MkdirTemp("", "dupip-soak-")
	t.Do(err)
	file, err := os.Create(filepath.Join(dir, "journal"))
	t.Do(err)
	j := &journal{dir: dir, start: start, file: file, has: make(map[judge.Holder]string)}
	t.Cleanup(func() {
		_ = file.Close()
		if t.Failed() && os.Getenv("CI") == "true" { // where the file is not available
			t.Logf("the end of the journal:\n%s", j.end())
		}
		if !t.Failed() && !*keep {
			_ = os.RemoveAll(dir)
		}
	})
	return j
}

// note writes something down that happens now.
func (j *journal) note(ips []netip.Addr, pods []string, format string, args ...any) {
	j.noteAt(time.Since(j.start), ips, pods, fmt.Sprintf(format, args...))
}

func (j *journal) noteAt(at time.Duration, ips []netip.Addr, pods []string, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := entry{at, ips, pods, text}
	if len(j.entries) == maxEntries {
		j.entries = slices.Delete(j.entries, 0, maxEntries/2)
	}
	j.entries = append(j.entries, e)
	_, _ = fmt.Fprintln(j.file, e.String())
}

// snapshot writes down what a look changed. A line about a pod is about its addresses and
// about the pod, whatever it has.
func (j *journal) snapshot(l judge.Snapshot) {
	text := fmt.Sprint(l.Has)
	if len(l.Maybe) > 0 {
		text += fmt.Sprintf(", perhaps %v", l.Maybe)
	}
	j.mu.Lock()
	before, known := j.has[l.Holder]
	j.has[l.Holder] = text
	nothing := len(l.Has)+len(l.Maybe) == 0
	if nothing {
		delete(j.has, l.Holder)
	}
	j.mu.Unlock()
	if before == text || !known && nothing {
		return
	}
	name := l.Holder.Netns[strings.LastIndexByte(l.Holder.Netns, '-')+1:]
	j.noteAt(l.To, slices.Concat(l.Has, l.Maybe), []string{name},
		fmt.Sprintf("kernel: %s/%s has %s, had %s", l.Holder.Node, name, text, before))
}

// concerns returns whether an entry is about everything, about an address, or about one of the pods
// alone.
func (e *entry) concerns(ip netip.Addr, pods []string) bool {
	switch {
	case len(e.ips)+len(e.pods) == 0, slices.Contains(e.ips, ip):
		return true
	case len(e.ips) > 0 && len(e.pods) != 1:
		return false
	}
	return slices.ContainsFunc(e.pods, func(p string) bool { return p != "host" && slices.Contains(pods, p) })
}

// history are the latest entries that concern an address or some pods.
func (j *journal) history(ip netip.Addr, pods []string, until time.Duration) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var lines []entry
	for _, e := range j.entries {
		if e.at > until-historyTime && e.concerns(ip, pods) {
			lines = append(lines, e)
		}
	}
	slices.SortStableFunc(lines, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	var text strings.Builder
	for _, e := range lines {
		text.WriteString(e.String() + "\n")
	}
	return text.String()
}

// end are the latest entries about anything.
func (j *journal) end() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var text strings.Builder
	for _, e := range j.entries[max(0, len(j.entries)-maxEnd):] {
		text.WriteString(e.String() + "\n")
	}
	return text.String()
}
