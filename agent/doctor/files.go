package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/config"
)

// writable says whether files could be made in a folder, or the folder itself, and
// returns it or the nearest one above that is there. It makes nothing: access(2) also
// knows of read-only mounts and of immutable folders.
func writable(dir string) (there string, err error) {
	for there = filepath.Clean(dir); ; there = filepath.Dir(there) {
		info, err := os.Stat(there)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if _, err := os.Lstat(there); err == nil {
				return there, fmt.Errorf("%s is a link to nothing", there)
			}
			if there == filepath.Dir(there) {
				return there, err
			}
			continue
		case errors.Is(err, unix.ENOTDIR):
			continue // a file further up: it is named below
		case err != nil:
			return there, err
		case !info.IsDir():
			return there, fmt.Errorf("%s is not a folder", there)
		}
		var system unix.Statfs_t
		if err := unix.Statfs(there, &system); err != nil {
			return there, fmt.Errorf("%s: %w", there, err)
		}
		if system.Type == unix.PROC_SUPER_MAGIC || system.Type == unix.SYSFS_MAGIC {
			return there, fmt.Errorf("%s is the kernel's and takes no files", there)
		}
		err = unix.Faccessat(unix.AT_FDCWD, there, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
		switch {
		case errors.Is(err, unix.EROFS):
			return there, fmt.Errorf("%s is mounted read-only", there)
		case err != nil:
			return there, fmt.Errorf("%s cannot be written to: %w", there, err)
		}
		return there, nil
	}
}

// leastFree is the room that a state of thousands of conflicts and its successor take.
const leastFree = 32 << 20

const untilThen = "; until then conflicts and history are lost with a restart"

func stateAdvice(dir string) string {
	return "mount a hostPath volume at " + dir + " (type DirectoryOrCreate), or choose another --state-dir" + untilThen
}

// checkStateDir: would conflicts and history survive?
func checkStateDir(_ context.Context, known *facts) finding {
	dir := known.opts.StateDir
	there, err := writable(dir)
	switch {
	case errors.Is(err, fs.ErrPermission) && known.uid != 0:
		return skip("%s needs root", dir)
	case errors.Is(err, fs.ErrPermission):
		return fail("chown root and chmod 700 it on the node: root without CAP_DAC_OVERRIDE may not write to what is somebody else's"+untilThen,
			"%v", err)
	case err != nil && there != filepath.Clean(dir):
		return fail(stateAdvice(dir), "%s cannot be made: %v", dir, err)
	case err != nil:
		return fail(stateAdvice(dir), "%v", err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(there, &disk); err != nil {
		return fail(stateAdvice(dir), "%s: %v", there, err)
	}
	free := disk.Bavail * uint64(disk.Bsize)
	// Some file systems have no fixed number of inodes, and say that they have 0.
	noInodes := disk.Files > 0 && disk.Ffree == 0
	switch {
	case free == 0 || noInodes:
		return fail("make room there, or choose another --state-dir; until then conflicts and history are lost with a restart", "the disk of %s is full", there)
	case free < leastFree:
		return warn("make room there, or choose another --state-dir", "only %d MiB are free at %s", free>>20, there)
	}
	switch disk.Type {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return warn(stateAdvice(dir), "%s is in memory and lost at reboot", dir)
	case unix.OVERLAYFS_SUPER_MAGIC:
		if known.place.contained() {
			return warn(stateAdvice(dir), "%s is part of the container and lost with it", dir)
		}
	}
	if there == filepath.Clean(dir) {
		return stateOwner(dir)
	}
	return ok("%s can be made, %s free", dir, gibibytes(free))
}

// stateOwner looks at a folder that is there: nobody else should write to it.
func stateOwner(dir string) finding {
	info, err := os.Stat(dir)
	if err != nil {
		return fail(stateAdvice(dir), "%v", err)
	}
	var status unix.Stat_t
	if err := unix.Stat(dir, &status); err != nil {
		return fail(stateAdvice(dir), "%s: %v", dir, err)
	}
	if status.Uid != 0 && status.Uid != uint32(os.Geteuid()) || info.Mode().Perm()&0o022 != 0 {
		return warn("chown root and chmod 700 it, or choose another --state-dir",
			"others may write to %s (%v, owner %d)", dir, info.Mode().Perm(), status.Uid)
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil && target != filepath.Clean(dir) {
		return ok("%s leads to %s, writable", dir, target)
	}
	return ok("%s is writable", dir)
}

func gibibytes(n uint64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d GiB", n>>30)
}

// checkConfig: would an agent take the file?
func checkConfig(_ context.Context, known *facts) finding {
	path := known.opts.ConfigFile
	if path == "" {
		return skip("no --config; the defaults are good")
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrPermission) && known.uid != 0:
		return skip("%s needs root", path)
	case err != nil:
		return fail("give the right path with --config, or mount the ConfigMap there", "%v", err)
	case !info.Mode().IsRegular():
		return fail("give a file with --config", "%s is not a regular file", path)
	}
	if _, err := config.Load(path); err != nil {
		first, rest, more := strings.Cut(err.Error(), "\n")
		advice := "mend it: an agent that starts refuses it, one that runs keeps the former"
		if more {
			advice += "; also: " + strings.ReplaceAll(rest, "\n", "; ")
		}
		return fail(advice, "%s", first)
	}
	return ok("%s is valid", path)
}
