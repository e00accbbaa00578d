package netns

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/bounds"
)

// namedDirs are where runtimes and iproute2 bind-mount namespaces.
var namedDirs = []string{"/run/netns", "/run/docker/netns"}

// maxCandidates limits one search. The interfaces of namespaces beyond are reported as unseen.
const maxCandidates = 16384

var (
	tooManyCandidates = bounds.New("too many network namespaces")
	tooManyDevices    = bounds.New("too many devices of a pod")
)

// Ref is a reference to a netns: where it can be opened, and its name for people.
type Ref struct {
	// Path opens the netns. It may be gone, or lead to another netns, a moment later.
	Path string
	// Inode is for people only: the kernel reuses it at once.
	Inode uint64
	// Name is the file name under /run/netns, empty if there is none.
	Name string
	// Pid is a process in the netns, 0 if none was seen.
	Pid int
}

// Label returns the name, or "net:[inode]" as in lsns(8) and /proc; nothing of an empty Ref.
func (r Ref) Label() string {
	if r.Name != "" || r == (Ref{}) {
		return r.Name
	}
	return fmt.Sprintf("net:[%d]", r.Inode)
}

// isHeld reports whether only a descriptor leads to the netns.
func (r Ref) isHeld() bool { return strings.Contains(r.Path, "/fd/") }

// Exists reports whether the path still leads to the netns.
func (r Ref) Exists() bool {
	ino, err := Inode(r.Path)
	return err == nil && ino == r.Inode
}

// Finder finds and enters the namespaces that have an id in the netns of [NewFinder]: that of a veth's
// peer is IFLA_LINK_NETNSID. Not safe for concurrent use.
type Finder struct {
	handle   *netlink.Handle
	own      uint64
	refs     map[int]Ref // by id, nil before the first Search
	searched time.Time   // the last Search
	// held are what the last search of descriptors found that nothing else leads to, and heldNext is when the next one may begin.
	held     []Ref
	heldNext time.Time
}

// NewFinder returns a Finder for the calling thread's netns.
func NewFinder() (*Finder, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	own, err := Inode(Self)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("reading own netns: %w", err)
	}
	return &Finder{handle: handle, own: own}, nil
}

// Close releases the netlink socket.
func (f *Finder) Close() { f.handle.Close() }

// Errors of [Finder.Scan], besides those of [Scan]; the last is that of [Finder.Search], too.
var (
	ErrNotFound    = errors.New("no process, no descriptor of one and no name under /run/netns leads to it")
	errNoNamespace = errors.New("not a namespace")
	errMoved       = errors.New("its name now leads to another netns")
	// ErrTooSoon says that the last search was less than SearchPause ago.
	ErrTooSoon = errors.New("the last search for namespaces was less than " + SearchPause.String() + " ago")
)

// SearchPause is the least time between two searches of all processes.
const SearchPause = 20 * time.Millisecond

// Scan enters the netns with that id and lists its addresses as [Scan] does. peer is the index of the
// device inside. It tries the known reference, then new names, because most runtimes name what they
// make, then every process of the node, and last their descriptors. It does not search if the last search of all processes is younger than age.
func (f *Finder) Scan(id, peer int, age time.Duration) (ref Ref, view View, err error) {
	searches := []func() error{nil, f.searchNames, f.Search, f.searchDescriptors}
	if age > 0 && time.Since(f.searched) < age {
		searches = searches[:1]
	}
	if f.refs[id].isHeld() { // a later netns may have its id, its inode and its descriptor, and a name
		searches[0] = f.searchNames
	}
	for _, search := range searches {
		if search != nil {
			if err := search(); err != nil {
				return ref, view, err
			}
		}
		next, ok := f.refs[id]
		switch {
		case !ok:
			err = ErrNotFound
			continue
		case next == ref:
			continue
		}
		ref = next
		var file *os.File
		if file, err = f.Open(ref, id); err != nil {
			continue
		}
		view, err = Scan(file, peer)
		file.Close()
		if err == nil || errors.Is(err, ErrNoPeer) {
			break // it is the right netns
		}
	}
	return ref, view, err
}

// Open opens the netns at the reference, if it still has that id.
func (f *Finder) Open(ref Ref, id int) (*os.File, error) {
	file, err := Open(ref.Path)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(file.Fd()), &st); err == nil {
		// A reused name may lead to a netns with a reused id.
		if now, ok := f.id(file); ok && now == id && st.Ino == ref.Inode {
			return file, nil
		}
		err = errMoved
	}
	return nil, errors.Join(err, file.Close())
}

// Ref returns where the last search found the netns with that id.
func (f *Finder) Ref(id int) (Ref, bool) {
	ref, ok := f.refs[id]
	return ref, ok
}

