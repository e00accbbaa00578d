package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// usage is what an agent holds.
type usage struct {
	files, threads int
	// strayed counts threads that are not in the node's netns.
	strayed int
	// netns counts the namespaces that the node's has an id for: those of living pods,
	// and of dead ones that somebody keeps.
	netns int
	// goroutines and rss (in bytes) are the agent's own word, on /metrics.
	goroutines, rss int
	// entries counts what is in the agent's BPF hash maps.
	entries int
}

func usageOf(t *lab.T, n *lab.Node, a *lab.Agent) usage {
	t.Helper()
	var u usage
	proc := fmt.Sprintf("/proc/%d", a.PID())
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	t.Do(err)
	u.files = len(fds)
	home, err := os.Readlink(filepath.Join(proc, "ns/net"))
	t.Do(err)
	tasks, err := os.ReadDir(filepath.Join(proc, "task"))
	t.Do(err)
	u.threads = len(tasks)
	for _, task := range tasks {
		at, err := os.Readlink(filepath.Join(proc, "task", task.Name(), "ns/net"))
		if err == nil && at != home {
			u.strayed++
		}
	}
	u.netns, err = netnsIDs(n)
	t.Do(err)
	m, err := a.Scrape(t.Context())
	t.Do(err)
	u.goroutines, u.rss = int(m["go_goroutines"]), int(m["process_resident_memory_bytes"])
	u.entries, err = mapEntries(a.PID())
	t.Do(err)
	return u
}

// mapEntries counts the entries of the hash maps that a process has open.
func mapEntries(pid int) (count int, err error) {
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return 0, err
	}
	seen := make(map[ebpf.MapID]bool)
	for _, path := range infos {
		info, err := os.ReadFile(path)
		if err != nil {
			continue // closed since
		}
		_, after, ok := strings.Cut(string(info), "map_id:")
		if !ok {
			continue
		}
		text, _, _ := strings.Cut(after, "\n")
		number, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", path, err)
		}
		if id := ebpf.MapID(number); !seen[id] {
			seen[id] = true
			n, err := entriesOf(id)
			if err != nil {
				return 0, fmt.Errorf("count the entries of map %d: %w", id, err)
			}
			count += n
		}
	}
	return count, nil
}

func entriesOf(id ebpf.MapID) (count int, err error) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	if m.Type() != ebpf.Hash && m.Type() != ebpf.LRUHash {
		return 0, nil
	}
	var key, value []byte
	entries := m.Iterate()
	for entries.Next(&key, &value) {
		count++
	}
	return count, entries.Err()
}

// netnsIDs counts the netns ids of the node (RTM_GETNSID, as `ip netns list-id`).
func netnsIDs(n *lab.Node) (count int, err error) {
	err = n.Exec(func() error {
		r := nl.NewNetlinkRequest(unix.RTM_GETNSID, unix.NLM_F_DUMP)
		r.AddData(nl.NewRtGenMsg())
		messages, err := r.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNSID)
		count = len(messages)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("list netns ids of %s: %w", n.Name, err)
	}
	return count, nil
}
