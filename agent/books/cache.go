package books

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
)

const (
	// CacheDir is where libcni keeps the results of plugins (CacheDir, github.com/containernetworking/cni/libcni). Multus
	// and others have caches of their own for further networks.
	CacheDir = "/var/lib/cni/results"
	// DefaultInterface is the name that runtimes give the interface of a pod's primary network.
	DefaultInterface = "eth0"

	// maxEntries bounds the entries that are listed; failed clean-ups leave some behind.
	maxEntries = 16384
	// maxEntry is the size of the largest entry in bytes: it has the pod's annotations, up to 256 KiB.
	maxEntry = 1 << 20
)

// Entry is what libcni's cache has of one sandbox.
type Entry struct {
	// Netns is the path of its netns.
	Netns                string
	Namespace, Name, UID string // of the pod, as kubelet gave them to the runtime
	Result               *Result
}

// Cache is libcni's cache of results. It is not safe for concurrent use.
type Cache struct {
	dir   string
	files map[string]string // by sandbox, as listed last
	more  bool              // it has entries that were not listed
}

// NewCache returns the cache in a folder of the node, which need not exist.
func NewCache(dir string) *Cache { return &Cache{dir: dir} }

// List lists the sandboxes in the cache. Their number is bounded.
func (c *Cache) List() (sandboxes []string, err error) {
	root, err := openRoot(c.dir)
	if err != nil {
		return nil, err
	}
	defer root.close()
	if err := c.refresh(root); err != nil {
		return nil, err
	}
	return slices.Collect(maps.Keys(c.files)), nil
}

// refresh lists the folder: its entries are named NETWORK-SANDBOX-INTERFACE.
func (c *Cache) refresh(root hostRoot) error {
	folder, err := root.open(c.dir, fs.ModeDir)
	if err != nil {
		return err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("listing the node's %s: %w", c.dir, err)
	}
	c.files, c.more = make(map[string]string), len(names) > maxEntries
	tooManyEntries.Exceeded(max(len(names)-maxEntries, 0))
	for _, name := range names[:min(len(names), maxEntries)] {
		if id, ok := strings.CutSuffix(name, "-"+DefaultInterface); ok {
			c.files[id[strings.LastIndexByte(id, '-')+1:]] = name
		}
	}
	return nil
}

// Read returns the entry of a sandbox. It fails with [fs.ErrNotExist] if there is none.
func (c *Cache) Read(sandbox string) (*Entry, error) {
	root, err := openRoot(c.dir)
	if err != nil {
		return nil, err
	}
	defer root.close()
	name, ok := c.files[sandbox]
	if !ok { // it came since then
		if err := c.refresh(root); err != nil {
			return nil, err
		}
		name, ok = c.files[sandbox]
	}
	switch {
	case !ok && c.more:
		return nil, fmt.Errorf("sandbox %s is not among the first %d files in the node's %s: remove what failed clean-ups left there", sandbox, maxEntries, c.dir)
	case !ok:
		return nil, fmt.Errorf("sandbox %s in the node's %s: %w", sandbox, c.dir, fs.ErrNotExist)
	}
	data, err := root.read(path.Join(c.dir, name), maxEntry)
	if err != nil {
		return nil, err
	}
	return parseEntry(data)
}

// parseEntry reads an entry: a cniCacheV1, with a result of any version of CNI. Results before 0.3.0 name no interfaces.
func parseEntry(data []byte) (*Entry, error) {
	var read struct {
		Kind, IfName, Netns, NetworkName string

		CNIArgs [][2]string
		Result  struct {
			Interfaces []cniInterface
			IPs        []struct{ Address netip.Prefix }
		}
	}
	if err := json.Unmarshal(data, &read); err != nil {
		return nil, fmt.Errorf("reading an entry of libcni's cache: %w", err)
	}
	if read.Kind != "cniCacheV1" || read.IfName != DefaultInterface {
		return nil, fmt.Errorf("reading an entry of libcni's cache: kind %.20q of interface %.20q", read.Kind, read.IfName)
	}
	if n := len(read.Result.IPs); n > maxAddresses {
		return nil, fmt.Errorf("reading an entry of libcni's cache: it has %d addresses; %d are possible", n, maxAddresses)
	}
	args := make(map[string]string)
	for _, arg := range read.CNIArgs {
		args[arg[0]] = arg[1]
	}
	e := &Entry{Netns: read.Netns, Namespace: args["K8S_POD_NAMESPACE"], Name: args["K8S_POD_NAME"], UID: args["K8S_POD_UID"]}
	var addresses []netip.Prefix
	for _, ip := range read.Result.IPs {
		if a := ip.Address; a.IsValid() && a.Addr().IsGlobalUnicast() && !a.Addr().Is4In6() {
			addresses = append(addresses, a)
		}
	}
	for _, i := range read.Result.Interfaces {
		if e.Netns == "" && i.Name == DefaultInterface {
			e.Netns = i.Sandbox
		}
	}
	e.Result = newResult(read.Result.Interfaces, addresses)
	e.Result.Network = read.NetworkName
	return e, nil
}
