package e2e

import (
	"net/netip"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// Two hosts have a Docker network of one name and range, on a bridge that the user named. To dupip its containers are
// pods of the cluster, until the configuration says that the bridge is local. The conflict names the bridge on both nodes.
func TestLocalRange(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	ip := netip.MustParseAddr("172.18.0.2")
	nodes := []*lab.Node{l.Node(""), l.Node("")}
	configs := make([]*configFile, len(nodes))
	var agents []*lab.Agent
	for i, n := range nodes {
		l.Do(n.AddBridge("shop", netip.MustParsePrefix("172.18.0.1/16")))
		l.Pod(n, "container"+n.ShortName(), lab.PodOptions{Bridge: "shop", Addrs: []netip.Addr{ip}})
		configs[i] = newConfig(l, "")
		a, err := n.StartAgent(append(n.ClusterFlags(), "--config", configs[i].path)...)
		l.Do(err)
		agents = append(agents, a)
	}
	l.WaitCluster(agents...)
	for _, a := range agents {
		c := judgedOn(l, a, ip, "--cluster")
		checkOutput(l, a, []string{"explain", ip.String()}, "If the range of bridge shop is meant to be local to each node")
		for _, holder := range c.Holders {
			if holder.Bridge != "shop" {
				t.Errorf("%s: the holder on %s is behind bridge %q, want shop", a.Node.ShortName(), holder.Node, holder.Bridge)
			}
		}
	}
	for _, c := range configs {
		c.replace("networks:\n  - {name: \"shop\", scope: node, match: {bridges: [\"shop\"]}}\n")
	}
	for _, a := range agents {
		ended(l, a, ip)
		b, err := a.Client.Bindings(t.Context(), ip)
		l.Do(err)
		if len(b) != 1 || b[0].Network != "shop" || b[0].Bridge != "shop" {
			t.Errorf("%s has %+v, want the container in network shop", a.Node.ShortName(), b)
		}
	}
}
