package e2e

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// slowAdd is a plugin at the end of a chain: for two seconds a pod has its address and no name, so that both rounds of a verification are over.
const slowAdd = `
[ "$CNI_COMMAND" = ADD ] || exit 0
sleep 2
sed 's/.*"prevResult"://; s/,"type":"slow".*//'
`

// migrating are two nodes with a containerd each, whose host-local gives out the same addresses.
type migrating struct {
	*lab.T
	nodes   []*booked
	watches []*lab.Watch
}

func newMigrating(t *testing.T) *migrating {
	m := &migrating{T: lab.NewT(t)}
	nodes := []*lab.Node{m.Node(""), m.Node("")}
	var agents []*lab.Agent
	for _, n := range nodes {
		r, err := cri.New(m.Lab, n, cri.Options{
			Plugins: []map[string]any{{"type": "ptp", "ipam": cri.HostLocal("10.97.0.0/24", "fd00:97::/64")}, {"type": "slow"}},
			Scripts: map[string]string{"slow": slowAdd},
		})
		m.Do(err, r.Start(t.Context()))
		a := m.Agent(n, append(n.ClusterFlags(), "--cri-socket", r.Socket, "--cni-conf-dir", r.ConfDir())...)
		m.nodes, agents = append(m.nodes, &booked{m.T, r, a}), append(agents, a)
	}
	m.WaitCluster(agents...)
	for _, a := range agents {
		m.watches = append(m.watches, m.Watch(a))
	}
	return m
}

// launch makes a pod of virtual machine db as virt-controller does.
func (m *migrating) launch(node int, namespace, name string) *cri.Pod {
	m.Helper()
	p, err := m.nodes[node].RunPod(m.Context(), cri.PodOptions{Namespace: namespace, Name: name, UID: lab.UUIDOf(name), Labels: map[string]string{
		"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "2076f683-2d58-4f46-a2d9-4cb682060e36", "vm.kubevirt.io/name": "db",
	}})
	m.Do(err)
	if node == 0 { // it runs for long
		_, err = m.nodes[0].agent.Client.WaitBinding(within(m.T, patience), p.IPs[0], func(h lab.Binding) bool { return h.Pod != nil })
		m.Do(err)
	}
	return p
}

// takeOver gives the target the source's MAC, and has it announce the source's addresses, as CNI and KubeVirt do.
func (m *migrating) takeOver(source, target *cri.Pod) {
	m.Helper()
	if !slices.Equal(source.IPs, target.IPs) {
		m.Fatalf("the source has %v, the target %v", source.IPs, target.IPs)
	}
	var mac []byte
	m.Do(withEth0(source, func(_ *netlink.Handle, eth0 netlink.Link) error {
		mac = eth0.Attrs().HardwareAddr
		return nil
	}), withEth0(target, func(handle *netlink.Handle, eth0 netlink.Link) error { return handle.LinkSetHardwareAddr(eth0, mac) }))
	for _, ip := range target.IPs {
		frame, err := lab.Announcement(ip, mac, 0)
		m.Do(err, sendFrom(target, frame))
	}
}

// quietFor fails if an agent confirms a conflict of one of these addresses within a time.
func (m *migrating) quietFor(d time.Duration, ips []netip.Addr) {
	m.Helper()
	end := time.Now().Add(d)
	for _, w := range m.watches {
		m.Do(w.Never(max(0, time.Until(end)), func(e lab.Event) bool { return e.Type == "confirmed" && slices.Contains(ips, e.Conflict.IP) }))
	}
}

// A live migration is shown on both nodes, and no alarm; the runtime names the target late. It is over when the source has lost its address.
// With the labels of a virtual machine of another namespace nobody hides.
func TestLiveMigration(t *testing.T) {
	t.Parallel()
	m := newMigrating(t)
	source := m.launch(0, "shop", "virt-launcher-db-1")
	target := m.launch(1, "shop", "virt-launcher-db-2")
	m.takeOver(source, target)
	for i, n := range m.nodes {
		for _, ip := range source.IPs {
			_, err := m.watches[i].WaitType("suspected", ip, patience)
			m.Do(err)
		}
		n.says("conflicts", "suspected, not confirmed: a live migration of virtual machine db: shop/virt-launcher-db-2", "takes the address over from shop/virt-launcher-db-1")
	}
	m.quietFor(4*time.Second, source.IPs)
	m.Do(withEth0(source, func(handle *netlink.Handle, eth0 netlink.Link) error {
		addrs, err := handle.AddrList(eth0, netlink.FAMILY_ALL)
		for _, a := range addrs {
			err = errors.Join(err, handle.AddrDel(eth0, &a))
		}
		return err
	}))
	for _, w := range m.watches {
		for _, ip := range source.IPs {
			_, err := w.WaitType("faded", ip, patience)
			m.Do(err)
		}
	}
	m.quietFor(2*time.Second, source.IPs)

	other := m.launch(0, "shop", "virt-launcher-db-3")
	m.launch(1, "bank", "virt-launcher-db-4")
	began := time.Now()
	for _, w := range m.watches {
		_, err := w.WaitConfirmed(other.IPs[0], patience)
		m.Do(err)
	}
	t.Logf("confirmed %v after the pod of another namespace was made", time.Since(began))
	for _, n := range m.nodes {
		n.says("status -o json", `"migration": 2`)
	}
}

// If both keep the address, the alarm comes after a minute.
func TestMigrationThatDoesNotEnd(t *testing.T) {
	testneeds.Release(t)
	t.Parallel()
	m := newMigrating(t)
	source := m.launch(0, "shop", "virt-launcher-db-1")
	began := time.Now()
	m.takeOver(source, m.launch(1, "shop", "virt-launcher-db-2"))
	m.quietFor(55*time.Second-time.Since(began), source.IPs)
	for _, w := range m.watches {
		for _, ip := range source.IPs {
			_, err := w.WaitConfirmed(ip, patience)
			m.Do(err)
		}
	}
	t.Logf("confirmed %v after the target was made", time.Since(began))
}

// sendFrom sends a frame out of a pod's eth0.
func sendFrom(p *cri.Pod, frame []byte) error {
	return withEth0(p, func(_ *netlink.Handle, eth0 netlink.Link) error {
		file, err := os.Open(p.Netns)
		if err != nil {
			return err
		}
		defer file.Close()
		return netns.Do(file, func() error {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: eth0.Attrs().Index, Halen: 6})
		})
	})
}
