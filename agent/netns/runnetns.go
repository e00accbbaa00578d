package netns

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

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
	_, err := inode(path)
	return err == nil
}
