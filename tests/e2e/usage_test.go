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
	files, threads int
	// strayed counts threads that are not in the node's netns.
	strayed int
	// netns counts the namespaces that the node's has an id for: those of living pods,
	// and of dead ones that somebody keeps.
	netns int
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
