package books

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// hostLocalDir is where host-local keeps its reservations, a folder for each network
	// (plugins/ipam/host-local/backend/disk, github.com/containernetworking/plugins).
	hostLocalDir = "/var/lib/cni/networks"

	// maxNetworkName is the longest name of a network, which is that of its folder (NAME_MAX).
	maxNetworkName = 255
	// maxReservations bounds the reservations of one network. A store with more is not used.
	maxReservations = 1 << 16
	// maxReservation is the size of a reservation in bytes: the ids of a container and of an interface.
	maxReservation = 512
)

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

func (r Reservation) same(as Reservation) bool {
	return r.version == as.version && r.Sandbox == as.Sandbox
}

// version tells whether a file is the one that was read before.
type version struct {
	inode uint64
	ctime unix.Timespec
}

func versionOf(stat *unix.Stat_t) version { return version{stat.Ino, stat.Ctim} }

// readStore reads the files of a store, which are named by their addresses. Others are host-local's own. Files that are those of
// the last reading are not read again; if all are, what is known is returned.
func readStore(root hostRoot, store string, known map[netip.Addr]Reservation) (all map[netip.Addr]Reservation, same bool, err error) {
	folder, err := root.open(store, fs.ModeDir)
	if errors.Is(err, fs.ErrNotExist) {
		if known != nil && len(known) == 0 {
			return known, true, nil
		}
		return make(map[netip.Addr]Reservation), false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(maxReservations + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("listing the node's reservations: %w", err)
	}
	if len(names) > maxReservations {
		return nil, false, fmt.Errorf("listing the node's reservations: more than %d", maxReservations)
	}
	all, same = make(map[netip.Addr]Reservation, len(names)), known != nil
	for _, name := range names {
		ip, ok := reservedBy(name)
		if !ok {
			continue
		}
		r, err := readReservation(int(folder.Fd()), name, known[ip])
		if errors.Is(err, fs.ErrNotExist) {
			continue // a DEL has just removed it
		}
		if err != nil {
			return nil, false, fmt.Errorf("reading the node's reservation of %s: %w", ip, err)
		}
		all[ip], same = r, same && r.same(known[ip])
	}
	if same && len(all) == len(known) {
		return known, true, nil
	}
	return all, false, nil
}

// readChanges reads the files of a store that have these names.
func readChanges(root hostRoot, store string, names map[string]bool, known map[netip.Addr]Reservation) (all map[netip.Addr]Reservation, same bool, err error) {
	if len(names) == 0 {
		return known, true, nil
	}
	folder, err := root.open(store, fs.ModeDir)
	if err != nil {
		return readStore(root, store, known) // it has just gone
	}
	defer folder.Close()
	all, same = known, true
	for name := range names {
		ip, ok := reservedBy(name)
		if !ok {
			continue
		}
		r, err := readReservation(int(folder.Fd()), name, Reservation{})
		gone := errors.Is(err, fs.ErrNotExist)
		if err != nil && !gone {
			return nil, false, fmt.Errorf("reading the node's reservation of %s: %w", ip, err)
		}
		last, existed := all[ip]
		if gone && !existed || !gone && existed && r.same(last) {
			continue
		}
		if same {
			all, same = maps.Clone(known), false
		}
		if gone {
			delete(all, ip)
		} else {
			all[ip] = r
		}
	}
	if len(all) > maxReservations {
		return readStore(root, store, known) // it says so
	}
	return all, same, nil
}

// reservedBy returns the address whose reservation has this name.
func reservedBy(name string) (ip netip.Addr, ok bool) {
	ip, err := netip.ParseAddr(name)
	return ip, err == nil && ip.String() == name && !ip.Is4In6() && ip.Zone() == "" // a zone may be any text
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
