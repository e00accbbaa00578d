package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/time/rate"

	"github.com/dupip/dupip/tests/lab"
)

const (
	churnRate  = 20 // pods a second, all workers together
	churnSlots = 6  // workers, each with addresses of its own

	// pendingFor is a little more than a packet waits for its interface to be known.
	pendingFor = 20 * time.Second
)

// churnFor is the duration; DUPIP_TEST_CHURN=1h makes it a long test.
func churnFor(t *testing.T) time.Duration {
	text := cmp.Or(os.Getenv("DUPIP_TEST_CHURN"), "12s")
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("DUPIP_TEST_CHURN: %v", err)
	}
	return d
}

// Pods come and go, their addresses are given out again at once, and what can happen to
// a pod in its short life happens. None of that is a duplicate, and none of it leaves
// anything in the agent.
func TestChurn(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	l.Do(n.AddBridge("cni9", netip.PrefixFrom(n.IPv4(1), 24)))
	a := l.Agent(n)
	w := l.Watch(a)
	// The first pods pay for what an agent keeps: threads, buffers, connections.
	made := churn(l, n, "warm", 2*time.Second, churnSlots)
	wantNothing(l, a)
	before := usageOf(l, a)

	seen := sightings(t.Context(), a)
	lasted := churnFor(t)
	more := churn(l, n, "pod", lasted, 3*churnRate)
	made += more
	// Many live for less time than a look into their netns takes, above all on a busy machine.
	holders := seen()
	if holders < made/10 {
		t.Errorf("the agent knew only %d of %d pods", holders, made)
	}
	wantNothing(l, a)
	l.Eventually("the agent is as before", func() error {
		after := usageOf(l, a)
		if after.Files > before.Files {
			return fmt.Errorf("open files: %v, before %v", after, before)
		}
		// Go keeps idle threads, as many as were ever busy at once; a leak is one for every
		// pod or look, or for those with one of five fates.
		if after.Threads > before.Threads+min(more/10, 24) || after.strayed > 0 {
			return fmt.Errorf("threads: %v, before %v", after, before)
		}
		if after.goroutines > before.goroutines+4 || after.rss > before.rss*3/2 {
			return fmt.Errorf("goroutines or memory: %v, before %v", after, before)
		}
		return nil
	})
	// The kernel removes a netns some time after its last holder has gone, one after the other with those of all tests.
	l.Do(lab.Poll(t.Context(), lab.Patience(5*time.Minute), func() error {
		left, err := deletedNetns(n, a.PID())
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d namespaces of pods that are gone are still there: ip netns list-id has %v", len(left), left)
		}
		return err
	}))
	// At the resync after the last of them the maps are cleared of what is gone.
	l.Do(lab.Poll(t.Context(), lab.Patience(time.Minute), func() error {
		if after := usageOf(l, a); after.entries > before.entries {
			return fmt.Errorf("%d entries in the maps, before %d", after.entries, before.entries)
		}
		return nil
	}))
	// What came from interfaces that were gone at once is kept for a while.
	l.Do(lab.Poll(t.Context(), pendingFor, func() error {
		s, err := statusOf(l, a)
		if pending := s.Pending; err == nil && pending > 0 {
			err = fmt.Errorf("%d records still wait for their interfaces", pending)
		}
		return err
	}))
	if err := w.NeverConfirmed(2 * time.Second); err != nil {
		t.Error(err)
	}
	// It still finds what is real.
	for _, name := range []string{"older", "newcomer"} {
		l.Pod(n, name, lab.PodOptions{Addrs: []netip.Addr{n.IPv4(20), n.IPv6(20)}})
	}
	for _, ip := range []netip.Addr{n.IPv4(20), n.IPv6(20)} {
		_, err := w.WaitConfirmed(ip, patience)
		l.Do(err)
	}
	for _, bad := range []string{"panic", "goroutine ", "level=ERROR"} {
		if i := strings.Index(a.Log(), bad); i >= 0 {
			t.Errorf("the log has %q:\n%s", bad, a.Log()[max(0, i-300):min(len(a.Log()), i+2000)])
		}
	}
	t.Logf("%d pods, %d seen by a look every 10 ms; usage %v, before %v", made, holders, usageOf(l, a), before)
	l.Do(a.Stop())
}

