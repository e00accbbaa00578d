package othertools

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/tests/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// patience is how long an alarm that has to come may take on a busy machine.
var patience = lab.Patience(15 * time.Second)

// waitAlarm waits until a tool has alarmed about an address.
func waitAlarm(t *lab.T, p Tool, ip netip.Addr) {
	t.Helper()
	if !eventually(t, func() bool { return hasAlarm(p, ip) }) {
		t.Logf("%s: no alarm about %v; its alarms: %q", p.Name(), ip, alarmTexts(p))
	}
}

// eventually polls until ok, and fails the test when that takes too long.
func eventually(t *lab.T, ok func() bool) bool {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("it did not happen within %v", patience)
			return false
		}
	}
	return true
}

// alarmTexts are the different alarms of a tool.
func alarmTexts(p Tool) []string {
	var all []string
	for _, a := range p.Alarms() {
		all = append(all, fmt.Sprint(a.IP, ": ", a.Text))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func hasAlarm(p Tool, ip netip.Addr) bool {
	return slices.ContainsFunc(p.Alarms(), func(a Alarm) bool { return a.IP == ip })
}

func watch(t *lab.T, p Tool, nodes ...*lab.Node) {
	t.Helper()
	ctx, cancel := lab.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, n := range nodes {
		t.Do(p.Watch(ctx, n))
	}
}

// The listening tools find two pods with one address on a bridge, also on a later one if they watch
// those. They raise no alarm about the pods' neighbours, and do not see the pods' answers to an
// agent.
func TestListeners(t *testing.T) {
	for _, make := range []func() Tool{
		func() Tool { return &Arpwatch{} },
		func() Tool { return &Tshark{} },
		func() Tool { return NewEVPN(new(config.Config)) },
	} {
		p := make()
		t.Run(p.Name(), func(t *testing.T) {
			t.Parallel()
			l := lab.NewT(t)
			n := l.Node("")
			watch(l, p, n)
			l.Do(n.AddBridge("late0", netip.MustParsePrefix("10.10.0.1/24")))
			for bridge, ips := range map[string][]netip.Addr{
				lab.Bridge: {n.IPv4(5), n.IPv4(6), n.IPv4(7)},
				"late0":    lab.IPs("10.10.0.5", "10.10.0.6", "10.10.0.7"),
			} {
				shared, single, silent := ips[0], ips[1], ips[2]
				neighbour := l.Pod(n, bridge+"-single", lab.PodOptions{Bridge: bridge, Addrs: ips[1:2]})
				var mute []*lab.Pod
				for _, name := range []string{"-silent", "-silent-2"} {
					mute = append(mute, l.Pod(n, bridge+name, lab.PodOptions{Bridge: bridge, Addrs: ips[2:], Silent: true}))
				}
				solicitAsAgent(l, mute, silent)
				a := l.Pod(n, bridge+"-a", lab.PodOptions{Bridge: bridge, Addrs: ips[:1]})
				b := l.Pod(n, bridge+"-b", lab.PodOptions{Bridge: bridge, Addrs: ips[:1]})
				announce := func() { l.Do(neighbour.Announce(single), a.Announce(shared), b.Announce(shared)) }
				for range evpnMoves {
					announce()
				}
				// Who is started for a bridge that comes later may not have listened yet.
				if !eventually(l, func() bool { announce(); return hasAlarm(p, shared) }) {
					t.Logf("%s: no alarm about %v; its alarms: %q", p.Name(), shared, alarmTexts(p))
				}
				for _, ip := range []netip.Addr{single, silent} {
					if hasAlarm(p, ip) {
						t.Errorf("alarm about %v: %v", ip, alarmTexts(p))
					}
				}
			}
		})
	}
}

// solicitAsAgent solicits an address from pods of a node in turns, as an agent there does, and waits
// for each answer.
func solicitAsAgent(t *lab.T, pods []*lab.Pod, ip netip.Addr) {
	t.Helper()
	n := pods[0].Node
	var sender *probe.Socket
	t.Do(n.Exec(func() (err error) {
		sender, err = probe.OpenSocket()
		return err
	}))
	defer sender.Close()
	for range evpnMoves {
		for _, p := range pods {
			answer, err := n.Tap(p.HostInterface, func(packet lab.Packet) bool {
				sender, ok := readNeighbour(packet)
				return ok && sender.ip == ip
			})
			t.Do(err)
			index, err := n.Ifindex(p.HostInterface)
			t.Do(err, sender.Send(probe.Target{Ifindex: index, IP: ip, Source: [6]byte(append(proberMAC(n), 1, 2, 3))}))
			eventually(t, func() bool { return answer.Count() > 0 })
			t.Do(answer.Close())
		}
	}
}
