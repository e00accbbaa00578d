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
)

const (
	// writePause is the least time between two writes.
	writePause = time.Second
	// maxPause is the longest time until a write that failed is tried again.
	maxPause = time.Minute
)

// writer belongs to Run.
type writer struct {
	dir   *os.File          // locked; nil while it is not
	sum   [sha256.Size]byte // of the last document
	pause time.Duration     // after a failure
}

// Save replaces the state to write. It never blocks. Do not change lists and map afterwards.
func (s *Store) Save(state State) {
	for {
		select {
		case s.pending <- state:
			return
		case <-s.pending: // an older one
		}
	}
}

// Run writes what was saved, at most once a second, and a last time when ctx ends. Then it unlocks the
// directory and returns nil. Call it once.
func (s *Store) Run(ctx context.Context) error {
	defer s.writer.unlock()
	for {
		select {
		case <-ctx.Done():
			s.flush()
			return nil
		case newest := <-s.pending:
			select {
			case <-ctx.Done():
			case <-time.After(s.put(newest, time.Now())):
			}
		}
	}
}

// flush writes what is pending.
func (s *Store) flush() {
	select {
	case newest := <-s.pending:
		s.put(newest, time.Now())
	default:
	}
}

// put writes a state, if it differs from what was written last, and returns the pause until the next write. After a failure the
// state is pending again.
func (s *Store) put(newest State, now time.Time) (pause time.Duration) {
	if s.off {
		return 0
	}
	w := &s.writer
	_, _, failed := s.Status()
	body := encode(newest, s.opts)
	sum := sha256.Sum256(body)
	if sum == w.sum && failed == nil {
		return 0
	}
	body = addTime(body, now)
	if err := s.write(body); err != nil {
		select {
		case s.pending <- newest:
		default: // something newer came meanwhile
		}
		s.failed(err)
		w.pause = min(max(2*w.pause, writePause), maxPause)
		return w.pause
	}
	if failed != nil {
		s.opts.Log.Info("the state is written again", "file", s.path)
	}
	w.sum, w.pause = sum, 0
	s.status.Store(&status{written: now, bytes: len(body)})
	return writePause
}

// failed records a failure, and logs the first. It belongs to Run, like put.
func (s *Store) failed(err error) {
	last := s.status.Load()
	s.status.Store(&status{last.written, err, last.bytes})
	if last.err == nil {
		s.opts.Log.Warn("writing the state failed: a restart would lose conflicts and history; "+
			"free disk space or set --state-dir to a writable directory", "file", s.path, "error", err)
	}
}

// write replaces the document: a temporary file, fsync, rename.
func (s *Store) write(data []byte) error {
	if err := s.writer.lock(s.opts.Dir); err != nil {
		return err
	}
	// Not renameio.WriteFile, which keeps the permissions of the present file.
	file, err := renameio.NewPendingFile(s.path, renameio.WithTempDir(s.opts.Dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = file.Cleanup() }() // has no effect after a success
	if _, err := file.Write(data); err != nil {
		return err
	}
	return file.CloseAtomicallyReplace()
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
	if err = unix.Fstat(int(dir.Fd()), &info); err != nil {
		err = fmt.Errorf("reading the directory: %w", err)
	} else if err = CheckOwner(&info); err == nil && errors.Is(unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		err = errLocked // some file systems have no locks for directories: other errors are none
	}
	if err != nil {
		dir.Close()
		return err
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
