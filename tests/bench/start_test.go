package bench

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// measureStart measures a start and a stop of an agent on the largest node, whose pods send all the
// while: how long it takes, which records are lost, and how long others wait for RTNL meanwhile.
func measureStart(b *bench) {
	n := b.Node("")
	pods := b.populate(n, slices.Max(b.pods))
	without := b.waitsForRTNL(n, func() { b.pause(b.idle / 20) })
	idle := median(without)
	stop := b.keepSending(pods)
	defer stop()
	var a *lab.Agent
	var observed time.Duration
	starting := b.waitsForRTNL(n, func() {
		began := time.Now()
		var err error
		a, err = n.StartAgent("--log-level", "info")
		b.Do(err)
		b.eventually(func() error {
			status, err := a.Client.Status(b.Context())
			if err != nil {
				return err
			}
			observed = time.Since(began)
			if got := count(status, "interfacesByState", "attached"); got < len(pods) {
				return fmt.Errorf("the agent observes %d of %d interfaces", got, len(pods))
			}
			return nil
		})
	})
	b.Do(a.WaitReady(b.within()))
	b.attached(a, pods...)
	status := b.status(a)
	lost := 0
	for _, reason := range []string{"early", "interface gone", "packets over the limits", "packets while the ring was full"} {
		lost += count(status, "dropped", reason)
	}
	began := time.Now()
	stopping := b.waitsForRTNL(n, func() { b.Do(a.Stop()) })
	stopped := time.Since(began)

	b.title("A START AND A STOP OF AN AGENT WITH %d PODS, each of which sends once a second", len(pods))
	b.row("others wait for RTNL before", "", "%s", waits(without, idle))
	b.row("all observed; records lost", "≤ 1.5 s; 0", "%.1f s; %d", observed.Seconds(), lost)
	b.row("meanwhile others wait for RTNL", "median ≤ 2 ms, p99 ≤ 40 ms", "%s", waits(starting, idle))
	b.row("stopped", "≤ 15 s", "%.1f s", stopped.Seconds())
	b.row("meanwhile others wait for RTNL", "median ≤ 2 ms, p99 ≤ 40 ms", "%s", waits(stopping, idle))
}

// waits describes how much longer operations took than when nobody else needed RTNL.
func waits(took []time.Duration, idle time.Duration) string {
	ms := func(d time.Duration) float64 { return max(0, d-idle).Seconds() * 1e3 }
	return fmt.Sprintf("median %.1f ms, p99 %.1f ms, longest %.1f ms", ms(median(took)), ms(percentile(took, 99)), ms(slices.Max(took)))
}

// count is a number of the status document, which may be absent.
func count(status map[string]any, field, key string) int {
	counts, _ := status[field].(map[string]any)
	n, _ := counts[key].(float64)
	return int(n)
}

// waitsForRTNL measures how long small operations that need RTNL take while f runs. Each has its own
// times at which it begins, so that a long one is not followed by a pause in which nobody measures.
func (b *bench) waitsForRTNL(n *lab.Node, f func()) []time.Duration {
	b.Helper()
	const users, every = 4, 40 * time.Millisecond
	var mu sync.Mutex
	var took []time.Duration
	var group sync.WaitGroup
	done, errs := make(chan struct{}), make([]error, users)
	for user := range users {
		sandbox, err := n.AddSandbox(fmt.Sprintf("rtnl%d-%d", user, time.Now().UnixNano()%1e9))
		b.Do(err)
		defer func() { b.Do(n.DeleteSandbox(sandbox)) }()
		lo, err := sandbox.Netlink().LinkByName("lo")
		b.Do(err)
		group.Go(func() {
			next := time.Now().Add(time.Duration(user) * every / users)
			for i := 0; errs[user] == nil; i++ {
				select {
				case <-done:
					return
				case <-time.After(time.Until(next)):
				}
				began := time.Now()
				errs[user] = sandbox.Netlink().LinkSetAlias(lo, strconv.Itoa(i%2))
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
				next = next.Add(every)
			}
		})
	}
	f()
	close(done)
	group.Wait()
	b.Do(errs...)
	return took
}

// keepSending lets every pod send a datagram a second until stop is called.
func (b *bench) keepSending(pods []*lab.Pod) (stop func()) {
	b.Helper()
	world := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.9"), 9)
	var conns []interface{ Write([]byte) (int, error) }
	for _, p := range pods {
		for _, ip := range p.Addrs() {
			if !ip.Is4() {
				continue
			}
			c, err := p.DialUDP(ip, world)
			b.Do(err)
			b.Cleanup(func() { c.Close() })
			conns = append(conns, c)
		}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second / time.Duration(len(conns)))
		defer tick.Stop()
		for next := 0; ; next = (next + 1) % len(conns) {
			select {
			case <-done:
				return
			case <-tick.C:
				_, _ = conns[next].Write([]byte("dupip bench")) // the world ends at the switch
			}
		}
	}()
	return func() { close(done); <-ended }
}
