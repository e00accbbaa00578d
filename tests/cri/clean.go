package cri

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	namePrefix = "dupip-cri-"
	// notesFile has a line "sandbox netns" for every netns the runtime has made.
	notesFile = "netns"
	netnsDir  = "/run/netns"
	// resultsDir is where libcni keeps what plugins have answered; it cannot be moved.
	resultsDir = "/var/lib/cni/results"
	// killTimeout is how long killed processes may take to go.
	killTimeout = 10 * time.Second
)

// removeLeftovers removes what runtimes of dead processes left behind.
func removeLeftovers() error {
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if stale(e.Name()) {
			errs = append(errs, remove(e.Name()))
		}
	}
	return errors.Join(errs...)
}

// stale says that a name is that of a runtime whose process has ended, or of an earlier
// process with the id of this one.
func stale(name string) bool {
	rest, ok := strings.CutPrefix(name, namePrefix)
	if !ok {
		return false
	}
	owner, _, _ := strings.Cut(rest, "-")
	pid, err := strconv.ParseUint(owner, 16, 31)
	if err != nil {
		return false
	}
	if int(pid) == os.Getpid() {
		return true
	}
	_, err = os.Stat(fmt.Sprintf("/proc/%d", pid))
	return errors.Is(err, fs.ErrNotExist)
}

// remove ends everything that belongs to the runtime with this tag, and removes it. The
// order matters: what runs makes new things, and what is mounted cannot be removed.
func remove(tag string) error {
	dir := filepath.Join(os.TempDir(), tag)
	sandboxes, paths := readNotes(filepath.Join(dir, notesFile))
	if err := errors.Join(
		killAll(tag, dir),
		removeNetns(paths),
		removeShimSockets(dir),
		unmountBelow(dir),
		removeCgroups(tag),
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

// killAll ends the runtime, its shims and its pods: what has the folder or the tag among
// its arguments, and what is in a cgroup of the pods. A pod that has just been started may
// still be runc's by its arguments.
func killAll(tag, dir string) error {
	deadline := time.Now().Add(killTimeout)
	for {
		pids, err := processes(func(arg string) bool {
			return arg == tag || arg == dir || strings.HasPrefix(arg, dir+"/")
		})
		if err != nil {
			return err
		}
		if pids = append(pids, cgroupMembers(tag)...); len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("end the processes %v of runtime %s: they go on", pids, tag)
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("end process %d: %w", pid, err)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// processes are those with a matching argument. One that has ended and was not waited
// for has no arguments.
func processes(match func(arg string) bool) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue // it has ended
		}
		for arg := range bytes.SplitSeq(line, []byte{0}) {
			if match(string(arg)) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids, nil
}

// removeNetns removes the netns files that the runtime did not get to.
func removeNetns(paths []string) error {
	var errs []error
	for _, path := range paths {
		path = filepath.Join(netnsDir, filepath.Base(path))
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", path, err))
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeShimSockets removes the sockets of shims, which are outside of the folder.
func removeShimSockets(dir string) error {
	addresses, err := filepath.Glob(filepath.Join(dir, "run", "io.containerd.runtime.v2.task", "*", "*", "address"))
	if err != nil {
		return err
	}
	var errs []error
	for _, address := range addresses {
		data, _ := os.ReadFile(address)
		if path, ok := strings.CutPrefix(string(data), "unix://"); ok {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// unmountBelow unmounts everything below a folder, the last mount first.
func unmountBelow(dir string) error {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer file.Close()
	var points []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			points = append(points, fields[4])
		}
	}
	var errs []error
	for _, point := range slices.Backward(points) {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}

// cgroups are those of the pods, parents first, in one hierarchy (cgroup 2) or many.
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

func removeCgroups(tag string) error {
	var errs []error
	for _, dir := range slices.Backward(cgroups(tag)) {
		errs = append(errs, removeCgroup(dir))
	}
	return errors.Join(errs...)
}

// removeCgroup removes one; it stays busy until the kernel is done with its processes.
func removeCgroup(dir string) error {
	deadline := time.Now().Add(killTimeout)
	for {
		err := unix.Rmdir(dir)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, unix.EBUSY) || time.Now().After(deadline):
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// removeResults removes what plugins have answered for the pods, from libcni's cache.
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
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
