package e2e

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// usage is what an agent holds.
type usage struct {
	lab.Usage
	// strayed counts threads that are not in the node's netns.
	strayed int
	// netns counts the namespaces for which the node's has an id: those of running pods, and deleted
	// ones that something still holds.
	netns int
	// goroutines and rss (in bytes) are from the agent's /metrics.
	goroutines, rss int
	// entries counts what is in the agent's BPF hash maps.
	entries int
}

func usageOf(t *lab.T, n *lab.Node, a *lab.Agent) (u usage) {
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
	u.netns, err = netnsIDs(n)
	t.Do(err)
	m, err := a.Scrape(t.Context())
	t.Do(err)
	u.goroutines, u.rss = int(m["go_goroutines"]), int(m["process_resident_memory_bytes"])
	u.entries, err = lab.MapEntries(a.PID())
	t.Do(err)
	return u
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
