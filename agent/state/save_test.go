package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/testneeds"
)

// start opens a store and runs it until the test, or stop, ends it.
func start(t *testing.T, opts Options) (s *Store, stop func()) {
	t.Helper()
	s, _ = Open(opts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return s, stop
}

// fileVersion is a file that took the document's place; the zero value is none.
type fileVersion struct {
	inode   uint64
	changed int64
}

func wrote(t *testing.T, opts Options) fileVersion {
	t.Helper()
	var s unix.Stat_t
	err := unix.Stat(filepath.Join(opts.Dir, fileName), &s)
	if errors.Is(err, unix.ENOENT) {
		return fileVersion{}
	}
	if err != nil {
		t.Fatal(err)
	}
	return fileVersion{s.Ino, s.Mtim.Nano()}
}

func readBack(t *testing.T, opts Options) detector.Snapshot {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(opts.Dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	read, err := decode(data)
	if err != nil || len(read.invalid) != 0 {
		t.Fatalf("%d left out: %v", len(read.invalid), err)
	}
	return read.Snapshot
}

// The newest state is written at once, then at most once a second, and only if it changed.
func TestWritesAreSpread(t *testing.T) {
	opts := testOptions(t.TempDir())
	all := sample(t, opts.nodeID(), 0, 0, 50)
	synctest.Test(t, func(t *testing.T) {
		s, _ := start(t, opts)
		writes, last := 0, fileVersion{}
		look := func() {
			synctest.Wait()
			if now := wrote(t, opts); now != last {
				last = now
				writes++
			}
		}
		begin := time.Now()
		s.Save(State{Snapshot: all})
		look()
		if writes != 1 {
			t.Fatal("the first state is not written at once")
		}
		// A snapshot every 10 ms for 5 s.
		for i := range 500 {
			s.Save(State{Snapshot: detector.Snapshot{History: all.History[:i%49+1]}})
			time.Sleep(10 * time.Millisecond)
			look()
		}
		if writes < 5 || writes > 7 {
			t.Errorf("%d writes in %v", writes, time.Since(begin))
		}
		time.Sleep(2 * time.Second)
		look()
		if got := len(readBack(t, opts).History); got != 499%49+1 {
			t.Errorf("%d conflicts, not the newest state", got)
		}
		saved, bytes, err := s.Status()
		if info, statErr := os.Stat(filepath.Join(opts.Dir, fileName)); statErr != nil || int64(bytes) != info.Size() ||
			err != nil || saved.Before(begin) || time.Since(saved) > 3*time.Second {
			t.Errorf("status %v, %d bytes, %v", saved, bytes, err)
		}
		before := writes
		for range 20 {
			s.Save(State{Snapshot: detector.Snapshot{History: all.History[:499%49+1]}})
			time.Sleep(time.Second)
			look()
		}
		if writes != before {
			t.Errorf("%d writes of what is there already", writes-before)
		}
	})
}

// The last state is written when the agent stops, however soon after another one, and
// the directory is free then.
func TestLastWrite(t *testing.T) {
	opts := testOptions(t.TempDir())
	all := sample(t, opts.nodeID(), 0, 0, 5)
	s, stop := start(t, opts)
	s.Save(State{Snapshot: detector.Snapshot{History: all.History[:1]}})
	waitFor(t, "the first write", func() bool { return wrote(t, opts) != (fileVersion{}) })
	s.Save(State{Snapshot: all})
	stop()
	if diff := cmp.Diff(all, readBack(t, opts), sameSnapshot); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var log logged
	opts.Log = log.log()
	if read := get(t, opts); len(read.History) != 5 || len(log.lines("")) != 0 {
		t.Errorf("read %d, log %q", len(read.History), log.lines(""))
	}
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout: %s", what)
		}
	}
}

