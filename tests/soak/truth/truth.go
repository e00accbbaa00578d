// Package truth reads from the kernel which network namespace has which addresses: it finds the
// namespaces under /run/netns and queries each over rtnetlink. It does not know the plan.
//
// It keeps no descriptor of a namespace, because that would keep a deleted pod's namespace alive.
package truth

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/soak/judge"
)

// folder is where namespaces have names.
const folder = "/run/netns"

// Watcher reads the namespaces whose names begin with a prefix. Its methods may be called from several
// goroutines.
type Watcher struct {
	prefix string
	nodes  []string
	start  time.Time
	feed   func(judge.Snapshot)

	mu    sync.Mutex
	known map[string]*space // by name under /run/netns
	ports map[string]map[int]bool
	// guests are the addresses of Guests, by name.
	guests map[string][]netip.Addr
	// listed is when the folder was listed last.
	listed time.Duration
}

// space is what is known of a namespace.
type space struct {
	holder judge.Holder
	has    []netip.Addr
	peer   int // index of the host end of its first veth, on its node
	gone   bool
}

// New makes a watcher for the namespaces with a prefix. The namespace of a node has the node's name
// behind it; in the others the part after the last dot names the node. It calls feed with one snapshot
// after the other, with times since start.
func New(prefix string, nodes []string, start time.Time, feed func(judge.Snapshot)) *Watcher {
	return &Watcher{
		prefix: prefix, nodes: nodes, start: start, feed: feed,
		known: make(map[string]*space), ports: make(map[string]map[int]bool), guests: make(map[string][]netip.Addr),
	}
}

// ReadAll reads every namespace, also those whose names have been removed: their devices may still
// exist.
func (w *Watcher) ReadAll() error {
	for _, node := range w.nodes {
		if err := w.Read(w.prefix + node); err != nil {
			return err
		}
	}
	from := time.Since(w.start)
	names, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	present := make(map[string]bool, len(names))
	for _, entry := range names {
		if w.holderOf(entry.Name()) != (judge.Holder{}) {
			present[entry.Name()] = true
		}
	}
	w.mu.Lock()
	for name := range w.known {
		present[name] = true
	}
	w.mu.Unlock()
	for _, node := range w.nodes {
		delete(present, w.prefix+node)
	}
	for name := range present {
		if err := w.Read(name); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed = from
	maps.DeleteFunc(w.known, func(_ string, s *space) bool { return s.gone })
	return nil
}

// holderOf is the holder of a name under /run/netns, or the zero Holder.
func (w *Watcher) holderOf(name string) judge.Holder {
	short, ours := strings.CutPrefix(name, w.prefix)
	if !ours {
		return judge.Holder{}
	}
	for _, node := range w.nodes {
		if short == node {
			return judge.Holder{Node: node, Netns: "host"}
		}
		if strings.HasSuffix(short, "."+node) {
			return judge.Holder{Node: node, Netns: name}
		}
	}
	return judge.Holder{}
}

// Read reads one namespace, which need not exist.
func (w *Watcher) Read(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.known[name]
	if s == nil {
		s = &space{holder: w.holderOf(name)}
		w.known[name] = s
		// It was not there when names were listed last.
		w.feed(judge.Snapshot{Holder: s.holder, From: w.listed, To: w.listed})
	}
	snapshot := judge.Snapshot{Holder: s.holder, From: time.Since(w.start)}
	view, err := inspect(name)
	snapshot.To = time.Since(w.start)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// If the host end of the veth still exists, so does the namespace, without a name.
		if node, err := inspect(w.prefix + s.holder.Node); err == nil {
			w.ports[s.holder.Node] = node.ports
		}
		if w.ports[s.holder.Node][s.peer] {
			snapshot.Maybe = s.has
		} else {
			s.gone = true
		}
	case err != nil:
		return fmt.Errorf("read netns %s: %w", name, err)
	default:
		if view.peer != 0 {
			view.has = append(view.has, w.guests[name]...)
		}
		snapshot.Has, snapshot.Maybe, snapshot.Deaf = view.has, view.maybe, view.deaf
		s.has, s.gone = view.has, false
		if view.peer != 0 {
			s.peer = view.peer
		}
		if s.holder.Netns == "host" {
			w.ports[s.holder.Node] = view.ports
		}
	}
	w.feed(snapshot)
	return nil
}

// view is what a namespace shows.
type view struct {
	has, maybe []netip.Addr
	listed     []netip.Addr        // of all devices
	noARP      map[netip.Addr]bool // are on a device without ARP
	deaf       bool
	peer       int
	ports      map[int]bool
}

// inspect reads the addresses of a namespace.
func inspect(name string) (v view, err error) {
	fd, err := netns.GetFromPath(filepath.Join(folder, name))
	if err != nil {
		return v, err
	}
	defer fd.Close()
	// While a namespace is created or deleted, its name is for a moment a file without a mount.
	var on unix.Statfs_t
	if err := unix.Fstatfs(int(fd), &on); err != nil {
		return v, err
	}
	if on.Type != unix.NSFS_MAGIC {
		return v, fs.ErrNotExist
	}
	handle, err := netlink.NewHandleAt(fd, unix.NETLINK_ROUTE)
	if err != nil {
		return v, err
	}
	defer handle.Close()
	if v, err = readNetns(handle); err != nil {
		return v, err
	}
	m, err := mannersOf(fd)
	v.silence(m)
	return v, err
}

// readNetns lists the devices and addresses.
func readNetns(handle *netlink.Handle) (view, error) {
	v := view{ports: make(map[int]bool), noARP: make(map[netip.Addr]bool)}
	links, err := lab.Dump(handle.LinkList)
	if err != nil {
		return v, err
	}
	up, noARP := make(map[int]bool, len(links)), make(map[int]bool)
	for _, link := range links {
		attrs := link.Attrs()
		up[attrs.Index], noARP[attrs.Index] = attrs.Flags&net.FlagUp != 0, attrs.RawFlags&unix.IFF_NOARP != 0
		if link.Type() == "veth" {
			v.ports[attrs.Index] = true
			v.peer = attrs.ParentIndex
		}
	}
	addrs, err := lab.Dump(func() ([]netlink.Addr, error) { return handle.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return v, err
	}
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		ip = ip.Unmap()
		v.listed = append(v.listed, ip)
		v.noARP[ip] = noARP[a.LinkIndex]
		const unsettled = unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC
		switch {
		case !ok, !ip.IsGlobalUnicast(), a.Flags&unix.IFA_F_DADFAILED != 0, !up[a.LinkIndex]:
		case a.Flags&unsettled != 0:
			v.maybe = append(v.maybe, ip)
		default:
			v.has = append(v.has, ip)
		}
	}
	return v, v.addRoutes(handle)
}

// addRoutes adds the addresses that only local routes make the kernel answer for.
func (v *view) addRoutes(handle *netlink.Handle) error {
	local := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}
	routes, err := lab.Dump(func() ([]netlink.Route, error) {
		return handle.RouteListFiltered(netlink.FAMILY_V4, local, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	})
	for _, r := range routes {
		if ones, bits := r.Dst.Mask.Size(); ones != bits {
			continue // those of the loopback network; steps make none
		}
		if ip, ok := netip.AddrFromSlice(r.Dst.IP); ok && ip.Unmap().IsGlobalUnicast() && !slices.Contains(v.listed, ip.Unmap()) {
			v.has = append(v.has, ip.Unmap())
		}
	}
	return err
}
