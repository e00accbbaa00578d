package members

import (
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/internal/bounds"
	"github.com/dupip/dupip/internal/testneeds"
)

// The largest cluster: a list of all its members arrives, and leaves again. One more is refused, counted and reported, until another one has
// left; those that are there stay.
func TestMostMembers(t *testing.T) {
	if testneeds.Raced {
		t.Skip("16,384 members take minutes with the race detector")
	}
	n, other := open(t, nil, 1), newIntruder(t, testKey())
	exchange := func(list string) int64 {
		conn := other.dial(t, n)
		io.WriteString(conn, list) //nolint:errcheck // then there is no reply
		size, err := io.Copy(io.Discard, conn)
		if err != nil {
			t.Error(err)
		}
		return size
	}
	const problem = "this node has 16384 other members and accepts no more"
	var entries []string
	for i := range maxMembers + 1 {
		entries = append(entries, entry(1+i, "v1.2.3-45-g0123456789ab"))
	}
	exchange(pushPull(maxMembers-1, 0, entries[:maxMembers-1]...))
	within(t, "all but one are known", time.Minute, func() bool { return n.count() == maxMembers })
	if strings.Contains(n.problems(), problem) {
		t.Error("there is room for one")
	}
	before := bounds.Counts()["too many members"]
	exchange(pushPull(maxMembers, 0, entries[:maxMembers]...))
	within(t, "all are known", time.Minute, func() bool { return n.count() == maxMembers+1 })
	if refused := bounds.Counts()["too many members"] - before; refused > 0 || !strings.Contains(n.problems(), problem) {
		t.Errorf("%d are refused; %s", refused, n.problems())
	}
	size := exchange(pushPull(1, 0, entries[maxMembers]))
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("a list of all has %d bytes; %d MiB are in use", size, m.HeapAlloc>>20)
	within(t, "one more is refused", time.Minute, func() bool { return bounds.Counts()["too many members"] > before })
	if n.count() != maxMembers+1 || size < 100*maxMembers || size > 8<<20 {
		t.Errorf("%d members, a list of %d bytes", n.count(), size)
	}
	exchange(pushPull(1, 0, strings.Replace(entries[0], "State\xd2\x00\x00\x00\x00", "State\xd2\x00\x00\x00\x03", 1)))
	within(t, "one has left", time.Minute, func() bool { return n.count() == maxMembers && !strings.Contains(n.problems(), problem) })
	exchange(pushPull(1, 0, entries[maxMembers]))
	within(t, "there is room for another", time.Minute, func() bool { return n.count() == maxMembers+1 })
}
