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

	"github.com/dupip/dupip/detector"
)

const (
	// writePause is the least time between two writes.
	writePause = time.Second
	// maxPause is the longest time until a write that failed is tried again.
	maxPause = time.Minute
)

// writer is what Run knows of the folder.
type writer struct {
	dir     *os.File // the lock; nil while there is none
	sum     [sha256.Size]byte
	failing bool
	pause   time.Duration
	next    time.Time // not before then
}

// Save hands over the newest state. It never blocks; what was not written yet is
// replaced. The snapshot must not be changed afterwards.
func (s *Store) Save(snapshot detector.Snapshot) {
	s.mu.Lock()
	s.pending = &snapshot
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run writes what is saved, at most once a second, and a last time when ctx ends. The
// last Save must come before that. Then it gives the folder free. It is to be called
// once, and returns nil.
func (s *Store) Run(ctx context.Context) error {
	defer s.writer.release()
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

// flush writes what is pending, if it says anything new. After a failure it returns
// when to try again.
func (s *Store) flush(now time.Time) (retry time.Duration) {
	s.mu.Lock()
	snapshot := s.pending
	s.pending = nil
	s.mu.Unlock()
	if snapshot == nil || s.off {
		return 0
	}
	w := &s.writer
	body, err := encode(*snapshot, s.opts)
	sum := sha256.Sum256(body)
	if err == nil && sum == w.sum && !w.failing {
		return 0
	}
	var size int
	if err == nil {
		size, err = s.write(stamp(body, now))
	}
	if err != nil {
		s.mu.Lock()
		if s.pending == nil {
			s.pending = snapshot // nothing newer came meanwhile
		}
		s.mu.Unlock()
		s.failed(err)
		w.pause = min(max(2*w.pause, writePause), maxPause)
		w.next = now.Add(w.pause)
		return w.pause
	}
	if w.failing {
		s.log.Warn("the state is written again", "file", s.path)
	}
	w.sum, w.failing, w.pause, w.next = sum, false, 0, now.Add(writePause)
	s.mu.Lock()
	s.status = status{written: now, bytes: size}
	s.mu.Unlock()
	return 0
}

// failed notes a failure, and says so when it is the first.
func (s *Store) failed(err error) {
	s.mu.Lock()
	s.status.err = err
	s.mu.Unlock()
	if s.writer.failing {
		return
	}
	s.writer.failing = true
	s.log.Warn("the state cannot be written: until it can, conflicts and history do not outlive the agent; "+
		"make room or set --state-dir to a writable folder", "file", s.path, "error", err)
}

// write puts the document in its place: a temporary file, fsync, rename.
func (s *Store) write(data []byte) (int, error) {
	if err := s.writer.take(s.opts.Dir); err != nil {
		return 0, err
	}
	file, err := renameio.NewPendingFile(s.path, renameio.WithTempDir(s.opts.Dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return 0, fmt.Errorf("creating the file: %w", err)
	}
	// After a success it does nothing, and after a failure its own is of no interest.
	defer func() { _ = file.Cleanup() }()
	if _, err := file.Write(data); err != nil {
		return 0, fmt.Errorf("writing the file: %w", err)
	}
	if err := file.CloseAtomicallyReplace(); err != nil {
		return 0, fmt.Errorf("replacing the file: %w", err)
	}
	return len(data), nil
}

// take makes the folder if it is missing, and locks it. The lock is on the folder
// itself, which works on read-only file systems too, leaves no file, and ends
// with the process. A folder that was replaced meanwhile is locked anew.
func (w *writer) take(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	if w.dir != nil {
		held, err := w.dir.Stat()
		if err != nil {
			return fmt.Errorf("looking at the folder: %w", err)
		}
		if there, err := os.Stat(path); err == nil && os.SameFile(held, there) {
			return nil
		}
		w.release()
	}
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("opening the folder: %w", err)
	}
	// A file system that has no locks for folders is used without.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		dir.Close()
		return errLocked
	}
	w.dir = dir
	return nil
}

func (w *writer) release() {
	if w.dir != nil {
		w.dir.Close()
		w.dir = nil
	}
}
