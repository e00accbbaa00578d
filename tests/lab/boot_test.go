package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Every node is a machine of its own for its agents, and stays one until it reboots.
func TestBootIDs(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	machine, err := os.ReadFile(bootIDFile)
	l.Do(err)
	seen := map[string]string{strings.TrimSpace(string(machine)): "this machine"}
	bootID := func(a *Agent) string {
		t.Helper()
		status, err := a.Client.Status(t.Context())
		l.Do(err)
		id, _ := status["bootID"].(string)
		if id != a.Node.BootID() {
			t.Errorf("boot id of the agent: got %s, want %s", id, a.Node.BootID())
		}
		return id
	}
	fresh := func(a *Agent) {
		t.Helper()
		id := bootID(a)
		if other := seen[id]; other != "" {
			t.Errorf("%s has the boot id of %s", a.Node.ShortName(), other)
		}
		seen[id] = a.Node.ShortName()
	}
	first := l.Agent(l.Node(""))
	fresh(first)
	fresh(l.Agent(l.Node("")))

	before := bootID(first)
	l.Do(first.Stop())
	second := l.Successor(first)
	if after := bootID(second); after != before {
		t.Errorf("boot id after a restart of the agent: got %s, want %s", after, before)
	}
	l.Do(second.Kill(), second.Node.Reboot())
	fresh(l.Successor(second))
}

// The agent sees the names of netns that are made and removed while it runs, and of its
// own mounts there is nothing to see outside.
func TestMountsOfAgents(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	n := l.Node("")
	own, at := t.TempDir(), t.TempDir()
	l.Do(os.WriteFile(filepath.Join(own, "mine"), nil, 0o600))
	n.Mounts = []Mount{{own, at}}
	a := l.Agent(n)
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root%s/mine", a.PID(), at)); err != nil {
		t.Errorf("the agent's folder is not its node's: %v", err)
	}
	p := l.Pod(n, "late", PodOptions{})
	want, err := p.Inode()
	l.Do(err)
	path := fmt.Sprintf("/proc/%d/root%s", a.PID(), p.Path())
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Ino != want {
		t.Errorf("netns of a later pod, as the agent sees it: got inode %d, %v, want %d", st.Ino, err, want)
	}
	l.Do(p.Delete())
	if err := unix.Stat(path, &st); !errors.Is(err, unix.ENOENT) {
		t.Errorf("name of a netns that is gone, as the agent sees it: got %v, want %v", err, unix.ENOENT)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	l.Do(err)
	if strings.Contains(string(mounts), bootIDFile) {
		t.Error("the boot id of an agent is mounted for everybody")
	}
}
