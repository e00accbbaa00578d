package alerting

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/tests/lab"
)

// The person on call opens the dashboard: every panel has data, an address with holders on two nodes
// is one duplicate, and every legend has its labels.
func TestDashboard(t *testing.T) {
	l := lab.NewT(t)
	nodes := []*lab.Node{l.Node(""), l.Node(""), l.Node("")}
	// Other tests fill libcni's cache meanwhile, and that counts as a runtime.
	l.Do(os.MkdirAll(books.CacheDir, 0o755))
	for _, n := range nodes {
		n.Mounts = []lab.Mount{{File: t.TempDir(), At: books.CacheDir}}
	}
	ip := nodes[0].RoutedIPv4(5)
	l.Pod(nodes[0], "older", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
	sprayer := l.Pod(nodes[1], "sprayer", lab.PodOptions{Addrs: []netip.Addr{nodes[1].IPv4(6)}})
	addMacvlan(l, nodes[2])
	config := filepath.Join(t.TempDir(), "dupip.yaml")
	l.Do(os.WriteFile(config, []byte("shared: [10.0.0.53]\n"), 0o600))
	networks := t.TempDir()
	l.Do(os.Mkdir(filepath.Join(networks, "pods"), 0o755))
	l.Do(os.WriteFile(filepath.Join(networks, "10-pods.conflist"), fmt.Appendf(nil, emptyNetwork, networks), 0o600))
	agents := l.Agents(nodes, "--attach", "tc", "--config", config, "--cri-socket", filepath.Join(t.TempDir(), "absent.sock"), "--cni-conf-dir", networks)
	d := newMonitoring(l, agents, 1)
	b := readBoard(l)
	names := []string{nodes[0].ShortName(), nodes[1].ShortName()}

	// A rate begins with the second scrape.
	d.want(`count(count_over_time(dupip_build_info[1m]) > 2)`, 3)
	tile := func(title, nodes string) string { return b.panel(l, title).Targets[0].on(nodes) }
	d.want(tile("Duplicates", ".*"), 0)
	l.Pod(nodes[1], "newcomer", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
	l.Do(sprayer.Spoof(manyAddrs()...))

	d.want(`count(dupip_conflict_info{state="confirmed"})`, 2) // one at each of its nodes
	for _, w := range []struct {
		panel, nodes string
		want         float64
	}{
		{"Duplicates", ".*", 1},
		{"Duplicates", names[0], 1},
		{"Duplicates", names[1], 1},
		{"Duplicates", nodes[2].ShortName(), 0},
		{"Suspected", ".*", 0},
		{"Nodes affected", ".*", 2},
		{"Nodes affected", nodes[2].ShortName(), 0},
		{"Agents", ".*", 3},
		{"Agents", strings.Join(names, "|"), 2},
		{"Agents down", ".*", 0},
		{"Blind interfaces", ".*", 1},
		{"Blind interfaces", names[0], 0},
		{"Agents overrun", ".*", 0},
		{"Gossip problems", ".*", 0},
		{"Newly confirmed, in the last hour", ".*", 1},
	} {
		d.want(tile(w.panel, w.nodes), w.want)
	}
	d.wantRow(b, ip, names...)
	// The first that is refused makes the series, and a rate begins with the next ones.
	d.eventually("a pod over its limits", func() error {
		samples, err := d.query(`dupip_interface_refused_packets_total > 0`)
		if err == nil && len(samples) == 0 {
			err = errors.New("nothing was refused")
		}
		return err
	})
	l.Do(sprayer.Spoof(manyAddrs()...))
	d.wantAnswers(b)

	l.Do(agents[2].Kill())
	d.want(tile("Agents down", ".*"), 1)
	d.want(tile("Agents", ".*"), 2)
	d.want(tile("Duplicates", ".*"), 1)
}

// emptyNetwork is a network of CNI's of which host-local has reserved nothing in a folder.
const emptyNetwork = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"ptp",
  "ipam":{"type":"host-local","subnet":"10.96.0.0/24","dataDir":%q}}]}`

// addMacvlan gives a netns on the node an interface that no agent can observe in tc mode.
func addMacvlan(l *lab.T, n *lab.Node) {
	l.Helper()
	sandbox, err := n.AddSandbox("odd")
	l.Do(err)
	out, err := exec.Command("ip", "-n", n.Name, "link", "add", "link", lab.UplinkName, "name", "odd0",
		"netns", sandbox.Name, "type", "macvlan", "mode", "bridge").CombinedOutput()
	if err != nil {
		l.Fatal(fmt.Errorf("add a macvlan: %w\n%s", err, out))
	}
}

// manyAddrs are more than an agent tracks behind one interface.
func manyAddrs() (all []netip.Addr) {
	for i := range 3000 {
		all = append(all, netip.AddrFrom4([4]byte{10, 99, byte(i >> 8), byte(i)}))
	}
	return all
}
