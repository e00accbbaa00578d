package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// NameWatch tells when there are new names of namespaces (inotify(7)). Wait may run beside the other methods.
type NameWatch struct {
	fd   int
	file *os.File
}

// WatchNames begins to watch the directories in which runtimes and iproute2 name namespaces.
func WatchNames() (*NameWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("opening a watch for names of namespaces: %w", err)
	}
	w := &NameWatch{fd, os.NewFile(uintptr(fd), "inotify")}
	if err := w.AddDirectories(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// AddDirectories adds those that were made, or made again, after WatchNames.
func (w *NameWatch) AddDirectories() error {
	for _, dir := range namedDirs {
		if _, err := unix.InotifyAddWatch(w.fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("watching %s: %w", dir, err)
		}
	}
	return nil
}

// Wait waits until there are new names. A netns may get a name a moment after there is one: first an empty file is made, then the netns is
// mounted on it. The error matches [os.ErrClosed] after Close.
func (w *NameWatch) Wait() error {
	var events [4096]byte
	_, err := w.file.Read(events[:])
	return err
}

// Close ends the watch.
func (w *NameWatch) Close() error { return w.file.Close() }
