package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// Steps in which no command runs.
const (
	// seen waits until the agent has seen the temporary name.
	seen = ""
	// restart restarts the agent.
	restart = "restart"
)

// Container engines and plugins that give the other end of a pair its name late. $HOST and $TEMPORARY are the first names of the ends.
var lateNames = map[string][]string{
	// libnetwork/drivers/bridge/bridge_linux.go, libnetwork/osl/interface_linux.go of moby 28.5.2
	"Docker 28": {
		"ip link add $HOST type veth peer name $TEMPORARY netns $NETNS", "ip link set $HOST master lan1", "ip link set $HOST up", seen,
		"ip -n $NETNS link set $TEMPORARY down", "ip -n $NETNS link set $TEMPORARY name $NAME", "ip -n $NETNS link set $NAME address 02:42:$MAC",
		"ip -n $NETNS address add $IP/24 dev $NAME", "ip -n $NETNS link set $NAME up",
	},
	"Docker 26, Cilium, LXC": { // no event tells that an end has moved into a netns: only an agent that starts sees it
		"ip link add $HOST type veth peer name $TEMPORARY", "ip link set $HOST master lan1", "ip link set $HOST up",
		"ip link set $TEMPORARY netns $NETNS", restart, seen, "ip -n $NETNS link set $TEMPORARY name $NAME",
		"ip -n $NETNS address add $IP/24 dev $NAME", "ip -n $NETNS link set $NAME up",
	},
	"the address first, the host end last": {
		"ip link add $HOST type veth peer name $TEMPORARY netns $NETNS", "ip link set $HOST master lan1",
		"ip -n $NETNS address add $IP/24 dev $TEMPORARY", seen, "ip -n $NETNS link set $TEMPORARY name $NAME",
		"ip -n $NETNS link set $NAME up", "ip link set $HOST up",
	},
	"the agent restarts meanwhile": {
		"ip link add $HOST type veth peer name $TEMPORARY netns $NETNS", "ip link set $HOST master lan1", "ip link set $HOST up", seen,
		restart, seen, "ip -n $NETNS link set $TEMPORARY name $NAME",
		"ip -n $NETNS address add $IP/24 dev $NAME", "ip -n $NETNS link set $NAME up",
	},
}

// The agent finds two containers with one address, also if the engine renames the container's device late. What the container does
// to its device afterwards changes nothing.
func TestLateNames(t *testing.T) {
	for engine, steps := range lateNames {
		for name, network := range map[string]string{"eth0": "default", "storage": "storage@lan1"} {
			t.Run(engine+" "+name, func(t *testing.T) {
				t.Parallel()
				l := lab.NewT(t)
				n := l.Node("")
				l.Do(n.AddBridge("lan1", netip.MustParsePrefix("10.77.0.1/24")))
				a := l.Agent(n)
				ip := netip.MustParseAddr("10.77.0.5")
				var last *lab.Netns
				for i := range 2 {
					var err error
					last, err = n.AddSandbox(fmt.Sprint("container", i))
					l.Do(err)
					// As Docker has it where the network has no IPv6: then nothing tells of the last step but the link itself.
					l.Do(last.Sysctl("ipv6/conf/all/disable_ipv6", "1", "ipv6/conf/default/disable_ipv6", "1"))
					host, temporary := fmt.Sprintf("veth000000%d", i), fmt.Sprintf("veth111111%d", i)
					expand := func(command string) string {
						return os.Expand(command, func(variable string) string {
							return map[string]string{
								"HOST": host, "TEMPORARY": temporary, "NETNS": last.Name, "NAME": name, "IP": ip.String(), "MAC": fmt.Sprintf("00:00:00:%02d", i),
							}[variable]
						})
					}
					for _, step := range steps {
						switch step {
						case seen:
							l.Do(leadsTo(l, a, host, temporary))
						case restart:
							l.Do(a.Stop())
							a = l.Successor(a)
						default:
							l.Do(runCommand(n, expand(step)))
						}
					}
				}
				l.Eventually("the conflict", func() error { return confirmedIn(l, a, ip, network) })
				l.Do(runCommand(n, fmt.Sprintf("ip -n %[1]s link set %[2]s down && ip -n %[1]s link set %[2]s name eth7 && ip -n %[1]s link set eth7 up",
					last.Name, name)))
				l.Do(leadsTo(l, a, "veth0000001", "eth7"))
				l.Do(confirmedIn(l, a, ip, network))
			})
		}
	}
}

// leadsTo waits until the agent has seen that the other end of an interface has a name.
func leadsTo(l *lab.T, a *lab.Agent, host, peer string) error {
	return a.Client.WaitInterface(within(l, patience), host, func(i lab.Interface) bool { return i.Peer == peer })
}

// confirmedIn returns an error unless there is one conflict of an address, which is confirmed, between two holders in a network.
func confirmedIn(l *lab.T, a *lab.Agent, ip netip.Addr, network string) error {
	open, err := a.Client.Conflicts(l.Context(), false)
	if err != nil {
		return err
	}
	if len(open) != 1 || open[0].IP != ip || open[0].State != "confirmed" || open[0].Network != network || len(open[0].Holders) != 2 {
		list, _ := a.Client.Interfaces(l.Context())
		return fmt.Errorf("%+v, want one of %v in network %s; interfaces: %+v", open, ip, network, list)
	}
	return nil
}
