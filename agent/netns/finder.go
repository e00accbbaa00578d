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
	return &Finder{handle: handle, own: own}, nil
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
	for _, place := range byInode {
		file, err := os.Open(place.Path)
		if err != nil {
			continue
		}
		if id, err := f.ID(file); err == nil && id >= 0 {
			byID[id] = place
		}
		file.Close()
	}
	return byID, nil
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
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("listing named netns: %w", err)
		}
		for _, entry := range entries {
			path := filepath.Join(dir, entry.Name())
			ino, err := inode(path)
			if err != nil || ino == own || len(found) >= maxCandidates {
				continue
			}
			if _, ok := found[ino]; !ok {
				found[ino] = Place{Path: path, Inode: ino, Name: entry.Name()}
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
