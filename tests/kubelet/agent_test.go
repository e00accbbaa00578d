package kubelet_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/tests/kubelet"
	"github.com/dupip/dupip/tests/lab"
)

// The agent in the container that a cluster runs: it finds existing and new pods by name; it has no
// problem; it ends cleanly and leaves only its state, which the next one restores.
func TestAsDeployed(t *testing.T) {
	for name, tt := range map[string]struct {
		plugin  map[string]any
		changes []kubelet.Change
	}{
		"ptp":        {ptp, nil},
		"bridge":     {bridge, nil},
		"privileged": {ptp, []kubelet.Change{privileged()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const pods = 5
			l := lab.NewT(t)
			s := newTestNode(l, tt.plugin)
			olderPods := s.pods("older", pods)
			a := s.agent(tt.changes...)
			s.bound(a, olderPods...)
			later := s.pods("later", pods)
			s.bound(a, append(olderPods, later...)...)
			l.Do(a.Live(t.Context()))
			wantHealthy(s, a)
			logMemory(l, a, 2*pods)

			l.Do(s.Runtime.WipeStore())
			duplicates := s.duplicates(olderPods, s.pods("newcomer", 2))
			ids := s.confirmed(a, duplicates)
			if r, err := a.Exec(t.Context(), "dupip", "conflicts", "--exit-code"); err != nil || r.Code != 3 {
				t.Errorf("dupip conflicts --exit-code: code %d, want 3 (%v)", r.Code, err)
			}

			own := programs(l, a.Node)
			if own != 2*pods+2 {
				t.Errorf("%d programs are attached, want one for each of %d pods", own, 2*pods+2)
			}
			state := a.StateDir()
			l.Do(a.Stop())
			if left := programs(l, a.Node); left != 0 {
				t.Errorf("an agent that was stopped has left %d programs", left)
			}
			if files := filesBelow(l, state); !slices.Equal(files, []string{"state.json"}) {
				t.Errorf("an agent that was stopped has left %q", files)
			}
			folder := s.HostPaths["/run/dupip"]
			if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 || len(filesBelow(l, folder)) > 0 {
				t.Errorf("the socket's folder: %v, %v, with %q, want an empty one for root", info, err, filesBelow(l, folder))
			}
			next := s.agent(tt.changes...)
			s.bound(next, olderPods...)
			for ip, id := range s.confirmed(next, duplicates) {
				if ids[ip] != id {
					t.Errorf("the conflict about %v was %s, and is %s after a restart", ip, ids[ip], id)
				}
			}
		})
	}
}

// wantHealthy checks status and doctor.
func wantHealthy(s *testNode, a *kubelet.Agent) {
	s.Helper()
	// Its own attempts have limits of a few seconds, which a machine that stalls exceeds.
	s.Eventually("a healthy doctor", func() error {
		var errs []error
		for name, c := range doctor(s.T, a) {
			if name == "books" && !kubelet.RootOfInit() {
				continue // this machine refuses it to everybody
			}
			if c.Status == "warn" || c.Status == "fail" {
				errs = append(errs, fmt.Errorf("%+v", c))
			}
		}
		return errors.Join(errs...)
	})
	text, err := a.CLI(s.Context(), "status")
	s.Do(err)
	for _, trouble := range []string{"NOT", "unseen", "failed", "unsupported", "shadowed"} {
		if strings.Contains(text, trouble) {
			s.Errorf("dupip status has a problem:\n%s", text)
			break
		}
	}
	if !strings.Contains(text, "boot "+a.Node.BootID()) {
		s.Errorf("the agent does not see the boot id %s of its node:\n%s", a.Node.BootID(), text)
	}
	for line := range strings.Lines(a.Log()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			s.Errorf("the agent logged a problem: %s", line)
		}
	}
}

// programs counts the tcx programs at the interfaces of a node. The tests attach none.
func programs(t *lab.T, n *lab.Node) (count int) {
	t.Helper()
	t.Do(n.Exec(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			found, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: ebpf.AttachTCXIngress})
			if err != nil {
				return fmt.Errorf("query programs of %s: %w", l.Attrs().Name, err)
			}
			count += len(found.Programs)
		}
		return nil
	}))
	return count
}

// filesBelow are the files in a folder and those below it.
func filesBelow(t *lab.T, dir string) (files []string) {
	t.Helper()
	t.Do(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, err := filepath.Rel(dir, path)
			files = append(files, rel)
			return err
		}
		return err
	}))
	return files
}

// logMemory compares the memory that the kernel charges the container with its resident memory, and
// checks that its limit is in force where the machine has limits.
func logMemory(t *lab.T, a *kubelet.Agent, pods int) {
	t.Helper()
	usage, limit, err := memory(a.PID())
	if errors.Is(err, fs.ErrNotExist) && !kubelet.HasMemoryLimits() {
		return
	}
	t.Do(err)
	used, err := lab.UsageOf(a.PID())
	t.Do(err)
	t.Logf("memory at %d pods: %d MiB charged of %d MiB, %v", pods, usage>>20, limit>>20, used)
	if want := int64(256 << 20); limit != want {
		t.Errorf("the limit of memory is %d bytes, want %d as in the manifest", limit, want)
	}
}

// memory is what the kernel charges the container, and the limit of that, in bytes.
func memory(pid int) (usage, limit int64, err error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	groups, err := proc.Cgroups()
	if err != nil {
		return 0, 0, err
	}
	read := func(file string) (n int64) {
		data, failed := os.ReadFile(file)
		if failed == nil {
			n, failed = strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		}
		err = errors.Join(err, failed)
		return n
	}
	for _, g := range groups {
		if slices.Contains(g.Controllers, "memory") {
			dir := filepath.Join("/sys/fs/cgroup/memory", g.Path)
			return read(dir + "/memory.usage_in_bytes"), read(dir + "/memory.limit_in_bytes"), err
		}
	}
	dir := filepath.Join("/sys/fs/cgroup", groups[0].Path) // the only one of cgroup 2
	return read(dir + "/memory.current"), read(dir + "/memory.max"), err
}
