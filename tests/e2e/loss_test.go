package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/tests/lab"
)

// Pods lose no packet and get none twice, whatever becomes of the agent that observes
// them, and what one agent leaves the next one removes. In XDP mode the kernel may lose a few when
// the program is detached.
func TestNoPacketLost(t *testing.T) {
	for _, tt := range []struct {
		mode   string
		cycles int
		// observed and after are the programs at a pod's interface while an agent runs and
		// after it was stopped; killed is what SIGKILL leaves.
		observed, killed, after programs
	}{
		{"tcx", 20, programs{TCX: 1}, programs{}, programs{}},
		{
			"tc", 20,
			programs{TC: 1, Qdisc: "clsact"},
			programs{TC: 1, Qdisc: "clsact"},
			programs{Qdisc: "clsact"},
		},
		{"xdp", 8, programs{XDP: 1}, programs{}, programs{}},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			t.Parallel()
			l := lab.NewT(t)
			n := l.Node("")
			pods := flowPods(l, n)
			if tt.after.Qdisc != "" {
				// As a previous agent or another tc user leaves it; see TestFirstQdisc.
				l.Do(addClsact(n))
			}
			before := pinned(l)
			flows := startFlows(l, pods)
			// detach ends an agent, and waits until its programs are gone.
			detach := func(end func() error, gone func()) {
				l.Helper()
				for _, f := range flows {
					if tt.observed.XDP > 0 {
						defer f.detachXDP()()
					}
				}
				l.Do(end())
				gone()
			}
			for cycle := range tt.cycles {
				when := fmt.Sprintf("cycle %d", cycle)
				a, err := n.StartAgent("--attach", tt.mode)
				l.Do(err)
				if cycle%4 == 3 {
					// Killed in the midst of attaching: the next one has to cope.
					l.Eventually(when, func() error {
						if !strings.Contains(a.Log(), "msg=starting") {
							return fmt.Errorf("the agent has not begun:\n%s", a.Log())
						}
						return nil
					})
					detach(a.Kill, func() {})
					flows[0].waitSent(l, 20)
					continue
				}
				l.Do(a.WaitReady(within(l, patience)))
				wantPrograms(l, n, when+", observed", tt.observed)
				for _, f := range flows {
					_, err := a.Client.WaitBinding(within(l, patience), f.src, func(b lab.Binding) bool { return b.Evidence != "forwarded" })
					l.Do(err)
				}
				flows[0].waitSent(l, 20)
				if cycle%2 == 0 {
					detach(a.Stop, func() { wantPrograms(l, n, when+", stopped", tt.after) })
				} else {
					detach(a.Kill, func() { wantPrograms(l, n, when+", killed", tt.killed) })
				}
				flows[0].waitSent(l, 20)
				if strings.Contains(a.Log(), "panic") {
					t.Errorf("%s: log of the agent:\n%s", when, a.Log())
				}
			}
			a := l.Agent(n, "--attach", tt.mode)
			wantPrograms(l, n, "at the end, observed", tt.observed)
			detach(a.Stop, func() { wantPrograms(l, n, "at the end, stopped", tt.after) })
			if diff := cmp.Diff(before, pinned(l)); diff != "" {
				t.Errorf("left in the BPF filesystem (-want +got):\n%s", diff)
			}
			var sent uint64
			for _, f := range flows {
				sent += f.check(l)
			}
			t.Logf("%d datagrams through %d agents in %s mode", sent, tt.cycles+1, tt.mode)
		})
	}
}

// In tc mode an interface without a qdisc gets one, once in its life. The kernel then deactivates the
// device's queues for a moment (net/sched/sch_api.c, qdisc_graft), and packets on their way to the
// pod are lost, whichever program adds the qdisc: for a fraction of a millisecond, and longer if the
// kernel has to wait for busy cores. There must be only this one gap, and it must be over when the
// program is attached.
func TestFirstQdisc(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	flows := startFlows(l, flowPods(l, n))
	a := l.Agent(n, "--attach", "tc")
	wantPrograms(l, n, "observed", programs{TC: 1, Qdisc: "clsact"})
	var observed []uint64
	for _, f := range flows {
		observed = append(observed, f.sent.Load()) // this one may be under way
	}
	for _, f := range flows {
		f.waitSent(l, 50)
	}
	l.Do(a.Stop())
	wantPrograms(l, n, "stopped", programs{Qdisc: "clsact"})
	const apart = 50 // datagrams that arrive, one in a millisecond, between one moment and another
	for i, f := range flows {
		_, lost, doubled, err := f.count()
		if len(doubled) > 0 || err != nil {
			t.Errorf("%s: %d came twice; sending: %v", f.name, len(doubled), err)
		}
		if len(lost) == 0 {
			continue
		}
		last := lost[len(lost)-1]
		t.Logf("%s: lost %d between numbers %d and %d: %v", f.name, len(lost), lost[0], last, first(lost, 10))
		for j := range lost[1:] {
			if lost[j+1]-lost[j] > apart {
				t.Errorf("%s: lost datagrams at more than one time: numbers %d and %d", f.name, lost[j], lost[j+1])
			}
		}
		if last > observed[i] {
			t.Errorf("%s: number %d was lost, the program was there at %d", f.name, last, observed[i])
		}
	}
}

// flowPods are two bridged and two routed pods.
func flowPods(l *lab.T, n *lab.Node) []*lab.Pod {
	l.Helper()
	var pods []*lab.Pod
	for i, style := range []lab.Style{lab.Bridged, lab.Bridged, lab.Routed, lab.Routed} {
		o := lab.PodOptions{Style: style, Addrs: []netip.Addr{n.IPv4(byte(10 + i)), n.IPv6(byte(10 + i))}}
		if style == lab.Routed {
			o.Addrs = []netip.Addr{n.RoutedIPv4(byte(10 + i)), n.RoutedIPv6(byte(10 + i))}
		}
		pods = append(pods, l.Pod(n, fmt.Sprintf("pod%d", i), o))
	}
	return pods
}

// startFlows starts flows between the bridged and the routed pair, in both families and directions.
func startFlows(l *lab.T, pods []*lab.Pod) []*flow {
	l.Helper()
	var flows []*flow
	for _, pair := range [][2]*lab.Pod{{pods[0], pods[1]}, {pods[2], pods[3]}} {
		for family := range 2 {
			a, b := pair[0].Addrs()[family], pair[1].Addrs()[family]
			flows = append(flows, startFlow(l, pair[0], pair[1], a, b), startFlow(l, pair[1], pair[0], b, a))
		}
	}
	return flows
}
