package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netns"
)

const (
	namePrefix = "dl-"
	netnsDir   = "/run/netns"
)

// removeLeftovers removes the netns and temporary folders of labs whose process has ended. The first
// call includes an earlier process with this process's id.
func removeLeftovers(first bool) error {
	var errs []error
	for _, path := range Leftovers(netnsDir, namePrefix, first) {
		name := filepath.Base(path)
		if n, err := openNetns(name); err == nil {
			n.removeDevices()
			n.release()
		}
		// Another test process may sweep at the same time.
		if err := netns.DeleteNamed(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			// A process that was killed half-way leaves a file without a mount.
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("delete netns %s: %w", name, err))
			}
		}
	}
	for _, path := range Leftovers(os.TempDir(), namePrefix, first) {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// Leftovers are the paths in a folder whose names begin with prefix and the hexadecimal id of a
// process that has ended, and have a "-" behind that. With own they include those of an earlier process
// that had the id of this one.
func Leftovers(dir, prefix string, own bool) []string {
	paths, _ := filepath.Glob(filepath.Join(dir, prefix+"*-*")) // the pattern is well formed
	return slices.DeleteFunc(paths, func(path string) bool {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), prefix), "-")
		owner, _, _ = strings.Cut(owner, ".")
		pid, err := strconv.ParseUint(owner, 16, 31)
		if err == nil && int(pid) == os.Getpid() {
			return !own
		}
		if err == nil {
			_, err = os.Stat(fmt.Sprintf("/proc/%d", pid))
		}
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// sweeps remove what other packages leave.
var sweeps []func() error

// OnSweep adds a step that removes what is left of processes that have ended: at the first lab of a process, and when tests were
// killed. Call it from init.
func OnSweep(f func() error) { sweeps = append(sweeps, f) }

func sweepOthers() error {
	var errs []error
	for _, f := range sweeps {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
