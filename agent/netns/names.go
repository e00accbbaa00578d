package netns

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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

// AddDirectories watches the directories that exist, and for each that does not the nearest above it, until something is made there.
// Call it again after [NameWatch.Wait].
func (w *NameWatch) AddDirectories() error {
	for _, dir := range namedDirs {
		if err := w.add(dir); err != nil {
			return err
		}
	}
	return nil
}

func (w *NameWatch) add(dir string) error {
	const made = unix.IN_CREATE | unix.IN_MOVED_TO
	_, err := unix.InotifyAddWatch(w.fd, dir, made)
	for missing := dir; errors.Is(err, fs.ErrNotExist) && missing != "/"; missing = filepath.Dir(missing) {
		_, err = unix.InotifyAddWatch(w.fd, filepath.Dir(missing), made|unix.IN_ONESHOT)
		if _, exists := os.Lstat(missing); err == nil && exists == nil {
			return w.add(dir) // it was made before the watch
		}
	}
	if err != nil {
		return fmt.Errorf("watching %s: %w", dir, err)
	}
	return nil
}

// Wait waits until there may be new names. A netns may get a name a moment after there is one: first an empty file is made, then the netns is
// mounted on it. The error matches [os.ErrClosed] after Close.
func (w *NameWatch) Wait() error {
	var events [4096]byte
	_, err := w.file.Read(events[:])
	return err
}

// Close ends the watch.
func (w *NameWatch) Close() error { return w.file.Close() }

// Named are the entries of a directory in which runtimes and iproute2 name namespaces.
type Named struct {
	Dir     string
	Missing bool // the directory does not exist
	// Namespaces and Plain are the names that lead to a namespace and those that do not.
	Namespaces, Plain []string
}

// ListNamed lists the directories below root, which is empty for the process's own view and
// /proc/PID/root for another's. It reads at most 16,384 names of a directory.
func ListNamed(root string) ([]Named, error) {
	var all []Named
	for _, dir := range namedDirs {
		named := Named{Dir: root + dir}
		names, err := readNames(named.Dir)
		if named.Missing = errors.Is(err, fs.ErrNotExist); err != nil && !named.Missing {
			return nil, err
		}
		for _, name := range names {
			if IsNamespace(filepath.Join(named.Dir, name)) {
				named.Namespaces = append(named.Namespaces, name)
			} else {
				named.Plain = append(named.Plain, name)
			}
		}
		all = append(all, named)
	}
	return all, nil
}

// readNames returns the names in a directory, sorted.
func readNames(dir string) ([]string, error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("listing named netns: %w", err)
	}
	defer file.Close()
	names, err := file.Readdirnames(maxCandidates)
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: an empty directory
		return nil, fmt.Errorf("listing named netns: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// eachName calls f for every name of a netns, also for those without a mount.
func eachName(f func(path, name string)) error {
	for _, dir := range namedDirs {
		names, err := readNames(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, name := range names {
			f(filepath.Join(dir, name), name)
		}
	}
	return nil
}

// IsNamespace reports whether a file leads to a namespace. A name whose mount was lost, or did not
// reach this mount namespace, is a plain empty file.
func IsNamespace(path string) bool {
	_, err := Inode(path)
	return err == nil
}
