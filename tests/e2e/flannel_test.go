package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// flannelScript hands the node's subnet to host-local, as flannel's plugin does. Here ptp takes the place of bridge.
const flannelScript = `set -a
. %s
jq '{cniVersion, name, type: "ptp", ipam: {type: "host-local", subnet: env.FLANNEL_SUBNET}}' | %s
`

// A node of k3s: CNI's folder is one that only containerd knows, flannel's daemon has written the range, and the store is wiped.
func TestFlannelNode(t *testing.T) {
	t.Parallel()
	plugins, err := lab.PluginDir()
	if err != nil {
		t.Fatal(err)
	}
	name, subnets := fmt.Sprintf("dupip-flannel-%d", os.Getpid()), filepath.Join(t.TempDir(), "subnet.env")
	store := filepath.Join("/var/lib/cni/networks", name)
	if err := os.WriteFile(subnets, []byte("FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.3.0/24\nFLANNEL_MTU=1450\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(store) })
	b := newBookedBy(t, cri.Options{
		Network: name, Plugins: []map[string]any{{"type": "flannel", "subnetFile": subnets, "delegate": map[string]any{"isDefaultGateway": true}}},
		Scripts: map[string]string{"flannel": fmt.Sprintf(flannelScript, subnets, filepath.Join(plugins, "ptp"))},
	}, "--unheld-after", "1s")
	older := b.run("older")
	b.says("status", "network "+name, "1 address reserved of 10.42.3.1-10.42.3.254")
	b.Do(os.RemoveAll(store))
	b.says("audit", "shop/older", older.IPs[0].String())
	if newcomer := b.run("newcomer"); newcomer.IPs[0] != older.IPs[0] {
		t.Fatalf("host-local gave out %v instead of %v", newcomer.IPs[0], older.IPs[0])
	}
	b.says("conflicts", "host-local (network "+name, "shop/newcomer stays: it has the reservation.", "Remove shop/older, which has lost its reservation")
}
