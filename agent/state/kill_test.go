package state

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
)

const childFolder = "DUPIP_TEST_STATE_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childFolder); dir != "" {
		writeForever(dir)
		return
	}
	os.Exit(m.Run())
}

// writeForever writes different states without a pause until it is killed.
func writeForever(dir string) {
	opts := testOptions(dir)
	s, _ := Open(opts)
	all, err := makeSample(opts.nodeID(), 2, 1, 40)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for i := 0; ; i = (i + 1) % len(all.History) {
		s.Save(State{Snapshot: detector.Snapshot{Open: all.Open, History: all.History[:i+1], Former: all.Former}})
		s.flush()
		if _, _, err := s.Status(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// An agent is killed while it writes. The next one always finds a complete document, removes temporary
// files, and can lock the directory.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	leftovers, kills := 0, 0
	// Most kills do not hit a write, on some disks very few do.
	for ; kills < 50 || leftovers == 0 && kills < 500; kills++ {
		child := exec.CommandContext(t.Context(), "/proc/self/exe")
		child.Env = append(os.Environ(), childFolder+"="+dir)
		child.Stderr = os.Stderr
		before := modified(dir)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "a write of the child", func() bool { return !modified(dir).Equal(before) })
		time.Sleep(rand.N(20 * time.Millisecond)) // a random moment
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait() // killed, it says

		var log logged
		opts := testOptions(dir)
		opts.Log = log.log()
		if slices.ContainsFunc((&Store{opts: opts}).names(), temporary.MatchString) {
			leftovers++
		}
		s, read := Open(opts)
		if lines := log.lines(""); len(lines) != 0 {
			t.Fatalf("log %q", lines)
		}
		want := sample(t, opts.nodeID(), 2, 1, 40)
		want.History = want.History[:min(max(len(read.History), 1), len(want.History))]
		if diff := cmp.Diff(want, read.Snapshot, sameSnapshot); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if names := s.names(); !slices.Equal(names, []string{fileName}) {
			t.Fatalf("in the directory: %v", names)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Run(ctx); err != nil { // unlocks the directory
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d were killed between two renames", leftovers, kills)
	if leftovers == 0 {
		t.Error("no kill hit a write: the test tests nothing")
	}
}

func modified(dir string) time.Time {
	info, err := os.Stat(filepath.Join(dir, fileName))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
