package books

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ConfDir is where container runtimes find the configuration of networks.
	ConfDir = "/etc/cni/net.d"
	// hostLocalDir is where host-local keeps its reservations, a folder for each network
	// (plugins/ipam/host-local/backend/disk, github.com/containernetworking/plugins).
	hostLocalDir = "/var/lib/cni/networks"

	// maxConfigs and maxConfig bound the files of the configuration, and the size of each in bytes.
	maxConfigs = 256
	maxConfig  = 1 << 20
	// maxNetworkName is the longest name of a network, which is that of its folder (NAME_MAX).
	maxNetworkName = 255
	// maxReservations bounds the reservations of one network. A store with more is not used.
	maxReservations = 1 << 16
	// maxReservation is the size of a reservation in bytes: the ids of a container and of an interface.
	maxReservation = 512
)

// The kinds of IPAM whose books are read.
const (
	BookHostLocal = "host-local"
	BookAzureCNS  = "azure-cns"
)

// stores read what the IPAM of each kind has reserved. What is known from the last reading need not be read again.
var stores = map[string]func(root hostRoot, store string, known map[netip.Addr]Reservation) (map[netip.Addr]Reservation, error){
	BookHostLocal: readStore,
	BookAzureCNS:  readEndpoints,
}

// Reserved is what an IPAM has reserved in one network of CNI's configuration. It does not change.
type Reserved struct {
	Book    string // the kind of IPAM: [BookHostLocal], [BookAzureCNS]
	Network string // its name in the configuration
	Store   string // the path on the node
	Plugin  string // the type of the plugin that asks for addresses: "bridge", "ptp"
	// Ranges are those that addresses are given out from, none if they are not known.
	Ranges []Range
	// Reservations are by address; nil if the store cannot be read, for the reason Err.
	Reservations map[netip.Addr]Reservation
	Err          error

	subnets string // flannel's file with the ranges
}

// Covers reports whether an address may be given out by this book.
func (n *Reserved) Covers(ip netip.Addr) bool {
	return slices.ContainsFunc(n.Ranges, func(r Range) bool { return r.Contains(ip) })
}

// Left is which part of the ranges is not reserved, from 0 to 1: of the address family that has less left, because a pod gets
// one of each. It returns false if that is not known.
func (n *Reserved) Left() (ratio float64, ok bool) {
	size := make(map[bool]float64) // by family
	for _, r := range n.Ranges {
		size[r.First.Is4()] += r.size()
	}
	left := maps.Clone(size)
	for ip := range n.Reservations {
		if n.Covers(ip) {
			left[ip.Is4()]--
		}
	}
	ratio = 1
	for family, all := range size {
		if all > 0 {
			ratio, ok = min(ratio, max(left[family], 0)/all), n.Err == nil
		}
	}
	return ratio, ok
}

// Range is a range of addresses, of which one is the gateway's.
type Range struct{ First, Last, Gateway netip.Addr }

// Contains reports whether an address of the range may be given out.
func (r Range) Contains(ip netip.Addr) bool {
	return r.First.Compare(ip) <= 0 && ip.Compare(r.Last) <= 0 && ip != r.Gateway
}

func (r Range) size() float64 {
	size := 1.0
	first, last := r.First.As16(), r.Last.As16()
	for n := range first {
		size += (float64(last[n]) - float64(first[n])) * math.Pow(256, float64(len(first)-1-n))
	}
	if r.First.Compare(r.Gateway) <= 0 && r.Gateway.Compare(r.Last) <= 0 {
		size--
	}
	return max(size, 0)
}

func (r Range) String() string { return r.First.String() + "-" + r.Last.String() }

// Reservation says who has an address.
type Reservation struct {
	Sandbox string    // the id of the sandbox, as the runtime gave it to the plugin; empty if it is not known
	Since   time.Time // zero if the store has no times
	// among are the sandboxes that the store has the address for, if there are several: one of them has it. One that is not known is empty.
	among []string

	version version
}

// Sandboxes are those that the store has the address for if there are several, each of which may have it; none if not all are known.
func (r Reservation) Sandboxes() []string {
	if slices.Contains(r.among, "") {
		return nil
	}
	return slices.Sorted(slices.Values(r.among))
}

// version tells whether a file is the one that was read before.
type version struct {
	inode uint64
	ctime unix.Timespec
}

func versionOf(stat *unix.Stat_t) version { return version{stat.Ino, stat.Ctim} }

// IPAM reads what the node's IPAM has reserved. It takes no lock, because an ADD must not wait for it: what it reads may
// change meanwhile. It is not safe for concurrent use.
type IPAM struct {
	folder  func() string
	confDir string               // the folder of the last reading
	last    map[string]*Reserved // by path of the store
}

