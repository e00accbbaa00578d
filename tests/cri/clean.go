package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

const (
	namePrefix = "dupip-cri-"
	// notesFile has a line "sandbox netns" for every netns the runtime has made.
	notesFile = "netns"
	netnsDir  = "/run/netns"
	// resultsDir is where libcni keeps the results of plugins; it cannot be moved.
	resultsDir = "/var/lib/cni/results"
	// killTimeout is how long killed processes may take to end.
	killTimeout = 10 * time.Second
)

// Folder makes a folder for a program that runs containers. The lab removes it, and before that it ends the processes that have
// the folder or its name among their arguments, or are in the cgroup of that name, and removes what is mounted below the folder.
// After a kill, the next lab does.
func Folder(l *lab.Lab) (string, error) {
	tag := fmt.Sprintf("%s%x-%d", namePrefix, os.Getpid(), runtimes.Add(1))
	dir := filepath.Join(os.TempDir(), tag)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	l.OnClose(func() error { return remove(tag) })
	return dir, nil
}

// removeLeftovers removes what is left of runtimes whose process has ended.
func removeLeftovers() error {
	var errs []error
	for _, path := range lab.Leftovers(os.TempDir(), namePrefix, true) {
		errs = append(errs, remove(filepath.Base(path)))
	}
	return errors.Join(errs...)
}

// remove ends and removes everything that belongs to the runtime with this tag. Processes go first,
// because they create things; mounts go before files.
func remove(tag string) error {
	dir := filepath.Join(os.TempDir(), tag)
	sandboxes, paths := readNotes(filepath.Join(dir, notesFile))
	if err := errors.Join(
		killAll(tag, dir),
		removeNetns(paths),
		removeShimSockets(dir),
		unmountBelow(dir),
		RemoveCgroups(tag),
		removeResults(tag, sandboxes),
	); err != nil {
		return err // the folder stays, for the next start to try again
	}
	return os.RemoveAll(dir)
}

// readNotes returns the sandboxes and netns that were ever made.
func readNotes(path string) (sandboxes, netns []string) {
	data, _ := os.ReadFile(path)
	for line := range strings.Lines(string(data)) {
		if id, path, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			sandboxes, netns = append(sandboxes, id), append(netns, path)
		}
	}
	return sandboxes, netns
}

// killAll kills the runtime, its shims and its pods: processes with the folder or the tag among
// their arguments, and those in the pods' cgroups. A pod that has just started may still have the
// arguments of runc.
func killAll(tag, dir string) error {
	return lab.Poll(context.Background(), killTimeout, func() error {
		pids, err := processes(func(arg string) bool {
			return arg == tag || arg == dir || strings.HasPrefix(arg, dir+"/")
		})
		if pids = append(pids, cgroupMembers(tag)...); len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return lab.Final(fmt.Errorf("end process %d: %w", pid, err))
			}
		}
		return fmt.Errorf("the processes %v of runtime %s still run", pids, tag)
	})
}

// processes are those with a matching argument. A zombie has no arguments.
func processes(match func(arg string) bool) (pids []int, err error) {
	all, err := procfs.AllProcs()
	for _, p := range all {
		args, _ := p.CmdLine() // it may have ended
		if p.PID != os.Getpid() && slices.ContainsFunc(args, match) {
			pids = append(pids, p.PID)
		}
	}
	return pids, err
}

// removeNetns removes the netns files that are left.
func removeNetns(paths []string) error {
	var errs []error
	for _, path := range paths {
		path = filepath.Join(netnsDir, filepath.Base(path))
		errs = append(errs, unmount(path), removed(path))
	}
	return errors.Join(errs...)
}

func unmount(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// removed removes a file that may not exist.
func removed(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// shimSocket is the name of a shim's socket, as the shim's folder has it: in the file address, since containerd 2 in bootstrap.json.
var shimSocket = regexp.MustCompile(`unix://([^"\s]+)`)

// removeShimSockets removes the sockets of shims, which are outside of the folder.
func removeShimSockets(dir string) error {
	var errs []error
	for _, name := range []string{"address", "bootstrap.json"} {
		files, err := filepath.Glob(filepath.Join(dir, "run", "io.containerd.runtime.v2.task", "*", "*", name))
		errs = append(errs, err)
		for _, file := range files {
			data, _ := os.ReadFile(file)
			if match := shimSocket.FindSubmatch(data); match != nil {
				errs = append(errs, removed(string(match[1])))
			}
		}
	}
	return errors.Join(errs...)
}

// unmountBelow unmounts everything below a folder, the last mount first.
func unmountBelow(dir string) error {
	mounts, err := procfs.GetMounts()
	errs := []error{err}
	for _, m := range slices.Backward(mounts) {
		if strings.HasPrefix(m.MountPoint, dir+"/") {
			errs = append(errs, unmount(m.MountPoint))
		}
	}
	return errors.Join(errs...)
}

// cgroups are the pods' cgroups, parents first, in one hierarchy (cgroup 2) or many.
func cgroups(tag string) []string {
	const root = "/sys/fs/cgroup"
	// The pattern is well formed.
	tops, _ := filepath.Glob(filepath.Join(root, "*", tag))
	var dirs []string
	for _, top := range append(tops, filepath.Join(root, tag)) {
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
	}
	return dirs
}

// cgroupMembers are the processes in the cgroups of the pods.
func cgroupMembers(tag string) []int {
	var pids []int
	for _, dir := range cgroups(tag) {
		data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for line := range strings.Lines(string(data)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// RemoveCgroups removes the cgroups below the one with this name, in each hierarchy; they are busy until their processes have ended.
func RemoveCgroups(tag string) error {
	var errs []error
	for _, dir := range slices.Backward(cgroups(tag)) {
		errs = append(errs, lab.Poll(context.Background(), killTimeout, func() error {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("remove cgroup %s: %w", dir, err)
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// removeResults removes the pods' results of plugins from libcni's cache.
func removeResults(tag string, sandboxes []string) error {
	patterns := []string{filepath.Join(resultsDir, tag+"-*")}
	for _, id := range sandboxes {
		patterns = append(patterns, filepath.Join(resultsDir, "*"+id+"*"))
	}
	var errs []error
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, path := range paths {
			errs = append(errs, removed(path))
		}
	}
	return errors.Join(errs...)
}
