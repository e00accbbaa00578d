package books

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"
)

// The kinds of IPAM whose books are read.
const (
	BookHostLocal = "host-local"
	BookAzureCNS  = "azure-cns"
)

const (
	// ConfDir is where container runtimes find the configuration of networks.
	ConfDir = "/etc/cni/net.d"

	// maxConfigs and maxConfig bound the files of the configuration, and the size of each in bytes.
	maxConfigs = 256
	maxConfig  = 1 << 20

	// wholeEvery is how often everything is read, also what no event told of. It takes one in wholeShare of the time, but is never longer ago
	// than wholeLatest.
	wholeEvery  = 30 * time.Second
	wholeShare  = 3000
	wholeLatest = 5 * time.Minute
)

// IPAM reads what the node's IPAM has reserved. It takes no lock, because an ADD must not wait for it: what it reads may
// change meanwhile. It is not safe for concurrent use.
type IPAM struct {
	folder  func() string
	confDir string // the folder of the last reading
	watch   watch
	whole   time.Time // when everything has to be read again

	networks []*Reserved          // as configured, without reservations
	problem  error                // of the configuration
	last     map[string]*Reserved // by path of the store
}

// NewIPAM returns a reader for the networks that a folder of the node configures, which may be another one each time.
func NewIPAM(folder func() string) *IPAM { return &IPAM{folder: folder} }

// ErrNoFolder says that the folder of the configuration does not exist.
var ErrNoFolder = errors.New("does not exist on this node")

// Folder is the node's folder with the configuration that was read last.
func (h *IPAM) Folder() string { return cmp.Or(h.confDir, h.folder()) }

// Unwatched is why the last reading had to be of all files, because a folder cannot be watched; nil if all are.
func (h *IPAM) Unwatched() error { return h.watch.err }

// Close frees what a reading keeps for the next one. Another reading may follow.
func (h *IPAM) Close() { h.watch.close() }

// Read returns what is reserved now, by network: the same pointer as the last time if that has not changed. The error is [ErrNoFolder], or
// of a configuration that cannot be read in part says what is missing; the rest is returned.
func (h *IPAM) Read() (list []*Reserved, err error) {
	began, folder := time.Now(), h.folder()
	whole := !began.Before(h.whole) || folder != h.confDir
	h.confDir = folder
	h.watch.collect() // also without a root, so that an agent has its descriptor of inotify from the beginning
	// One root for all: where the kernel refuses process 1's, the folder of the configuration tells whose root this is, and a
	// store may be missing.
	root, err := openRoot(h.confDir)
	if err != nil {
		h.last = nil
		return nil, err
	}
	defer root.close()
	if names, all := h.watch.changed(root, h.confDir); whole || all || len(names) > 0 || h.problem != nil {
		h.networks, h.problem = h.configured(root)
	}
	read := make(map[string]*Reserved, len(h.networks))
	for _, n := range h.networks {
		if read[n.Store] != nil {
			continue // two files may configure one network, or two networks have one store
		}
		read[n.Store] = h.read(root, *n, whole)
		list = append(list, read[n.Store])
	}
	h.last = read
	h.watch.keep(func(path string) bool { return path == h.confDir || read[path] != nil })
	if whole {
		h.whole = began.Add(min(max(wholeEvery, wholeShare*time.Since(began)), wholeLatest))
	}
	return list, h.problem
}

// read reads one book. What is known from the last reading is not read again.
func (h *IPAM) read(root hostRoot, n Reserved, whole bool) *Reserved {
	last := cmp.Or(h.last[n.Store], &Reserved{})
	if n.subnets != "" {
		n.Ranges = flannelRanges(root, n.subnets)
	}
	same := false
	if n.Book == BookAzureCNS {
		n.Reservations, same, n.Err = readEndpoints(root, n.Store, last.Reservations)
	} else if names, all := h.watch.changed(root, n.Store); whole || all || last.Reservations == nil {
		n.Reservations, same, n.Err = readStore(root, n.Store, last.Reservations)
	} else {
		n.Reservations, same, n.Err = readChanges(root, n.Store, names, last.Reservations)
	}
	if same && n.Network == last.Network && n.Plugin == last.Plugin && slices.Equal(n.Ranges, last.Ranges) {
		return last
	}
	return &n
}

// configured reads the configuration.
func (h *IPAM) configured(root hostRoot) (networks []*Reserved, problem error) {
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
			networks = append(networks, n)
		}
	}
	return networks, problem
}
