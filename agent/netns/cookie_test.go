package netns

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
)

var namespaces = flag.Int("namespaces", 300, "how many namespaces TestCookies makes")

// identity is what is known of one namespace. The kernel reuses inodes.
type identity struct{ inode, cookie, loopback uint64 }

func ownIdentity() (i identity, err error) {
	var self unix.Stat_t
	if err := unix.Stat(Self, &self); err != nil {
		return i, err
	}
	i.inode = self.Ino
	if i.cookie, err = Cookie(); err != nil {
		return i, err
	}
	i.loopback, err = ownLoopbackID()
	return i, err
}

func ownLoopbackID() (uint64, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return loopbackID(fd, OpenSysfs)
}

// TestCookies makes and removes namespaces, some of them at the same time: none has the identity of another, whose inode it may have, and
// another process, as an agent that is started again, finds the same. On kernels with cookies both ways are tried.
func TestCookies(t *testing.T) {
	testneeds.Root(t)
	const together = 4
	var mu sync.Mutex
	inodes, cookies, loopback := map[uint64]int{}, map[uint64]identity{}, map[uint64]identity{}
	learn := func(i identity) error {
		mu.Lock()
		defer mu.Unlock()
		if old, used := cookies[i.cookie]; used {
			return fmt.Errorf("%+v has the cookie of %+v", i, old)
		}
		if old, used := loopback[i.loopback]; used {
			return fmt.Errorf("%+v is identified like %+v", i, old)
		}
		inodes[i.inode]++
		cookies[i.cookie], loopback[i.loopback] = i, i
		return nil
	}
	one := func(n int) error {
		return DoInNew(func() error {
			i, err := ownIdentity()
			if err != nil {
				return err
			}
			if n%max(*namespaces/20, 1) == 0 {
				if other, err := askProcess(fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())); err != nil || other != i {
					return fmt.Errorf("another process finds %+v, this one %+v: %w", other, i, err)
				}
			}
			if again, err := ownIdentity(); err != nil || again != i {
				return fmt.Errorf("%+v became %+v: %w", i, again, err)
			}
			return learn(i)
		})
	}
	var group errgroup.Group
	group.SetLimit(together)
	for n := range *namespaces {
		group.Go(func() error { return one(n) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	// Namespaces end a little later than they are left.
	deadline := time.Now().Add(time.Minute)
	for len(inodes) == len(cookies) && time.Now().Before(deadline) {
		if err := one(1); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d namespaces, %d inodes", len(cookies), len(inodes))
	if len(inodes) == len(cookies) {
		t.Error("no inode was used again: this shows nothing")
	}
	for _, i := range cookies {
		if i.loopback >= 1<<53 {
			t.Errorf("%+v: readers of JSON that take numbers for floats round it", i)
			break
		}
	}
}

// TestRenamedLoopback: a pod cannot change its identity by renaming its devices.
func TestRenamedLoopback(t *testing.T) {
	testneeds.Root(t)
	if err := DoInNew(func() error {
		before, err := ownIdentity()
		if err != nil {
			return err
		}
		lo, err := netlink.LinkByIndex(loopback)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetName(lo, ".lo"); err != nil {
			return err
		}
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lo"}, PeerName: "eth0"}); err != nil {
			return err
		}
		if after, err := ownIdentity(); err != nil || after != before {
			t.Errorf("%+v became %+v: %v", before, after, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// ofVariable makes the test binary print the identity of a namespace.
const ofVariable = "DUPIP_TEST_IDENTITY_OF"

func askProcess(path string) (i identity, err error) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestPrintIdentity$", "-test.v")
	cmd.Env = append(os.Environ(), ofVariable+"="+path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return i, fmt.Errorf("%w: %s", err, out)
	}
	_, after, _ := strings.Cut(string(out), "identity ")
	_, err = fmt.Sscan(after, &i.inode, &i.cookie, &i.loopback)
	return i, err
}

// TestPrintIdentity is what another process runs for TestCookies.
func TestPrintIdentity(t *testing.T) {
	path := os.Getenv(ofVariable)
	if path == "" {
		return
	}
	file, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var i identity
	if err := Do(file, func() (err error) {
		if i, err = ownIdentity(); err != nil {
			return err
		}
		// As in a container, whose runtime mounts it.
		if err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("sysfs", "/sys", "sysfs", unix.MS_RDONLY, "")); err != nil {
			return err
		}
		mounted, err := ContainerCookie()
		if err != nil || mounted != i.loopback {
			err = fmt.Errorf("what is mounted at /sys says %d, not %d: %w", mounted, i.loopback, err)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("identity", i.inode, i.cookie, i.loopback)
}

// BenchmarkCookie is one of the steps of a scan.
func BenchmarkCookie(b *testing.B) {
	for name, read := range map[string]func() (uint64, error){"option": Cookie, "loopback": ownLoopbackID} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
