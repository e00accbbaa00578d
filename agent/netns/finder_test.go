package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/ownnetns"
)

// finding is a Finder with a directory of names for itself.
type finding struct {
	*Finder
	t     *testing.T
	names string
}

func newFinding(t *testing.T) *finding {
	t.Helper()
	finder, err := NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	before := namedDirs
	f := &finding{finder, t, t.TempDir()}
	namedDirs = []string{f.names}
	t.Cleanup(func() {
		namedDirs = before
		finder.Close()
	})
	return f
}

// pod makes a netns, names it unless name is empty, and makes a veth into it. It returns the arguments of
// Scan.
func (f *finding) pod(name string) (p *ownnetns.Pod, id, peer int) {
	f.t.Helper()
	p = ownnetns.NewPod(f.t)
	if name != "" {
		f.do(os.Symlink(fmt.Sprintf("/proc/%d/ns/net", p.Pid), filepath.Join(f.names, name)))
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = fmt.Sprint("pod", p.Pid)
	f.do(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(p.Pid)}))
	link, err := netlink.LinkByName(attrs.Name)
	f.do(err)
	f.t.Cleanup(func() { _ = netlink.LinkDel(link) })
	return p, link.Attrs().NetNsID, link.Attrs().ParentIndex
}

func (f *finding) do(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// Scan finds a named netns without a search of all processes, also if its id belonged to another netns
// whose name is gone.
func TestNamesAreFoundWithoutProcesses(t *testing.T) {
	f := newFinding(t)
	find := func(id, peer int, name string, long bool) {
		t.Helper()
		f.searched = f.searched.Add(-SearchPause)
		before := f.searched
		ref, view, err := f.Scan(id, peer, 0)
		if err != nil || ref.Name != name || view.Peer != "eth0" {
			t.Fatalf("found %+v, with %+v and the error %v, want %s", ref, view, err, name)
		}
		if known, ok := f.Ref(id); !ref.Exists() || !ok || known != ref {
			t.Errorf("found %+v, which belongs to another netns or is unknown", ref)
		}
		if got := f.searched != before; got != long {
			t.Errorf("all processes were searched: %t, want %t", got, long)
		}
	}
	// The first search is complete.
	first, id, peer := f.pod("first")
	find(id, peer, "first", true)
	find(id, peer, "first", false)
	_, secondID, secondPeer := f.pod("second")
	find(secondID, secondPeer, "second", false)
	// If the peer has left the netns, Scan does not search again.
	searched := f.searched
	if _, _, err := f.Scan(secondID, 1<<20, 0); !errors.Is(err, ErrNoPeer) || f.searched != searched {
		t.Errorf("error %v, and all processes were searched: %t", err, f.searched != searched)
	}

	f.do(os.Remove(filepath.Join(f.names, "first")))
	first.Delete()
	var third *ownnetns.Pod
	var thirdID int
	for round := 0; ; round++ {
		// The kernel reuses the lowest id once it has removed the netns.
		if third, thirdID, peer = f.pod("third"); thirdID == id {
			break
		}
		f.do(os.Remove(filepath.Join(f.names, "third")))
		third.Delete()
		if round == 1000 {
			t.Fatal("the kernel did not reuse the id")
		}
		time.Sleep(time.Millisecond)
	}
	find(id, peer, "third", false)

	// The name leads to another netns now.
	ref := f.refs[id]
	ref.Inode++
	f.refs[id] = ref
	find(id, peer, "third", false)
}

// Scan finds a netns that nothing but a descriptor of a process leads to, and keeps it when it searches for others.
func TestFindByDescriptor(t *testing.T) {
	tell, err := os.ReadFile("/proc/self/fdinfo/0")
	if err != nil {
		t.Fatal(err)
	}
	ways := []bool{false, true}
	if !strings.Contains(string(tell), "\nino:") {
		ways = ways[:1] // before Linux 5.14 nothing tells what a descriptor whose mount is gone leads to
	}
	for _, byName := range ways {
		f := newFinding(t)
		pod, id, peer := f.pod("")
		held := pod.Open(t)
		if byName { // the mount is gone, but the descriptor has it
			name := fmt.Sprint("netns-test-", os.Getpid())
			f.do(exec.Command("ip", "netns", "attach", name, fmt.Sprint(pod.Pid)).Run())
			held, err = os.Open("/run/netns/" + name)
			f.do(errors.Join(err, exec.Command("ip", "netns", "del", name).Run()))
			t.Cleanup(func() { held.Close() })
		}
		holder := exec.Command("cat")
		holder.ExtraFiles = []*os.File{held}
		_, err = holder.StdinPipe()
		f.do(errors.Join(err, holder.Start()))
		t.Cleanup(func() { _, _ = holder.Process.Kill(), holder.Wait() })
		pod.Delete()
		for range 2 {
			ref, view, err := f.Scan(id, peer, 0)
			// Other tests that run now may have opened it for a moment, too.
			if err != nil || !strings.Contains(ref.Path, "/fd/") || ref.Name != "" || ref.Pid != 0 || view.Peer != "eth0" {
				t.Fatalf("opened by its name: %t: found %+v, with %+v and the error %v, want a descriptor", byName, ref, view, err)
			}
			f.searched = time.Time{}
			f.do(f.Search())
			f.heldNext = time.Now().Add(time.Hour)
		}
		// A later netns may have the same id, inode and descriptor, and a name: that comes first.
		name := fmt.Sprint("later-", byName)
		path := filepath.Join(f.names, name)
		f.do(os.WriteFile(path, nil, 0o600))
		t.Cleanup(func() { _ = os.Remove(path) })
		f.do(unix.Mount(fmt.Sprintf("/proc/%d/fd/3", holder.Process.Pid), path, "", unix.MS_BIND, ""))
		t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
		if ref, _, err := f.Scan(id, peer, time.Hour); err != nil || ref.Name != name {
			t.Errorf("found %+v and the error %v, want its name %s", ref, err, name)
		}
		f.do(unix.Unmount(path, unix.MNT_DETACH))
	}
}

// TestHolderForAMoment: a process that had a descriptor of a netns for a moment does not hide one that keeps it.
func TestHolderForAMoment(t *testing.T) {
	f := newFinding(t)
	pod, id, _ := f.pod("")
	held := pod.Open(t)
	start := func() *exec.Cmd {
		t.Helper()
		holder := exec.Command("cat")
		holder.ExtraFiles = []*os.File{held}
		_, err := holder.StdinPipe()
		f.do(errors.Join(err, holder.Start()))
		t.Cleanup(func() { _, _ = holder.Process.Kill(), holder.Wait() })
		return holder
	}
	first := start()
	start()
	ino, err := Inode(fmt.Sprintf("/proc/%d/ns/net", pod.Pid))
	f.do(err)
	pod.Delete()
	for _, ref := range findDescriptors(map[uint64]bool{f.own: true}) {
		if ref.Inode == ino {
			f.held = append(f.held, ref)
		}
	}
	_, _ = first.Process.Kill(), first.Wait()
	f.refs = make(map[int]Ref)
	f.addHeld()
	if _, found := f.refs[id]; !found {
		t.Errorf("of %+v %d has gone, and nothing is found", f.held, first.Process.Pid)
	}
}

// Scan finds a netns without a name by its processes. It does not find a netns without both, nor a descriptor of it.
func TestFindWithoutAName(t *testing.T) {
	f := newFinding(t)
	if _, known := f.Ref(1 << 20); known {
		t.Error("a reference is known before the first search")
	}
	if _, _, err := f.Scan(1<<20, 1, 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("error %v, want %v", err, ErrNotFound)
	}
	pod, id, peer := f.pod("")
	f.searched = time.Now().Add(time.Hour) // however slow the machine is
	if _, _, err := f.Scan(id, peer, 0); !errors.Is(err, ErrTooSoon) {
		t.Errorf("error %v, want %v", err, ErrTooSoon)
	}
	f.searched = time.Time{}
	for try := 0; ; try++ {
		ref, _, err := f.Scan(id, peer, 0)
		if err == nil && ref.Pid == pod.Pid && ref.Name == "" {
			break
		}
		// A thread of the test that was in the pod may also be found.
		if f.searched = (time.Time{}); try == 100 {
			t.Fatalf("found %+v with the error %v, want process %d", ref, err, pod.Pid)
		}
		f.refs = nil
	}
}

// If a netns has two names, the Finder always uses the same.
func TestTwoNames(t *testing.T) {
	f := newFinding(t)
	pod, id, _ := f.pod("b")
	f.do(os.Symlink(fmt.Sprintf("/proc/%d/ns/net", pod.Pid), filepath.Join(f.names, "a")))
	f.do(f.Search())
	if ref, ok := f.Ref(id); !ok || ref.Name != "a" || ref.Pid == 0 {
		t.Errorf("found %+v, want the name a, and a process", ref)
	}
}