// sightings collects the names of holders until the function it returns is called,
// which returns how many there were.
func sightings(ctx context.Context, a *lab.Agent) func() int {
	ctx, cancel := context.WithCancel(ctx)
	names := make(map[string]bool)
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			bindings, _ := a.Client.Bindings(ctx, netip.Addr{})
			for _, b := range bindings {
				if b.Evidence != "host" {
					names[b.Netns] = true
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	return func() int {
		cancel()
		done.Wait()
		return len(names)
	}
}

// churn makes and removes pods for a while, and until there were least of them: a busy machine makes fewer in that time. It returns
// how many.
func churn(l *lab.T, n *lab.Node, prefix string, d time.Duration, least int64) int {
	l.Helper()
	end := time.Now().Add(d)
	pace := rate.NewLimiter(churnRate, churnSlots)
	var made atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, churnSlots)
	for slot := range churnSlots {
		wg.Go(func() {
			for life := slot; (time.Now().Before(end) || made.Load() < least) && pace.Wait(l.Context()) == nil; life++ {
				if err := runPod(n, fmt.Sprintf("%s%d.%d", prefix, slot, life), byte(20+slot), life); err != nil {
					errs[slot] = fmt.Errorf("life %d: %w", life, err)
					return
				}
				made.Add(1)
			}
		})
	}
	wg.Wait()
	l.Do(errs...)
	return int(made.Load())
}

// runPod runs one pod from its start to its end, which varies, and returns when it is gone. The next
// pod of the slot has the same addresses.
func runPod(n *lab.Node, name string, last byte, life int) error {
	o := lab.PodOptions{Addrs: []netip.Addr{n.IPv4(last), n.IPv6(last)}}
	if life%2 == 1 {
		o.Style, o.Addrs = lab.Routed, []netip.Addr{n.RoutedIPv4(last), n.RoutedIPv6(last)}
	}
	p, err := n.AddPod(name, o)
	if err != nil {
		return err
	}
	for _, ip := range o.Addrs {
		err = errors.Join(err, p.Announce(ip))
	}
	err = errors.Join(err, p.SendUDP(o.Addrs[0], n.IPv4(1), 3))
	if err != nil {
		return err
	}
	switch life / 2 % 5 {
	case 0:
		return p.Delete()
	case 1: // The netns loses its name, and the devices go when the kernel gets to it.
		if err := p.DeleteNetns(); err != nil {
			return err
		}
		return waitDeviceGone(n, p.HostInterface)
	case 2:
		renamed := fmt.Sprintf("ren%08x", life<<8|int(last))
		if err := rename(n, p.HostInterface, renamed); err != nil {
			return err
		}
		return errors.Join(p.SendUDP(o.Addrs[0], n.IPv4(1), 1), p.Delete())
	case 3: // From one bridge to another, or onto one.
		if err := move(n, p.HostInterface, "cni9"); err != nil {
			return err
		}
		return errors.Join(p.Announce(o.Addrs[0]), p.Delete())
	default: // The veth goes first, the netns stays for a moment.
		return errors.Join(p.DeleteLink(), p.Delete())
	}
}

func rename(n *lab.Node, from, to string) error {
	link, err := n.Netlink().LinkByName(from)
	if err != nil {
		return err
	}
	// A kernel before 6.2 renames only what is down.
	return errors.Join(n.Netlink().LinkSetDown(link), n.Netlink().LinkSetName(link, to), n.Netlink().LinkSetUp(link))
}

func move(n *lab.Node, device, bridge string) error {
	link, err := n.Netlink().LinkByName(device)
	if err != nil {
		return err
	}
	master, err := n.Netlink().LinkByName(bridge)
	if err != nil {
		return err
	}
	return errors.Join(n.Netlink().LinkSetNoMaster(link), n.Netlink().LinkSetMaster(link, master))
}

// waitDeviceGone waits until a device has disappeared: until then its pod really lives.
func waitDeviceGone(n *lab.Node, device string) error {
	return lab.Poll(context.Background(), patience, func() error {
		_, err := n.Netlink().LinkByName(device)
		if _, ok := errors.AsType[netlink.LinkNotFoundError](err); ok {
			return nil
		}
		return fmt.Errorf("%s is still there: %w", device, err)
	})
}

// wantNothing waits until the agent knows the node's own addresses only.
func wantNothing(l *lab.T, a *lab.Agent) {
	l.Helper()
	l.Eventually("nothing is left in the agent", func() error {
		s, err := statusOf(l, a)
		if err != nil {
			return err
		}
		if len(s.Interfaces) > 0 {
			return fmt.Errorf("interfaces %+v", s.Interfaces)
		}
		for evidence, count := range s.Bindings {
			if evidence != "host" && count > 0 {
				return fmt.Errorf("bindings %v", s.Bindings)
			}
		}
		if len(s.Conflicts) > 0 {
			return fmt.Errorf("conflicts %v", s.Conflicts)
		}
		return nil
	})
}
