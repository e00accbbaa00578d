package kubelet_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/kubelet"
	"github.com/dupip/dupip/tests/lab"
)

// Pods that come and go leave nothing in the agent's container: no mount of their
// namespaces or file systems, whether they were there before it or came later, and no open
// file. The machine could free neither otherwise.
func TestMounts(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	s := newTestNode(l, ptp)
	olderPods := s.pods("older", 2)
	a := s.agent()
	for _, p := range olderPods {
		if err := traces(l, a, p, netnsOf(l, p, "")); err == nil {
			t.Fatalf("nothing of pod %s is in the container: the test checks the wrong places", p.Name)
		}
	}
	// The runtime's folder has the container's own root below it.
	for _, m := range mounts(l, a) {
		if strings.Contains(m, "/rootfs/run/netns") {
			t.Fatalf("every name of a netns is mounted twice: %s", m)
		}
	}
	before := len(mounts(l, a))
	for round := range 2 {
		later := s.pods(fmt.Sprintf("later-%d", round), 3)
		s.bound(a, append(olderPods, later...)...)
		for _, p := range later {
			// Their namespaces have names in the container, too.
			if here, there := netnsOf(l, p, ""), netnsOf(l, p, root(a)); here != there {
				t.Errorf("the netns of %s is %s, and in the container %s", p.Name, here, there)
			}
			stopped(s, a, p)
		}
		if now := len(mounts(l, a)); now > before {
			t.Errorf("after round %d the container has %d mounts, %d at first", round, now, before)
		}
	}
	for _, p := range olderPods {
		stopped(s, a, p)
	}
	if now := len(mounts(l, a)); now >= before {
		t.Errorf("without pods the container has %d mounts, and had %d", now, before)
	}
}

// stopped stops a pod, which leaves its sandbox, and waits until the container has no
// trace of it; then it removes it.
func stopped(s *testNode, a *kubelet.Agent, p *cri.Pod) {
	s.Helper()
	netns := netnsOf(s.T, p, "")
	s.Do(s.Runtime.StopPod(s.Context(), p))
	s.Eventually("traces of a pod that was stopped", func() error { return traces(s.T, a, p, netns) })
	s.Do(s.Runtime.RemovePod(s.Context(), p))
}

// traces is an error that names what the agent's container has of a pod: mounts of its
// netns and of its file systems, and open files of its netns, which is "net:[inode]".
func traces(t *lab.T, a *kubelet.Agent, p *cri.Pod, netns string) error {
	var errs []error
	// By its name: the number is another's as soon as the netns is gone.
	name := " /run/netns/" + p.NetnsName() + " "
	for _, m := range mounts(t, a, name) {
		if strings.Contains(m, "/"+p.ID+"/") || strings.Contains(m, name) {
			errs = append(errs, fmt.Errorf("a mount: %s", m))
		}
	}
	dir := fmt.Sprintf("/proc/%d/fd", a.PID())
	entries, err := os.ReadDir(dir)
	t.Do(err)
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		t.Do(err)
		if target == netns {
			errs = append(errs, fmt.Errorf("an open file: %s", target))
		}
	}
	return errors.Join(errs...)
}

// mounts are the mounts in the agent's container, as in proc_pid_mountinfo(5), but for the
// namespaces that tests on other nodes make meanwhile.
func mounts(t *lab.T, a *kubelet.Agent, own ...string) (list []string) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", a.PID()))
	t.Do(err)
	for line := range strings.Lines(string(data)) {
		if !strings.Contains(line, " /run/netns/") || slices.ContainsFunc(own, func(name string) bool { return strings.Contains(line, name) }) {
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list
}

func root(a *kubelet.Agent) string { return fmt.Sprintf("/proc/%d/root", a.PID()) }

// netnsOf is the netns of a pod as seen below a root, as "net:[inode]".
func netnsOf(t *lab.T, p *cri.Pod, root string) string {
	t.Helper()
	path := filepath.Join(root, "/run/netns", p.NetnsName())
	var s unix.Stat_t
	t.Do(unix.Stat(path, &s))
	return fmt.Sprintf("net:[%d]", s.Ino)
}
