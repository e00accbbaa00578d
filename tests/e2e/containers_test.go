package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// Where no engine's socket answers, a container is named by its id and a process, from its cgroup.
func TestContainersWithoutSocket(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	tag, ip, plain := fmt.Sprintf("dupip-e2e-%d", os.Getpid()), netip.MustParseAddr("10.244.1.77"), netip.MustParseAddr("10.244.1.78")
	t.Cleanup(func() { l.Do(cri.RemoveCgroups(tag)) })
	ids := []string{strings.Repeat("0a", 32), strings.Repeat("0b", 32)}
	var want []lab.PodRef
	var texts []string
	run := func(p *lab.Pod, cgroup string) (pid int) {
		sleep := exec.Command("sleep", "600")
		l.Do(p.Start(sleep))
		t.Cleanup(func() { _ = sleep.Process.Kill(); _ = sleep.Wait() })
		l.Do(enter(filepath.Join(tag, cgroup), sleep.Process.Pid))
		return sleep.Process.Pid
	}
	for i, cgroup := range []string{"docker/" + ids[0], "libpod-" + ids[1] + "/container"} {
		pid := run(l.Pod(n, fmt.Sprint("c", i), lab.PodOptions{Addrs: []netip.Addr{ip}}), cgroup)
		want = append(want, lab.PodRef{Name: ids[i][:12], UID: ids[i], Engine: []string{"docker", "podman"}[i]})
		texts = append(texts, fmt.Sprintf("container %s (sleep, pid %d)", ids[i][:12], pid))
		if i == 0 { // a process of the first container enters a netns that is not the container's
			run(l.Pod(n, "plain", lab.PodOptions{Addrs: []netip.Addr{plain}}), cgroup)
			_, err := a.Client.WaitBinding(within(l, patience), plain, func(lab.Binding) bool { return true })
			l.Do(err)
		}
	}
	l.Eventually("the names", func() error {
		list, err := a.Client.Bindings(t.Context(), ip)
		names := make(map[lab.PodRef]bool)
		for _, b := range list {
			if b.Pod != nil {
				names[*b.Pod] = true
			}
		}
		if len(list) != 2 || !names[want[0]] || !names[want[1]] {
			err = errors.Join(err, fmt.Errorf("they are %v, want %v", names, want))
		}
		return err
	})
	// The look that found the second container has found that process, too.
	if list, err := a.Client.Bindings(t.Context(), plain); err != nil || len(list) != 1 || list[0].Pod != nil {
		t.Errorf("the netns that was entered: %+v, %v", list, err)
	}
	l.Eventually("the conflict", func() error {
		out, err := a.CLI(t.Context(), "conflicts", "-o", "json")
		for _, text := range texts {
			if !strings.Contains(out, text) {
				err = errors.Join(err, fmt.Errorf("it does not name %s: %s", text, out))
			}
		}
		return err
	})
}

// enter puts a process into a cgroup, of version 2 or of a hierarchy of version 1.
func enter(path string, pid int) error {
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
		root += "/pids"
	}
	dir := filepath.Join(root, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600)
}