// NewNames returns the namespaces whose names are new, or lead to another inode than the known one of that path. unready: other new
// names lead to no netns, perhaps not yet.
func (f *Finder) NewNames(known map[string]uint64) (refs []Ref, unready bool, err error) {
	err = eachName(func(path, name string) {
		if len(known)+len(refs) >= maxCandidates {
			return
		}
		if ino, err := Inode(path); err != nil {
			unready = true
		} else if ino != f.own && ino != known[path] {
			refs = append(refs, Ref{Path: path, Inode: ino, Name: name})
		}
	})
	return refs, unready, err
}

// Identify returns the id of a netns, and gives it one if it has none; -1 if that fails. Only events of a netns with an id reach
// NETLINK_LISTEN_ALL_NSID sockets. The id ends with the netns; the kernel gives the same to each netns that a veth leads to.
func (f *Finder) Identify(file *os.File) int {
	if id, ok := f.id(file); ok {
		return id
	}
	if err := f.handle.SetNetNsIdByFd(int(file.Fd()), -1); err != nil {
		return -1
	}
	id, _ := f.id(file)
	return id
}

// Search finds every other netns that has a name under /run/netns or a process, unless the last search was less than
// SearchPause ago (ErrTooSoon).
func (f *Finder) Search() error {
	if time.Since(f.searched) < SearchPause {
		return ErrTooSoon
	}
	refs, err := f.Refs()
	if err != nil {
		return err
	}
	f.refs = make(map[int]Ref, len(refs))
	for _, ref := range refs {
		if id, ok := f.idAt(ref.Path); ok {
			f.refs[id] = ref
		}
	}
	f.addHeld()
	f.searched = time.Now()
	return nil
}

// addHeld adds what a search of descriptors found, where nothing else leads to it.
func (f *Finder) addHeld() {
	for _, ref := range f.held {
		if id, ok := f.idAt(ref.Path); ok && f.refs[id] == (Ref{}) && ref.Exists() {
			f.refs[id] = ref
		}
	}
}

// searchDescriptors finds every other netns that a process has a descriptor of, after Search has not found it otherwise. Processes have any
// number of descriptors: it takes at most 1/50 of a core, and finds nothing meanwhile.
func (f *Finder) searchDescriptors() error {
	began := time.Now()
	if began.Before(f.heldNext) {
		return nil
	}
	known := map[uint64]bool{f.own: true}
	for _, ref := range f.refs {
		known[ref.Inode] = true
	}
	f.held = findDescriptors(known)
	f.addHeld()
	f.heldNext = time.Now().Add(max(SearchPause, 50*time.Since(began)))
	return nil
}

// searchNames finds every other netns whose name is new since the last search, or leads to another netns now, so that one more pod on
// a full node costs little.
func (f *Finder) searchNames() error {
	if f.refs == nil {
		return nil
	}
	known := make(map[string]uint64, len(f.refs))
	for _, ref := range f.refs {
		known[ref.Path] = ref.Inode
	}
	refs, _, err := f.NewNames(known)
	for _, ref := range refs {
		id, ok := f.idAt(ref.Path) // it may get one later
		if previous := f.refs[id]; ok && (previous.Inode != ref.Inode || previous.Name == "" || !previous.Exists()) {
			f.refs[id] = ref
		}
	}
	return err
}

// idAt returns the id of the netns at path, false if it has none.
func (f *Finder) idAt(path string) (int, bool) {
	file, err := Open(path)
	if err != nil {
		return -1, false
	}
	defer file.Close()
	return f.id(file)
}

func (f *Finder) id(file *os.File) (int, bool) {
	id, err := f.handle.GetNetNsIdByFd(int(file.Fd()))
	return id, err == nil && id >= 0
}

// Refs returns every other netns that can be opened, also those without an id, in no order. It prefers
// a name to a process, because a process may end.
func (f *Finder) Refs() ([]Ref, error) {
	found, err := find(func(ino uint64) bool { return ino != f.own })
	return slices.Collect(maps.Values(found)), err
}

// Inode returns the inode of the netns at path, and an error if path is no namespace file.
func Inode(path string) (uint64, error) {
	namespaces, err := namespaceDevice()
	var st unix.Stat_t
	if err == nil {
		err = unix.Stat(path, &st)
	}
	if err == nil && st.Dev != namespaces {
		err = errNoNamespace
	}
	if err != nil {
		return 0, fmt.Errorf("reading netns file %s: %w", path, err)
	}
	return st.Ino, nil
}

// namespaceDevice is the device of all namespaces: the kernel has one file system for them (fs/nsfs.c).
var namespaceDevice = sync.OnceValues(func() (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(Self, &st)
	return st.Dev, err
})
