package e2e

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// usage is what an agent holds.
type usage struct {
	lab.Usage
	// strayed counts threads that are not in the node's netns.
	strayed int
	// goroutines and rss (in bytes) are from the agent's /metrics.
	goroutines, rss int
	// entries counts what is in the agent's BPF hash maps.
	entries int
}

// String has all of it: that of [lab.Usage] would hide the rest.
func (u usage) String() string {
	return fmt.Sprintf("%v, %d of them in another netns, %d goroutines, %d entries in BPF maps", u.Usage, u.strayed, u.goroutines, u.entries)
}

func usageOf(t *lab.T, a *lab.Agent) (u usage) {
	t.Helper()
	var err error
	u.Usage, err = a.Usage()
	t.Do(err)
	home, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", a.PID()))
	t.Do(err)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/ns/net", a.PID()))
	t.Do(err)
	for _, path := range threads {
		if at, err := os.Readlink(path); err == nil && at != home {
			u.strayed++
		}
	}
	m, err := a.Scrape(t.Context())
	t.Do(err)
	u.goroutines, u.rss = int(m["go_goroutines"]), int(m["process_resident_memory_bytes"])
	u.entries, err = lab.MapEntries(a.PID())
	t.Do(err)
	return u
}

// deletedNetns returns the ids of namespaces that the node's has an id for and that no process holds, nor a name. What the
// agent holds does not count. The agent gives an id to every netns that it finds, those of other tests, too.
func deletedNetns(n *lab.Node, agent int) ([]int, error) {
	all, err := netnsIDs(n)
	if err != nil {
		return nil, err
	}
	left := make(map[int]bool)
	for _, id := range all {
		left[id] = true
	}
	seen := make(map[string]bool)
	for _, pattern := range []string{"/run/netns/*", "/run/docker/netns/*", "/proc/[0-9]*/ns/net", "/proc/[0-9]*/fd/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			target, err := os.Readlink(path)
			if err != nil {
				target = path // a name
			}
			if strings.HasPrefix(path, fmt.Sprintf("/proc/%d/", agent)) || seen[target] || target != path && !strings.HasPrefix(target, "net:") {
				continue
			}
			file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
			if err != nil {
				continue // it ended meanwhile
			}
			id, err := n.Netlink().GetNetNsIdByFd(int(file.Fd()))
			_ = file.Close()
			if err == nil {
				seen[target] = true
				delete(left, id)
			}
		}
	}
	return slices.Sorted(maps.Keys(left)), nil
}

// netnsIDs returns the netns ids of the node (RTM_GETNSID, as `ip netns list-id`).
func netnsIDs(n *lab.Node) (ids []int, err error) {
	err = n.Exec(func() error {
		r := nl.NewNetlinkRequest(unix.RTM_GETNSID, unix.NLM_F_DUMP)
		r.AddData(nl.NewRtGenMsg())
		messages, err := r.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNSID)
		if err != nil {
			return err
		}
		for _, m := range messages {
			attributes, err := nl.ParseRouteAttr(m[nl.DeserializeRtGenMsg(m).Len():])
			if err != nil {
				return err
			}
			for _, a := range attributes {
				if a.Attr.Type == unix.NETNSA_NSID {
					ids = append(ids, int(int32(binary.NativeEndian.Uint32(a.Value))))
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list netns ids of %s: %w", n.Name, err)
	}
	return ids, nil
}
