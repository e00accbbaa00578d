package netns

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// namedDirs are where runtimes and iproute2 bind-mount namespaces.
var namedDirs = []string{"/run/netns", "/run/docker/netns"}

// maxCandidates bounds one scan; a node with more namespaces than this has other
// troubles, and what is left out is reported as unseen.
const maxCandidates = 16384

// Place is where a netns can be opened, and what people call it.
type Place struct {
	// Path opens the netns; it may be gone or mean another netns a moment later.
	Path string
	// Inode is for people only: it is reused at once after the netns has gone.
	Inode uint64
	// Name is the file name under /run/netns, empty if there is none.
	Name string
	// Pid is a process in the netns, 0 if none was seen.
	Pid int
}

// Label names the netns for people: its name, or "net:[inode]" as lsns(8) and
// /proc show it.
func (p Place) Label() string {
	if p.Name != "" {
		return p.Name
	}
	return fmt.Sprintf("net:[%d]", p.Inode)
}

// Exists says whether the path still leads to the netns.
func (p Place) Exists() bool {
	ino, err := inode(p.Path)
	return err == nil && ino == p.Inode
}

// Finder maps netns ids of the netns it was made in to places. An id is what
// IFLA_LINK_NETNSID of a veth names its peer's netns by. Not safe for concurrent use.
type Finder struct {
	handle *netlink.Handle
	own    uint64
	names  map[string]named // by path; those that have an id
}

// named is what was found at a name.
type named struct {
	id    int
	place Place
}

// NewFinder returns a Finder for the calling thread's netns.
func NewFinder() (*Finder, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	own, err := inode(Self)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("reading own netns: %w", err)
	}
	return &Finder{handle: handle, own: own, names: make(map[string]named)}, nil
}

// Close releases the netlink socket.
func (f *Finder) Close() { f.handle.Close() }

// ID returns the id that the Finder's netns knows the opened netns by, -1 if none
// was assigned.
func (f *Finder) ID(file *os.File) (int, error) {
	id, err := f.handle.GetNetNsIdByFd(int(file.Fd()))
	if err != nil {
		return -1, fmt.Errorf("asking for the id of netns %s: %w", file.Name(), err)
	}
	return id, nil
}

// Scan returns the place of every other netns that is named under /run/netns or
// has a process, by id. Namespaces that vanish during the scan are left out.
func (f *Finder) Scan() (map[int]Place, error) {
	byInode, err := candidates(f.own)
	if err != nil {
		return nil, err
	}
	byID := make(map[int]Place, len(byInode))
	clear(f.names)
	for _, place := range byInode {
		id, ok := f.idAt(place.Path)
		if !ok {
			continue
		}
		byID[id] = place
		if place.Name != "" {
			f.names[place.Path] = named{id, place}
		}
	}
	return byID, nil
}

// ScanNames returns the place of every other netns that is named, by id. It asks only for
// names that are new, so that a pod more on a full node costs little: a name that was given
// to another netns since the last Scan is still taken for the former.
func (f *Finder) ScanNames() (map[int]Place, error) {
	former := f.names
	f.names = make(map[string]named, len(former))
	byID := make(map[int]Place, len(former))
	for _, dir := range namedDirs {
		entries, err := namesIn(dir)
		if err != nil {
			return nil, err
		}
		for _, name := range entries {
			path := filepath.Join(dir, name)
			entry, known := former[path]
			if !known {
				ino, err := inode(path)
				if err != nil || ino == f.own || len(f.names) >= maxCandidates {
					continue
				}
				id, ok := f.idAt(path)
				if !ok {
					continue // it may get one
				}
				entry = named{id, Place{Path: path, Inode: ino, Name: name}}
			}
			f.names[path] = entry
			if _, taken := byID[entry.id]; !taken {
				byID[entry.id] = entry.place
			}
		}
	}
	return byID, nil
}

// idAt returns the id of the netns at path, false if it has none.
func (f *Finder) idAt(path string) (int, bool) {
	file, err := os.Open(path)
	if err != nil {
		return -1, false
	}
	defer file.Close()
	id, err := f.ID(file)
	return id, err == nil && id >= 0
}

// namesIn lists a folder of names, none if there is no such folder.
func namesIn(dir string) ([]string, error) {
	folder, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing named netns: %w", err)
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("listing named netns: %w", err)
	}
	return names, nil
}

// Places returns every other netns that can be opened, also those without an id,
// in no order.
func (f *Finder) Places() ([]Place, error) {
	byInode, err := candidates(f.own)
	if err != nil {
		return nil, err
	}
	return slices.Collect(maps.Values(byInode)), nil
}

// candidates lists every netns but own by inode. A name is preferred to a process
// as the way in, because it stays when the process ends.
func candidates(own uint64) (map[uint64]Place, error) {
	found := make(map[uint64]Place)
	for _, dir := range namedDirs {
		entries, err := namesIn(dir)
		if err != nil {
			return nil, err
		}
		slices.Sort(entries) // of two names for one netns the same one always
		for _, name := range entries {
			path := filepath.Join(dir, name)
			ino, err := inode(path)
			if err != nil || ino == own || len(found) >= maxCandidates {
				continue
			}
			if _, ok := found[ino]; !ok {
				found[ino] = Place{Path: path, Inode: ino, Name: name}
			}
		}
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		path := "/proc/" + name + "/ns/net"
		var ino uint64
		// A readlink is half the price of a stat that follows the link.
		link, err := os.Readlink(path)
		if err != nil {
			continue
		}
		if _, err := fmt.Sscanf(link, "net:[%d]", &ino); err != nil || ino == own {
			continue
		}
		place, ok := found[ino]
		switch {
		case !ok && len(found) < maxCandidates:
			found[ino] = Place{Path: path, Inode: ino, Pid: pid}
		case ok && (place.Pid == 0 || pid < place.Pid):
			place.Pid = pid
			if place.Name == "" {
				place.Path = path
			}
			found[ino] = place
		}
	}
	return found, nil
}

// inode returns the inode of the netns at path, and an error if path is no
// namespace file: /run/netns also holds plain files where a mount was lost.
func inode(path string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, fmt.Errorf("reading netns file %s: %w", path, err)
	}
	if fs.Type != unix.NSFS_MAGIC {
		return 0, fmt.Errorf("reading netns file %s: not a namespace", path)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("reading netns file %s: %w", path, err)
	}
	return st.Ino, nil
}
