package e2e

import (
	"errors"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// The bandwidth plugin adds qdiscs of its own to the host end, and fails where one is
// in its place already. The agent never is in its way, in no mode.
func TestBandwidthPlugin(t *testing.T) {
	const rate = 8_000_000 // bits a second
	toPod := map[string]any{"ingressRate": rate, "ingressBurst": rate}
	both := map[string]any{"ingressRate": rate, "ingressBurst": rate, "egressRate": rate, "egressBurst": rate}
	for _, tt := range []struct {
		name, mode string
		limits     map[string]any
		state      string
		reason     string
	}{
		{"to the pod", "tcx", toPod, "attached", ""},
		{"to the pod", "tc", toPod, "attached", ""},
		{"both ways", "tcx", both, "attached", ""},
		// What limits a pod's sending is a filter of another kind at the first priority, which
		// redirects every packet to an ifb device: no filter can run before it or after it. The agent
		// must report that.
		{"both ways", "tc", both, "failed", "tc priority 1 at ingress is in use by another kind of filter"},
	} {
		t.Run(tt.name+"/"+tt.mode, func(t *testing.T) {
			t.Parallel()
			l := lab.NewT(t)
			c := l.CNI(l.Node(""))
			a := l.Agent(c.Node, "--attach", tt.mode)
			s, err := c.Add("limited", bandwidthNetwork(tt.limits, nil))
			l.Do(err)
			l.Eventually("state", func() error { return wantInterface(l, a, s.HostInterface, tt.state, tt.reason) })
			if tt.state == "attached" {
				_, err = a.Client.WaitBinding(within(l, patience), s.Addrs()[0], func(b lab.Binding) bool { return b.Netns == s.Name })
				l.Do(err)
			}
			l.Do(c.Del(s, bandwidthNetwork(tt.limits, nil)))
		})
	}
}

// The proof that the agent's patience is needed: a qdisc made right after the veth
// spoils ADD.
func TestBandwidthPluginNeedsPatience(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	c := l.CNI(l.Node(""))
	limits := map[string]any{"egressRate": 8_000_000, "egressBurst": 8_000_000}
	_, err := c.Add("early", bandwidthNetwork(limits, func(device string) error {
		index, err := c.Node.Ifindex(device)
		return errors.Join(err, c.Node.Netlink().QdiscAdd(clsact(index)))
	}))
	if err == nil {
		t.Fatal("the plugin did not mind a clsact qdisc")
	}
	t.Log(err)
}

func bandwidthNetwork(limits map[string]any, afterFirst func(string) error) lab.CNINetwork {
	bandwidth := map[string]any{"type": "bandwidth"}
	for k, v := range limits {
		bandwidth[k] = v
	}
	return lab.CNINetwork{
		Plugin:     map[string]any{"type": "ptp"},
		Chained:    []map[string]any{bandwidth},
		Subnets:    []string{"10.99.0.0/24"},
		AfterFirst: afterFirst,
	}
}
