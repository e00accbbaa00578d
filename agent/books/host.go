package books

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

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

// openHost is [hostRoot.open] for one file or folder.
func openHost(path string, kind fs.FileMode) (*os.File, error) {
	root, err := openRoot(path)
	if err != nil {
		return nil, err
	}
	defer root.close()
	return root.open(path, kind)
}

// open opens a file or folder of the node. Links cannot lead out of the node's file system (openat2(2),
// RESOLVE_IN_ROOT); the last part of the path is no link. It neither waits nor has effects on devices.
func (r hostRoot) open(path string, kind fs.FileMode) (*os.File, error) {
	found, err := unix.Openat2(int(r), path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("opening the node's %s: %w", path, err)
	}
	defer unix.Close(found)
	same := fmt.Sprintf("/proc/self/fd/%d", found)
	if info, err := os.Stat(same); err != nil {
		return nil, fmt.Errorf("opening the node's %s: %w", path, err)
	} else if info.Mode().Type() != kind {
		return nil, fmt.Errorf("opening the node's %s: it is no %s", path, map[fs.FileMode]string{0: "file", fs.ModeDir: "folder"}[kind])
	}
	file, err := os.Open(same)
	if err != nil {
		return nil, fmt.Errorf("opening the node's %s: %w", path, err)
	}
	return file, nil
}

// readHost is [hostRoot.read] for one file.
func readHost(path string, limit int64) ([]byte, error) {
	root, err := openRoot(path)
	if err != nil {
		return nil, err
	}
	defer root.close()
	return root.read(path, limit)
}

// read reads a regular file of the node of at most limit bytes.
func (r hostRoot) read(path string, limit int64) ([]byte, error) {
	file, err := r.open(path, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading the node's %s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("reading the node's %s: it is larger than %d bytes", path, limit)
	}
	return data, nil
}
