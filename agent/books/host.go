package books

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// HostRoot is the root of the node's file system as a container with the node's processes sees it; outside of a
// container it is "/" itself.
const HostRoot = "/proc/1/root"

// openRoot opens the root of the node's file system. Where the kernel refuses it (ptrace(2), "Ptrace access mode
// checking") it opens this process's own root if that has the path: then the process is in no container.
func openRoot(path string) (hostRoot, error) {
	root, err := unix.Open(HostRoot, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		if _, here := os.Stat(path); here == nil {
			root, err = unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("opening %s (needs CAP_SYS_PTRACE and the node's process ids): %w", HostRoot, err)
	}
	return hostRoot(root), nil
}

// hostRoot is a descriptor of the root of the node's file system.
type hostRoot int

func (r hostRoot) close() { _ = unix.Close(int(r)) }

// open opens a file or folder of the node. The last part of the path is no link.
func (r hostRoot) open(path string, kind fs.FileMode) (file *os.File, err error) {
	err = r.find(path, kind, unix.O_NOFOLLOW, func(same string, _ *unix.Stat_t) (err error) {
		file, err = os.Open(same)
		return err
	})
	return file, err
}

// kinds are the kinds of files that are looked for, as the kernel and people call them.
var kinds = map[fs.FileMode]struct {
	mode uint32
	name string
}{0: {unix.S_IFREG, "file"}, fs.ModeDir: {unix.S_IFDIR, "folder"}, fs.ModeSocket: {unix.S_IFSOCK, "socket"}}

// find has do use another path to what a path is on the node. Links cannot lead out of the node's file system (openat2(2),
// RESOLVE_IN_ROOT). It neither waits nor has effects on devices.
func (r hostRoot) find(path string, kind fs.FileMode, flags uint64, do func(same string, stat *unix.Stat_t) error) error {
	found, err := unix.Openat2(int(r), path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return fmt.Errorf("opening the node's %s: %w", path, err)
	}
	defer unix.Close(found)
	var stat unix.Stat_t
	err = unix.Fstat(found, &stat)
	switch {
	case err == nil && stat.Mode&unix.S_IFMT != kinds[kind].mode:
		err = fmt.Errorf("it is no %s", kinds[kind].name)
	case err == nil:
		err = do("/proc/self/fd/"+strconv.Itoa(found), &stat)
	}
	if err != nil {
		return fmt.Errorf("opening the node's %s: %w", path, err)
	}
	return nil
}

// DialHost connects to a Unix socket of the node. Without the right to see the node's file system, a socket that is not in
// the own one is none ([fs.ErrNotExist]).
func DialHost(ctx context.Context, path string) (conn net.Conn, err error) {
	err = findSocket(path, func(same string, _ *unix.Stat_t) (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", same)
		return err
	})
	return conn, err
}

// CheckSocket returns an error unless the node has a Unix socket at a path.
func CheckSocket(path string) error {
	return findSocket(path, func(string, *unix.Stat_t) error { return nil })
}

func findSocket(path string, do func(same string, stat *unix.Stat_t) error) error {
	root, err := openRoot(path)
	if err != nil {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	defer root.close()
	return root.find(path, fs.ModeSocket, 0, do)
}

// read reads a regular file of the node of at most limit bytes.
func (r hostRoot) read(path string, limit int64) ([]byte, error) {
	file, err := r.open(path, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readAll(file, path, limit)
}

// readAll reads a file of the node, whose path is for errors.
func readAll(file *os.File, path string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading the node's %s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("reading the node's %s: it is larger than %d bytes", path, limit)
	}
	return data, nil
}