// NewIPAM returns a reader for the networks that a folder of the node configures, which may be another one each time.
func NewIPAM(folder func() string) *IPAM { return &IPAM{folder: folder} }

// ErrNoFolder says that the folder of the configuration does not exist.
var ErrNoFolder = errors.New("does not exist on this node")

// Folder is the node's folder with the configuration that was read last.
func (h *IPAM) Folder() string { return cmp.Or(h.confDir, h.folder()) }

// Read returns what is reserved now, by network. The error is [ErrNoFolder], or of a configuration that cannot be read in part says what is
// missing; the rest is returned.
func (h *IPAM) Read() (all []*Reserved, err error) {
	h.confDir = h.folder()
	// One root for all: where the kernel refuses process 1's, the folder of the configuration tells whose root this is, and a
	// store may be missing.
	root, err := openRoot(h.confDir)
	if err != nil {
		return nil, err
	}
	defer root.close()
	networks, err := h.networks(root)
	read := make(map[string]*Reserved)
	for _, n := range networks {
		if read[n.Store] != nil {
			continue // two files may configure one network, or two networks have one store
		}
		last := cmp.Or(h.last[n.Store], &Reserved{})
		n.Reservations, n.Err = stores[n.Book](root, n.Store, last.Reservations)
		read[n.Store] = n
		all = append(all, n)
	}
	h.last = read
	return all, err
}

// networks reads the configuration.
func (h *IPAM) networks(root hostRoot) (networks []*Reserved, problem error) {
	folder, err := root.open(h.confDir, fs.ModeDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s %w", h.confDir, ErrNoFolder)
	}
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(maxConfigs)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("listing the node's %s: %w", h.confDir, err)
	}
	if len(names) == maxConfigs {
		problem = fmt.Errorf("listing the node's %s: only the first %d files are read", h.confDir, maxConfigs)
	}
	slices.Sort(names)
	for _, name := range names {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, path.Ext(name)) {
			continue
		}
		data, failed := root.read(path.Join(h.confDir, name), maxConfig)
		if failed == nil && !json.Valid(data) {
			failed = fmt.Errorf("reading the node's %s: it is no JSON", path.Join(h.confDir, name))
		}
		problem = cmp.Or(problem, failed)
		if n := parseNetwork(data); n != nil {
			if n.subnets != "" {
				n.Ranges = flannelRanges(root, n.subnets)
			}
			networks = append(networks, n)
		}
	}
	return networks, problem
}

// readStore reads the files of a store, which are named by their addresses. Others are host-local's own. Files that are those of
// the last reading are not read again.
func readStore(root hostRoot, store string, known map[netip.Addr]Reservation) (map[netip.Addr]Reservation, error) {
	folder, err := root.open(store, fs.ModeDir)
	if errors.Is(err, fs.ErrNotExist) {
		return make(map[netip.Addr]Reservation), nil
	}
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(maxReservations + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("listing the node's reservations: %w", err)
	}
	if len(names) > maxReservations {
		return nil, fmt.Errorf("listing the node's reservations: more than %d", maxReservations)
	}
	all := make(map[netip.Addr]Reservation, len(names))
	for _, name := range names {
		ip, err := netip.ParseAddr(name)
		if err != nil || ip.String() != name || ip.Is4In6() || ip.Zone() != "" { // a zone may be any text
			continue
		}
		r, err := readReservation(int(folder.Fd()), name, known[ip])
		if errors.Is(err, fs.ErrNotExist) {
			continue // a DEL has just removed it
		}
		if err != nil {
			return nil, fmt.Errorf("reading the node's reservation of %s: %w", ip, err)
		}
		all[ip] = r
	}
	return all, nil
}

// errNoFile is what the store has under the name of a reservation if somebody else made it.
var errNoFile = errors.New("it is no file of a reservation")

// readReservation reads a reservation: two lines, of which old versions have the first only
// (plugins/ipam/host-local/backend/disk, Store.Reserve). It neither follows links nor waits.
func readReservation(folder int, name string, known Reservation) (r Reservation, err error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(folder, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return r, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return r, errNoFile // without opening it, which has effects on devices
	}
	if known.version == versionOf(&stat) && known.Sandbox != "" {
		return known, nil
	}
	fd, err := unix.Openat(folder, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return r, err
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &stat); err != nil {
		return r, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Size > maxReservation {
		return r, errNoFile
	}
	r.version = versionOf(&stat)
	var data [maxReservation]byte // thousands of os.File would cost megabytes
	n, err := unix.Read(fd, data[:])
	if err != nil {
		return r, err
	}
	sandbox, _, _ := strings.Cut(strings.TrimSpace(string(data[:n])), "\n")
	r.Sandbox, r.Since = strings.TrimSpace(sandbox), time.Unix(stat.Mtim.Unix())
	return r, nil
}
