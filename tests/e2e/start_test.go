package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// manyPods are silent pods with an IPv4 address each.
func manyPods(l *lab.T, n *lab.Node, count int) []*lab.Pod {
	l.Helper()
	pods := make([]*lab.Pod, count)
	var group errgroup.Group
	group.SetLimit(4)
	for i := range pods {
		group.Go(func() (err error) {
			pods[i], err = n.AddPod(fmt.Sprintf("pod%d", i), lab.PodOptions{Addrs: []netip.Addr{n.IPv4(byte(10 + i))}, Silent: true})
			return err
		})
	}
	l.Do(group.Wait())
	return pods
}

// An agent that starts on a node with many pods observes all of them, and distinguishes an address that comes from those that were there. A
// second signal ends it while it detaches.
func TestManyPods(t *testing.T) {
	if !hasTCX(t) {
		t.Skip("attaching by tc takes too little time")
	}
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	const count = 120
	pods := manyPods(l, n, count)
	late := pods[0]
	l.Do(late.SetDown()) // no packet can come from it, so it is the last
	a, err := n.StartAgent(append(n.ClusterFlags(), "--attach", "tcx")...)
	l.Do(err)
	// It is attached after the first scan of its netns only.
	l.Eventually("its last interface", func() error {
		i, err := interfaceOf(l, a, late.HostInterface)
		if err == nil && i.State != "attached" {
			err = errors.New(i.State)
		}
		return err
	})
	fresh := n.IPv4(200)
	l.Do(late.AddAddrOn(late.Interface, netip.PrefixFrom(fresh, 24)), late.SetUp())
	l.Eventually("ready", func() error {
		got := dupip(t, nil, "status", "--api-socket", a.Socket)
		if !strings.Contains(got.stdout, "observing") {
			return errors.New(got.stdout)
		}
		return nil
	})
	if want := fmt.Sprintf("msg=observing interfaces=%d ", count); !strings.Contains(a.Log(), want) {
		t.Errorf("no %q in the log:\n%s", want, a.Log())
	}
	s, err := statusOf(l, a)
	l.Do(err)
	if s.ByState["attached"] != count || s.ByState["pending"] != 0 {
		t.Errorf("it is ready with %v", s.ByState)
	}
	check := func(p *lab.Pod, ip netip.Addr, atStart bool) {
		t.Helper()
		b, err := a.Client.WaitBinding(within(l, patience), ip, func(b lab.Binding) bool { return b.Interface == p.HostInterface })
		l.Do(err)
		if b.FoundAtStart != atStart {
			t.Errorf("%s found at start: %t", ip, b.FoundAtStart)
		}
	}
	for _, p := range pods {
		check(p, p.Addrs()[0], true)
	}
	check(late, fresh, false)
	l.Do(a.Signal(unix.SIGTERM))
	signalled := time.Now()
	l.Eventually("detaching, and the others are told before it has detached", func() error {
		log, _, _ := strings.Cut(a.Log(), "msg=detached ")
		for _, want := range []string{"msg=detaching", `msg="telling the other nodes that this one leaves"`} {
			if !strings.Contains(log, want) {
				return errors.New(log)
			}
		}
		return nil
	})
	// A second signal counts after a second only. Where the kernel does not wait (rcu_expedited) it would have detached by then.
	l.Do(a.Signal(unix.SIGSTOP))
	l.Eventually("a second", func() error {
		if time.Since(signalled) < 1100*time.Millisecond {
			return errors.New("not yet")
		}
		return nil
	})
	l.Do(a.Signal(unix.SIGCONT))
	l.Eventually("ended by a second signal", func() error {
		if a.Running() {
			l.Do(a.Signal(unix.SIGTERM))
			return errors.New("it runs")
		}
		return nil
	})
	exit, ok := errors.AsType[*exec.ExitError](a.Wait(t.Context()))
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGTERM {
		t.Errorf("it ended with %v, want by the signal", exit)
	}
	wantPrograms(l, n, "after a second signal", programs{})
}

// A host end that moved to another netns is not observed any more, also if its pod sends all the while and
// another pod's host end gets its ifindex.
func TestHostEndMovesAway(t *testing.T) {
	for _, mode := range []string{"tcx", "tc", "xdp"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if mode == "tcx" && !hasTCX(t) {
				t.Skip("this kernel has no tcx")
			}
			l := lab.NewT(t)
			n := l.Node("")
			moved := l.Pod(n, "moved", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(10)}})
			a := l.Agent(n, "--attach", mode)
			observed := func(p *lab.Pod) {
				t.Helper()
				_, err := a.Client.WaitBinding(within(l, patience), p.Addrs()[0], func(b lab.Binding) bool { return b.Interface == p.HostInterface })
				l.Do(err)
			}
			observed(moved)
			mac, err := moved.MAC(moved.Interface)
			l.Do(err)
			ctx, cancel := context.WithCancel(t.Context())
			var flood errgroup.Group
			sentAfter := make(chan int, 1)
			flood.Go(func() error {
				_, err := moved.Flood(ctx, 500, func(i int) []byte {
					select {
					case sentAfter <- i:
					default:
					}
					frame, _ := lab.Announcement(netip.AddrFrom4([4]byte{10, 99, byte(i >> 8), byte(i)}), mac, 0)
					return frame
				})
				return err
			})
			defer func() { cancel(); _ = flood.Wait() }()

			elsewhere, err := n.AddSandbox("elsewhere")
			l.Do(err)
			file, err := os.Open(elsewhere.Path())
			l.Do(err)
			defer file.Close()
			host, err := n.Netlink().LinkByName(moved.HostInterface)
			l.Do(err)
			l.Do(n.Netlink().LinkSetNsFd(host, int(file.Fd())), elsewhere.Netlink().LinkSetUp(host))
			next := l.Pod(n, "next", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(11)}, HostIndex: host.Attrs().Index})
			observed(next)
			for first := <-sentAfter; <-sentAfter < first+200; {
			}
			all, err := a.Client.Bindings(t.Context(), netip.Addr{})
			l.Do(err)
			for _, b := range all {
				if b.Interface == next.HostInterface && b.IP != next.Addrs()[0] && b.IP.Is4() || b.Interface == moved.HostInterface {
					t.Errorf("%s is recorded at %s (%s)", b.IP, b.Interface, b.Netns)
				}
			}
		})
	}
}