// An unusable directory is logged once and tried again with growing pauses of at most a minute; the next
// success is logged.
func TestFailureAndRecovery(t *testing.T) {
	parent := t.TempDir()
	block := filepath.Join(parent, "state")
	opts := testOptions(block)
	all := sample(t, opts.nodeID(), 1, 0, 3)
	if err := os.WriteFile(block, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log logged
	opts.Log = log.log()
	synctest.Test(t, func(t *testing.T) {
		s, _ := start(t, opts)
		if _, _, err := s.Status(); err == nil {
			t.Error("no error in the status")
		}
		for i := range 600 {
			s.Save(State{Snapshot: detector.Snapshot{Open: all.Open, History: all.History[:i%3]}})
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if got := log.lines(""); len(got) != 1 || !strings.Contains(got[0], "level=WARN") || !strings.Contains(got[0], "--state-dir") {
			t.Errorf("log %q", got)
		}
		if written, bytes, err := s.Status(); err == nil || !written.IsZero() || bytes != 0 {
			t.Errorf("status %v %d %v", written, bytes, err)
		}
		if err := os.Remove(block); err != nil {
			t.Fatal(err)
		}
		// Tried after 0, 1, 3, 7, 15, 31 and 63 s, then every minute: next after 603 s.
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if wrote(t, opts) != (fileVersion{}) {
			t.Error("written within 2 s: the pauses did not grow")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff(detector.Snapshot{Open: all.Open, History: all.History[:599%3]}, readBack(t, opts), sameSnapshot); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := log.lines(""); len(got) != 2 || !strings.Contains(got[1], `level=INFO msg="the state is written again"`) {
			t.Errorf("log %q", got)
		}
		if written, bytes, err := s.Status(); err != nil || written.IsZero() || bytes == 0 {
			t.Errorf("status %v %d %v", written, bytes, err)
		}
		// Another failure is logged again.
		if err := errorOf(os.RemoveAll(block), os.WriteFile(block, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		s.Save(State{Snapshot: all})
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := log.lines(""); len(got) != 3 {
			t.Errorf("log %q", got)
		}
	})
}

// tmpfs mounts a file system of its own; without root the test fails.
func tmpfs(t *testing.T, data string) string {
	t.Helper()
	testneeds.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("dupip-state", dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=700,"+data); err != nil {
		t.Fatalf("mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// On a full disk the last good document stays whole, nothing is left behind, and
// once there is room the newest state is written.
func TestFullDisk(t *testing.T) {
	opts := testOptions(filepath.Join(tmpfs(t, "size=1m"), "dupip"))
	var log logged
	opts.Log = log.log()
	all := sample(t, opts.nodeID(), 0, 0, 300)
	first := detector.Snapshot{History: all.History[:10]}
	s, _ := start(t, opts)
	s.Save(State{Snapshot: first})
	waitFor(t, "the first write", func() bool { return wrote(t, opts) != (fileVersion{}) })
	ballast := filepath.Join(opts.Dir, "..", "ballast")
	if err := fill(ballast); err != nil {
		t.Fatal(err)
	}
	s.Save(State{Snapshot: all})
	waitFor(t, "an error", func() bool { _, _, err := s.Status(); return err != nil })
	if _, _, err := s.Status(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("the error is %v", err)
	}
	if diff := cmp.Diff(first, readBack(t, opts), sameSnapshot); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if names := s.names(); !slices.Equal(names, []string{fileName}) {
		t.Errorf("in the directory: %v", names)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a write", func() bool { _, _, err := s.Status(); return err == nil })
	if diff := cmp.Diff(all, readBack(t, opts), sameSnapshot); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := log.lines(""); len(got) != 2 || !strings.Contains(got[0], "no space left") || !strings.Contains(got[1], "written again") {
		t.Errorf("log %q", got)
	}
}

func fill(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = file.Write(block)
	}
	if errors.Is(err, unix.ENOSPC) {
		return nil
	}
	return err
}

// On a read-only file system what is there is read, also when it has to be left there,
// and the agent runs.
func TestReadOnly(t *testing.T) {
	for _, good := range []bool{true, false} {
		dir := tmpfs(t, "size=1m")
		opts := testOptions(dir)
		want := sample(t, opts.nodeID(), 1, 0, 2)
		put(t, opts, want)
		if !good {
			want = detector.Snapshot{}
			if err := os.WriteFile(filepath.Join(dir, fileName), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		leftover := filepath.Join(dir, "."+fileName+"123")
		if err := os.WriteFile(leftover, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		remount(t, dir, unix.MS_RDONLY)
		var log logged
		opts.Log = log.log()
		s, read := Open(opts)
		if diff := cmp.Diff(want, read.Snapshot, sameSnapshot); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := log.lines("the state is invalid"); (len(got) == 0) != good {
			t.Errorf("log %q", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		s.Save(State{Snapshot: sample(t, opts.nodeID(), 2, 0, 0)})
		waitFor(t, "an error", func() bool { _, _, err := s.Status(); return err != nil })
		if _, _, err := s.Status(); !errors.Is(err, unix.EROFS) {
			t.Errorf("the error is %v", err)
		}
		remount(t, dir, 0)
		waitFor(t, "a write", func() bool { _, _, err := s.Status(); return err == nil })
		if got := len(readBack(t, opts).Open); got != 2 {
			t.Errorf("%d open", got)
		}
		if got := log.lines("read-only file system"); len(got) != 1 && good || len(got) > 2 {
			t.Errorf("log %q", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func remount(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_NODEV|unix.MS_NOSUID|flags, ""); err != nil {
		t.Fatalf("remounting: %v", err)
	}
}

// A directory that another agent uses is neither read nor written.
func TestLockedFolder(t *testing.T) {
	opts := testOptions(t.TempDir())
	mine := sample(t, opts.nodeID(), 1, 0, 1)
	s, stop := start(t, opts)
	s.Save(State{Snapshot: mine})
	waitFor(t, "the first write", func() bool { return wrote(t, opts) != (fileVersion{}) })
	before := wrote(t, opts)

	var log logged
	second := opts
	second.Log = log.log()
	other, read := Open(second)
	if len(read.Open)+len(read.History) != 0 {
		t.Errorf("read %+v", read)
	}
	ctx, cancel := context.WithCancel(t.Context())
	other.Save(State{Snapshot: sample(t, opts.nodeID(), 0, 0, 7)})
	cancel()
	if err := other.Run(ctx); err != nil {
		t.Error(err)
	}
	if wrote(t, opts) != before {
		t.Error("it was written nevertheless")
	}
	if got := log.lines(""); len(got) != 1 || !strings.Contains(got[0], "--state-dir") {
		t.Errorf("log %q", got)
	}
	if _, _, err := other.Status(); !errors.Is(err, errLocked) {
		t.Errorf("status %v", err)
	}
	stop()
	if diff := cmp.Diff(mine, get(t, opts), sameSnapshot); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A directory in which others can write is neither read nor written, until its owner mends that.
func TestForeignFolder(t *testing.T) {
	opts := testOptions(t.TempDir())
	mine := sample(t, opts.nodeID(), 1, 0, 1)
	s, stop := start(t, opts)
	s.Save(State{Snapshot: mine})
	waitFor(t, "the first write", func() bool { return wrote(t, opts) != (fileVersion{}) })
	stop()
	if err := os.Chmod(opts.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	before := wrote(t, opts)
	other, read := Open(opts)
	if len(read.Open)+len(read.History) != 0 {
		t.Errorf("read %+v", read)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	other.Save(State{Snapshot: sample(t, opts.nodeID(), 0, 0, 7)})
	if err := other.Run(ctx); err != nil {
		t.Error(err)
	}
	if _, _, err := other.Status(); !errors.Is(err, errForeign) || wrote(t, opts) != before {
		t.Errorf("status %v, and the file is %v, was %v", err, wrote(t, opts), before)
	}
	if err := os.Chmod(opts.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(mine, get(t, opts), sameSnapshot); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if unix.Geteuid() != 0 {
		return
	}
	// Another's, who could open it to others at any time.
	if err := os.Chown(opts.Dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, read := Open(opts); len(read.Open)+len(read.History) != 0 {
		t.Errorf("read %+v", read)
	}
}

// The directory of a running agent is removed: the agent creates and locks it again.
func TestFolderIsRemoved(t *testing.T) {
	opts := testOptions(filepath.Join(t.TempDir(), "dupip"))
	all := sample(t, opts.nodeID(), 0, 0, 3)
	s, _ := start(t, opts)
	s.Save(State{Snapshot: detector.Snapshot{History: all.History[:1]}})
	waitFor(t, "the first write", func() bool { return wrote(t, opts) != (fileVersion{}) })
	if err := os.RemoveAll(opts.Dir); err != nil {
		t.Fatal(err)
	}
	s.Save(State{Snapshot: all})
	waitFor(t, "another write", func() bool { return wrote(t, opts) != (fileVersion{}) })
	if diff := cmp.Diff(all, readBack(t, opts), sameSnapshot); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if other, _ := Open(opts); !other.off {
		t.Error("the new directory is not locked")
	}
}

// Only renameio's files for our document are removed.
func TestSweep(t *testing.T) {
	opts := testOptions(t.TempDir())
	keep := []string{".state.json", ".state.json12x", ".state.jsonx1", ".state2.json1", "state.json1", "notes"}
	for _, name := range append(slices.Clone(keep), ".state.json1", ".state.json9154798273409") {
		if err := os.WriteFile(filepath.Join(opts.Dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	get(t, opts)
	slices.Sort(keep)
	if got := (&Store{opts: opts}).names(); !slices.Equal(got, keep) {
		t.Errorf("left %v", got)
	}
}

// Save never waits for a write.
func TestSaveDoesNotBlock(t *testing.T) {
	s, _ := Open(testOptions(t.TempDir())) // without Run
	t.Cleanup(s.writer.unlock)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			s.Save(State{Snapshot: detector.Snapshot{}})
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("Save blocks")
	}
}
