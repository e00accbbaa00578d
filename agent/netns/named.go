package netns

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Named are the entries of a folder in which runtimes and iproute2 name namespaces.
type Named struct {
	// Dir is the folder, as the calling process names it.
	Dir string
	// Missing says that there is no such folder.
	Missing bool
	// Namespaces and Plain are the names that lead to a namespace and those that do not.
	Namespaces, Plain []string
}

// ListNamed lists the folders below root, which is empty for the process's own view and
// /proc/PID/root for another's. It reads at most 16,384 names of a folder.
func ListNamed(root string) ([]Named, error) {
	var all []Named
	for _, dir := range namedDirs {
		named := Named{Dir: root + dir}
		folder, err := os.Open(named.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			named.Missing = true
			all = append(all, named)
			continue
		}
		if err != nil {
			return nil, err
		}
		names, err := folder.Readdirnames(maxCandidates)
		folder.Close()
		// An empty folder answers with io.EOF.
		if err != nil && len(names) > 0 {
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

// IsNamespace says whether a file leads to a namespace. A name whose mount was lost, or
// never came to this mount namespace, is a plain empty file.
func IsNamespace(path string) bool {
	_, err := inode(path)
	return err == nil
}
