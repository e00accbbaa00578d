package kubelet_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/tests/lab"
)

// The runtime is killed and restarted: the agent's container keeps running, and finds the new socket
// in the folder that it has mounted.
func TestRuntimeRestarts(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	s := newTestNode(l, ptp)
	olderPods := s.pods("older", 2)
	a := s.agent()
	s.bound(a, olderPods...)
	pid := a.PID()
	for name, end := range map[string]func() error{"killed": s.Runtime.Kill9, "stopped": s.Runtime.Stop} {
		l.Do(end())
		l.Eventually("a runtime that is gone", func() error {
			// From outside: no program is run in a container whose runtime is gone.
			status, err := a.Client.Status(t.Context())
			if runtime := fmt.Sprint(status["runtime"]); err != nil || strings.Contains(runtime, "connected:true") {
				return fmt.Errorf("the agent still has %s (%w)", runtime, err)
			}
			return nil
		})
		l.Do(s.Runtime.Start(t.Context()))
		newcomers := s.pods("after-"+name, 2)
		s.bound(a, append(olderPods, newcomers...)...)
	}
	if a.PID() != pid || a.Live(t.Context()) != nil {
		t.Errorf("the agent does not run any more: %v", a.Live(t.Context()))
	}
	l.Do(a.Stop())
}

// The container is killed and started again, as after an out-of-memory kill: the next one removes
// what it left, also the programs of a kernel without tcx, and keeps the same conflicts.
func TestKilledContainer(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	s := newTestNode(l, ptp)
	olderPods := s.pods("older", 1)
	a := s.agent(withEnv("DUPIP_ATTACH", "tc"))
	s.bound(a, olderPods...)
	l.Do(s.Runtime.WipeStore())
	newcomers := s.pods("newcomer", 1)
	duplicates := s.duplicates(olderPods, newcomers)
	ids := s.confirmed(a, duplicates)
	// Since the last change it has been written.
	l.Eventually("the state", func() error {
		data, err := os.ReadFile(a.StateDir() + "/state.json")
		if err == nil && !strings.Contains(string(data), ids[olderPods[0].IPs[0]]) {
			err = errors.New("the conflict is not in the state yet")
		}
		return err
	})
	l.Do(a.Kill())
	left := filters(l, a.Node)
	if left == 0 {
		t.Error("a killed agent has left no programs: nothing is tested")
	}
	path, err := a.HostPath("/run/dupip/dupip.sock")
	l.Do(err)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		t.Error("a killed agent has left no socket: nothing is tested")
	}
	l.Do(a.Restart(t.Context()))
	s.ready(a)
	s.bound(a, append(olderPods, newcomers...)...)
	for ip, id := range s.confirmed(a, duplicates) {
		if ids[ip] != id {
			t.Errorf("the conflict about %v was %s, and is %s after a restart", ip, ids[ip], id)
		}
	}
	if now := filters(l, a.Node); now != left {
		t.Errorf("%d programs are attached, want %d as before", now, left)
	}
	l.Do(a.Stop())
	if now := filters(l, a.Node); now != 0 {
		t.Errorf("an agent that was stopped has left %d programs", now)
	}
}

// filters counts the tc programs at the interfaces of a node.
func filters(t *lab.T, n *lab.Node) (count int) {
	t.Helper()
	t.Do(n.Exec(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			found, err := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
			if err != nil {
				return fmt.Errorf("list filters of %s: %w", l.Attrs().Name, err)
			}
			count += len(found)
		}
		return nil
	}))
	return count
}
