package cluster_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestReporter: Events of a duplicate, as people see them, while the reporter that writes them is deleted.
func TestReporter(t *testing.T) {
	c := newTestCluster(t, "node1", "node2")
	c.importImage()
	c.install("--set reporter.enabled=true")
	c.run("kubectl -n dupip rollout status deploy/dupip-reporter --timeout=1m; kubectl -n dupip get pods -o wide; kubectl -n dupip get lease")
	c.shop()
	ip := c.duplicate("node1", "old", "new", pod("new", "node1"))
	c.inState("node1", ip, "confirmed")
	c.eventually("an Event", func() error {
		out, err := c.Shell("kubectl -n shop describe pod old new")
		if err == nil && strings.Count(out, "DuplicateIP ") != 2 {
			err = fmt.Errorf("the pods:\n%s", out)
		}
		return err
	})
	c.run("kubectl -n shop describe pod old | sed -n '/^Events/,$p'; kubectl -n shop get events.v1.events.k8s.io -o yaml")
}
