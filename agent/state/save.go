package state

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/detector"
)

const (
	// writePause is the least time between two writes.
	writePause = time.Second
	// maxPause is the longest time until a write that failed is tried again.
	maxPause = time.Minute
)

// writer belongs to Run.
type writer struct {
	dir     *os.File          // locked; nil while it is not
	sum     [sha256.Size]byte // of the last document
	failing bool
	pause   time.Duration // after a failure
	next    time.Time     // no write before
}

// Save replaces the state to write. It never blocks. Do not change the lists afterwards.
func (s *Store) Save(snapshot detector.Snapshot, interfaces []observe.Origin) {
	s.mu.Lock()
	s.pending = &saved{snapshot, interfaces}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run writes what was saved, at most once a second, and a last time when ctx ends. Then it unlocks the
// directory and returns nil. Call it once.
func (s *Store) Run(ctx context.Context) error {
	defer s.writer.unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			s.flush(time.Now())
			return nil
		case <-s.wake:
		case <-timer.C:
		}
		now := time.Now()
		if wait := s.writer.next.Sub(now); wait > 0 {
			timer.Reset(wait)
			continue
		}
		if retry := s.flush(now); retry > 0 {
			timer.Reset(retry)
		}
	}
}

// flush writes what is pending, if it differs from what was written last. After a failure it returns
// the pause until the next try.
func (s *Store) flush(now time.Time) (retry time.Duration) {
	s.mu.Lock()
	newest := s.pending
	s.pending = nil
	s.mu.Unlock()
	if newest == nil || s.off {
		return 0
	}
	w := &s.writer
	body, err := encode(newest.snapshot, newest.interfaces, s.opts)
	sum := sha256.Sum256(body)
	if err == nil && sum == w.sum && !w.failing {
		return 0
	}
	var size int
	if err == nil {
		size, err = s.write(addTime(body, now))
	}
	if err != nil {
		s.mu.Lock()
		if s.pending == nil {
			s.pending = newest // nothing newer came meanwhile
		}
		s.mu.Unlock()
		s.failed(err)
		w.pause = min(max(2*w.pause, writePause), maxPause)
		w.next = now.Add(w.pause)
		return w.pause
	}
	if w.failing {
		s.log.Info("the state is written again", "file", s.path)
	}
	w.sum, w.failing, w.pause, w.next = sum, false, 0, now.Add(writePause)
	s.mu.Lock()
	s.status = status{written: now, bytes: size}
	s.mu.Unlock()
	return 0
}

// failed records a failure, and logs the first.
func (s *Store) failed(err error) {
	s.mu.Lock()
	s.status.err = err
	s.mu.Unlock()
	if s.writer.failing {
		return
	}
	s.writer.failing = true
	s.log.Warn("writing the state failed: a restart would lose conflicts and history; "+
		"free disk space or set --state-dir to a writable directory", "file", s.path, "error", err)
}

// write replaces the document: a temporary file, fsync, rename.
func (s *Store) write(data []byte) (int, error) {
	if err := s.writer.lock(s.opts.Dir); err != nil {
		return 0, err
	}
	file, err := renameio.NewPendingFile(s.path, renameio.WithTempDir(s.opts.Dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return 0, fmt.Errorf("creating the file: %w", err)
	}
	defer func() { _ = file.Cleanup() }() // has no effect after a success
	if _, err := file.Write(data); err != nil {
		return 0, fmt.Errorf("writing the file: %w", err)
	}
	if err := file.CloseAtomicallyReplace(); err != nil {
		return 0, fmt.Errorf("replacing the file: %w", err)
	}
	return len(data), nil
}

// lock makes the directory if it is missing, and locks it. A lock on the directory itself works on read-only
// file systems, leaves no file, and ends with the process. If the directory was replaced, lock locks the
// new one.
func (w *writer) lock(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("making the directory: %w", err)
	}
	if w.dir != nil {
		held, err := w.dir.Stat()
		if err != nil {
			return fmt.Errorf("reading the directory: %w", err)
		}
		if current, err := os.Stat(path); err == nil && os.SameFile(held, current) {
			return nil
		}
		w.unlock()
	}
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("opening the directory: %w", err)
	}
	var info unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &info); err != nil {
		dir.Close()
		return fmt.Errorf("reading the directory: %w", err)
	}
	if err := CheckOwner(&info); err != nil {
		dir.Close()
		return err
	}
	// Some file systems have no locks for directories.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		dir.Close()
		return errLocked
	}
	w.dir = dir
	return nil
}

func (w *writer) unlock() {
	if w.dir != nil {
		w.dir.Close()
		w.dir = nil
	}
}
