package books

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

const (
	// folderEvents are those of all that changes a folder or what is in it. A file that is written through memory has only the
	// event that it is closed.
	folderEvents = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_CLOSE_WRITE |
		unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	// goneEvents say that a folder is no longer where it was.
	goneEvents = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT | unix.IN_IGNORED
	// maxChanged is how many names are kept of what has changed in a folder. With more the whole folder has.
	maxChanged = 1024
	// maxEvents is how many buffers of events are read at once, more than the kernel keeps by default. With more all has changed.
	maxEvents = 512
)

// watch tells what has changed in folders of the node, by inotify(7). It has no goroutine and waits for nothing: the kernel collects events
// until somebody asks. A watch is on the folder that a path led to, so it is also looked whether it still does: no event tells of a mount, or of
// a change further up. The zero value is ready to use, but not for concurrent use. Without inotify everything has always changed.
type watch struct {
	queue   int                 // a descriptor
	folders map[string]*watched // nil without a queue
	err     error               // why a folder is not watched
}

// watched is a folder, by its path.
type watched struct {
	descriptor  uint32 // of the watch
	device, ino uint64
	names       map[string]bool // of what has changed
	all         bool            // everything may have
}

// close ends all watches.
func (w *watch) close() {
	if w.folders != nil {
		_ = unix.Close(w.queue)
	}
	w.folders = nil
}

// collect takes what has happened since the last time.
func (w *watch) collect() {
	w.err = nil
	if w.folders == nil {
		queue, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
		if err != nil {
			w.err = fmt.Errorf("making an inotify instance: %w", err)
			return
		}
		w.queue, w.folders = queue, make(map[string]*watched)
	}
	var buffer [16 << 10]byte
	for range maxEvents {
		n, err := unix.Read(w.queue, buffer[:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil && !errors.Is(err, unix.EINTR):
			w.err = fmt.Errorf("reading events of inotify: %w", err)
			w.close()
			return
		}
		for events := buffer[:max(n, 0)]; len(events) >= unix.SizeofInotifyEvent; {
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
			w.event(binary.NativeEndian.Uint32(events), binary.NativeEndian.Uint32(events[4:]), events[unix.SizeofInotifyEvent:size])
			events = events[size:]
		}
	}
	w.close() // somebody changes files faster than they are looked at
}

// event takes one event. Its name ends in zeros.
func (w *watch) event(descriptor, mask uint32, name []byte) {
	name, _, _ = bytes.Cut(name, []byte{0})
	for path, f := range w.folders { // one folder may have two paths
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0: // the end of a watch may be among the events that are lost
			w.forget(path)
		case f.descriptor != descriptor:
		case mask&goneEvents != 0:
			w.forget(path)
		case len(f.names) == maxChanged:
			f.all = true
		case len(name) > 0: // without one it is of the folder's own attributes
			if f.names == nil {
				f.names = make(map[string]bool)
			}
			f.names[string(name)] = true
		}
	}
}

// forget ends the watch of a folder.
func (w *watch) forget(path string) {
	if f := w.folders[path]; f != nil {
		_, _ = unix.InotifyRmWatch(w.queue, f.descriptor) // it fails if the kernel has ended it
		delete(w.folders, path)
	}
}

// keep ends the watches of other folders than these.
func (w *watch) keep(wanted func(path string) bool) {
	for path := range w.folders {
		if !wanted(path) {
			w.forget(path)
		}
	}
}

// changed returns the names of what has changed in a folder since the last call, as of the last collect; all says that everything may have, as
// it is when the folder is not there.
func (w *watch) changed(root hostRoot, path string) (names map[string]bool, all bool) {
	err := root.find(path, fs.ModeDir, unix.O_NOFOLLOW, func(same string, stat *unix.Stat_t) error {
		if f := w.folders[path]; f != nil && f.device == stat.Dev && f.ino == stat.Ino {
			names, all = f.names, f.all
			f.names, f.all = nil, false
			return nil
		}
		w.forget(path)
		all = true
		if w.folders == nil {
			return nil
		}
		descriptor, err := unix.InotifyAddWatch(w.queue, same, folderEvents)
		if err != nil {
			w.err = fmt.Errorf("watching the node's %s: %w", path, err)
			return nil
		}
		w.folders[path] = &watched{descriptor: uint32(descriptor), device: stat.Dev, ino: stat.Ino}
		return nil
	})
	if err != nil {
		w.forget(path)
		return nil, true
	}
	return names, all
}

// CheckWatch returns an error unless a folder of this process can be watched.
func CheckWatch(path string) error {
	queue, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("making an inotify instance: %w", err)
	}
	defer unix.Close(queue)
	if _, err := unix.InotifyAddWatch(queue, path, folderEvents); err != nil {
		return fmt.Errorf("watching %s: %w", path, err)
	}
	return nil
}
