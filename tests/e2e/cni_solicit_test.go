package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/tests/lab"
)

// questionPause is the time between two rounds of questions to every new interface.
const questionPause = 200 * time.Microsecond

// solicitor solicits addresses on every veth that appears on a node, in a loop, from the moment the
// veth appears.
type solicitor struct {
	once    sync.Once
	stop    chan struct{}
	done    sync.WaitGroup
	sent    atomic.Int64
	refused atomic.Int64
}

// startSolicitor starts a solicitor; send sends one solicitation on an interface.
func startSolicitor(t *lab.T, n *lab.Node, ips []netip.Addr, send func(device string, index int, ip netip.Addr) error) *solicitor {
	t.Helper()
	q := &solicitor{stop: make(chan struct{})}
	old := make(map[int]bool)
	links, err := n.Netlink().LinkList()
	t.Do(err)
	for _, l := range links {
		old[l.Attrs().Index] = true
	}
	q.done.Go(func() {
		ticker := time.NewTicker(questionPause)
		defer ticker.Stop()
		for {
			// Lists that a change interrupts are as good as complete ones here.
			links, _ := n.Netlink().LinkList()
			for _, l := range links {
				if l.Type() != "veth" || old[l.Attrs().Index] {
					continue
				}
				for _, ip := range ips {
					if send(l.Attrs().Name, l.Attrs().Index, ip) == nil {
						q.sent.Add(1)
					} else {
						q.refused.Add(1) // the interface is not up yet
					}
				}
			}
			select {
			case <-q.stop:
				return
			case <-ticker.C:
			}
		}
	})
	t.Cleanup(func() { q.end() })
	return q
}

// end stops the solicitor and returns how many solicitations it sent. It may be called more than
// once.
func (q *solicitor) end() int64 {
	q.once.Do(func() { close(q.stop) })
	q.done.Wait()
	return q.sent.Load()
}

// ADD of the real plugins succeeds while its addresses are solicited all the time, by an
// agent and by a loop that knows no mercy, and takes about as long as otherwise.
func TestPluginsUnderSolicitation(t *testing.T) {
	ptp := map[string]any{"type": "ptp"}
	bridge := map[string]any{"type": "bridge", "bridge": "cni1", "isGateway": true, "enabledad": true}
	for _, tt := range []struct {
		name string
		nw   lab.CNINetwork
	}{
		{"ptp IPv6", lab.CNINetwork{Plugin: ptp, Subnets: []string{"fd00:99::5/64"}}},
		{"ptp dual-stack", lab.CNINetwork{Plugin: ptp, Subnets: []string{"10.99.0.5/24", "fd00:99::5/64"}}},
		{"bridge dual-stack", lab.CNINetwork{Plugin: bridge, Subnets: []string{"10.99.0.5/24", "fd00:99::5/64"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := lab.NewT(t)
			quiet, observed := l.CNI(l.Node("")), l.CNI(l.Node(""))
			a := l.Agent(observed.Node)
			var sender *probe.Socket
			l.Do(observed.Node.Exec(func() (err error) {
				sender, err = probe.OpenSocket()
				return err
			}))
			defer sender.Close()
			send := func(_ string, index int, ip netip.Addr) error {
				return sender.Send(probe.Target{Ifindex: index, IP: ip, Source: [6]byte{2, 'e', '2', 'e', 0, byte(rand.Uint32())}})
			}
			var ips []netip.Addr
			for _, s := range tt.nw.Subnets {
				ips = append(ips, netip.MustParsePrefix(s).Addr())
			}
			var without, with []time.Duration
			for i := range 3 {
				s, err := quiet.Add(fmt.Sprintf("quiet%d", i), tt.nw)
				l.Do(err)
				without = append(without, s.Took)
				l.Do(quiet.Del(s, tt.nw))

				q := startSolicitor(l, observed.Node, ips, send)
				s, err = observed.Add(fmt.Sprintf("observed%d", i), tt.nw)
				l.Do(err)
				with = append(with, s.Took)
				for _, ip := range ips {
					// Some plugins do not wait for it.
					l.Eventually("after ADD", func() error { return s.Settled(ip) })
				}
				if sent := q.end(); sent < 100 {
					t.Errorf("only %d solicitations were sent (%d refused)", sent, q.refused.Load())
				}
				for _, ip := range ips {
					_, err := a.Client.WaitBinding(within(l, patience), ip, func(b lab.Binding) bool {
						return b.Netns == s.Name && b.Evidence != "forwarded"
					})
					l.Do(err)
				}
				l.Do(observed.Del(s, tt.nw))
			}
			t.Logf("ADD took %v without us, %v under solicitation (medians)", median(without), median(with))
		})
	}
}

// The proof that the test above can fail: the form of solicitation that duplicate
// address detection uses, from the unspecified address, spoils ADD.
func TestPluginUnderProbes(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	c := l.CNI(l.Node(""))
	nw := lab.CNINetwork{Plugin: map[string]any{"type": "ptp"}, Subnets: []string{"fd00:99::5/64"}}
	ip := netip.MustParseAddr("fd00:99::5")
	frame, err := lab.Solicitation(netip.Addr{}, ip, net.HardwareAddr{2, 0, 0, 0, 0, 1}, 0)
	l.Do(err)
	q := startSolicitor(l, c.Node, []netip.Addr{ip}, func(device string, _ int, _ netip.Addr) error {
		return c.Node.SendFrames(device, frame)
	})
	s, err := c.Add("probed", nw)
	sent := q.end()
	if err == nil {
		err = s.Settled(ip)
	}
	if err == nil {
		t.Errorf("the address settled despite %d probes", sent)
	}
	t.Logf("after %d probes: %v", sent, err)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2].Round(time.Millisecond)
}
