package links_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
)

// signal closes itself when a log line has these words.
type signal struct {
	words string
	seen  chan struct{}
}

func (s *signal) Write(line []byte) (int, error) {
	if s.words != "" && bytes.Contains(line, []byte(s.words)) {
		s.words = ""
		close(s.seen)
	}
	return len(line), nil
}

// TestUnseenForLong: a process enters a netns that nothing has led to but a mount that the agent does not know. No event tells of that, and
// the agent goes on to look for it.
func TestUnseenForLong(t *testing.T) {
	pod := ownnetns.NewPod(t)
	addVeth(t, pod, "pod1", "10.1.1.1/24")
	mount := filepath.Join(t.TempDir(), "netns")
	must(t, os.WriteFile(mount, nil, 0o600))
	must(t, unix.Mount(pod.Path(), mount, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	pod.Delete()

	log := &signal{"failures=9", make(chan struct{})}
	_, wait := watch(t, links.Options{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if e := wait("pod1", named(links.Added, "pod1")); e.Interface.Seen {
		t.Fatalf("the netns is found: %+v", e.Interface.Netns)
	}
	select {
	case <-log.seen:
	case <-time.After(time.Minute):
		t.Fatal("too few scans")
	}
	process := exec.Command("nsenter", fmt.Sprint("--net=", mount), "cat")
	_, err := process.StdinPipe()
	must(t, err)
	must(t, process.Start())
	t.Cleanup(func() { _, _ = process.Process.Kill(), process.Wait() })
	began := time.Now()
	wait("the netns", holds(links.Changed, "pod1", "10.1.1.1"))
	t.Logf("found after %v", time.Since(began))
}
