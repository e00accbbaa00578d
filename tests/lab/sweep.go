package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netns"
)

const (
	namePrefix = "dl-"
	netnsDir   = "/run/netns"
)

// removeLeftovers removes the netns and temporary folders of labs whose process is
// gone. At the first call in a process that includes an earlier one that had its id.
func removeLeftovers(first bool) error {
	var errs []error
	names, err := namesIn(netnsDir)
	errs = append(errs, err)
	for _, name := range names {
		if !stale(name, first) {
			continue
		}
		if n, err := openNetns(name); err == nil {
			n.removeDevices()
			n.release()
		}
		// Another test process may sweep at the same time.
		if err := netns.DeleteNamed(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			// A file without a mount is what a process killed half-way leaves.
			err = os.Remove(filepath.Join(netnsDir, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("delete netns %s: %w", name, err))
			}
		}
	}
	dirs, err := namesIn(os.TempDir())
	errs = append(errs, err)
	for _, name := range dirs {
		if stale(name, first) {
			errs = append(errs, os.RemoveAll(filepath.Join(os.TempDir(), name)))
		}
	}
	return errors.Join(errs...)
}

// namesIn are the names in a folder; a folder that does not exist has none.
func namesIn(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names, nil
}

// stale says that a name was made by a lab whose process has ended, or with own, that
// it has the id of this process.
func stale(name string, own bool) bool {
	rest, ok := strings.CutPrefix(name, namePrefix)
	owner, _, dashed := strings.Cut(rest, "-")
	owner, _, _ = strings.Cut(owner, ".")
	return ok && dashed && Dead(owner, own)
}

// Dead says that a process has ended, by its id in hexadecimal as names have it; with own also
// that it has the id of this process, which is an earlier one's.
func Dead(id string, own bool) bool {
	pid, err := strconv.ParseUint(id, 16, 31)
	if err != nil {
		return false
	}
	if int(pid) == os.Getpid() {
		return own
	}
	_, err = os.Stat(fmt.Sprintf("/proc/%d", pid))
	return errors.Is(err, fs.ErrNotExist)
}
