package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// pluginDirs are where Debian puts the CNI plugins and where the upstream archive goes.
var pluginDirs = []string{"/opt/cni/bin", "/usr/lib/cni"}

// pluginTimeout is more than the ten seconds after which a plugin gives up waiting for
// duplicate address detection.
const pluginTimeout = 20 * time.Second

// CNI runs real plugins on a node, as a container runtime does. Its methods may be called
// from several goroutines.
type CNI struct {
	Node *Node

	plugins string
	// dataDir is the store of host-local.
	dataDir string
}

// CNINetwork is a configuration: one plugin with host-local, and perhaps others chained.
type CNINetwork struct {
	Plugin  map[string]any
	Chained []map[string]any
	// Subnets is a range for each address of a pod. One with host bits, as
	// fd00:99::5/64, gives that address only.
	Subnets []string
	// AfterFirst runs after ADD of the first plugin if it is not nil.
	AfterFirst func(hostInterface string) error
}

// CNIPod is a pod that plugins have made. Started is when its eth0 was last seen down: the pod has sent
// nothing before.
type CNIPod struct {
	*Pod
	// Took is how long the plugins worked.
	Took time.Duration

	usable map[netip.Addr]time.Time
}

// PluginDir is where the CNI plugins are.
func PluginDir() (string, error) {
	for _, dir := range pluginDirs {
		if _, err := os.Stat(filepath.Join(dir, "ptp")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("there are no CNI plugins in %v; tests/install.sh test installs them", pluginDirs)
}

// CNI prepares plugins for a node, with a store of host-local of their own.
func (t *T) CNI(n *Node) *CNI {
	t.Helper()
	plugins, err := PluginDir()
	t.Do(err)
	data, err := os.MkdirTemp("", t.Prefix()+"host-local-")
	t.Do(err)
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	return &CNI{Node: n, plugins: plugins, dataDir: data}
}

// Wipe removes the store of host-local.
func (c *CNI) Wipe() error { return os.RemoveAll(c.dataDir) }

func (c *CNI) configs(nw CNINetwork) []map[string]any {
	var ranges, routes []any
	for _, s := range nw.Subnets {
		p := netip.MustParsePrefix(s)
		r := map[string]any{"subnet": p.Masked().String()}
		if p != p.Masked() {
			r["rangeStart"], r["rangeEnd"] = p.Addr().String(), p.Addr().String()
		}
		ranges = append(ranges, []any{r})
		dst := "0.0.0.0/0"
		if p.Addr().Is6() {
			dst = "::/0"
		}
		routes = append(routes, map[string]any{"dst": dst})
	}
	first := map[string]any{"ipam": map[string]any{
		"type": "host-local", "dataDir": c.dataDir, "ranges": ranges, "routes": routes,
	}}
	all := []map[string]any{first}
	maps.Copy(first, nw.Plugin)
	for _, chained := range nw.Chained {
		all = append(all, maps.Clone(chained))
	}
	for _, config := range all {
		config["cniVersion"], config["name"] = "1.0.0", "lab"
	}
	return all
}

// Add makes a netns and runs ADD of all plugins of the network. The name has to be unique
// in the lab.
func (c *CNI) Add(name string, nw CNINetwork) (*CNIPod, error) {
	ns, err := c.Node.AddSandbox(name)
	if err != nil {
		return nil, err
	}
	p := &CNIPod{Pod: &Pod{Netns: ns, Node: c.Node, Interface: "eth0"}, usable: map[netip.Addr]time.Time{}}
	switch kind, _ := nw.Plugin["type"].(string); kind {
	case "bridge":
		p.opts.Bridge, _ = nw.Plugin["bridge"].(string)
	case "macvlan":
		p.opts.Style = Inside
	default:
		p.opts.Style = Routed
	}
	ctx, cancel := context.WithCancel(context.Background())
	var recorder sync.WaitGroup
	recorder.Go(func() { p.recordUsable(ctx, len(nw.Subnets)) })
	defer recorder.Wait()
	defer cancel()
	began := time.Now()
	var result json.RawMessage
	for i, config := range c.configs(nw) {
		if i > 0 {
			config["prevResult"] = result
		}
		if result, err = c.run("ADD", p, config); err != nil {
			return p, err
		}
		if i == 0 {
			if err := p.read(result); err != nil {
				return p, err
			}
			if nw.AfterFirst != nil {
				if err := nw.AfterFirst(p.HostInterface); err != nil {
					return p, err
				}
			}
		}
	}
	p.Took = time.Since(began)
	if len(p.opts.Addrs) != len(nw.Subnets) {
		return p, fmt.Errorf("ADD gave the addresses %v, want one of each of %v", p.opts.Addrs, nw.Subnets)
	}
	// Some plugins do not wait for duplicate address detection.
	time.AfterFunc(settleTimeout, cancel)
	recorder.Wait()
	c.Node.lab.publish(Change{Kind: PodAdded, Node: c.Node, Pod: p.Pod})
	return p, nil
}

// recordUsable records when the pod's interface came up and when each address became usable, IPv6 ones
// after duplicate address detection. It ends with this many addresses, or with ctx.
func (p *CNIPod) recordUsable(ctx context.Context, addresses int) {
	down := time.Now()
	for ; ctx.Err() == nil && len(p.usable) < addresses; time.Sleep(2 * time.Millisecond) {
		now := time.Now()
		link, err := p.nl.LinkByName(p.Interface)
		if err != nil || link.Attrs().Flags&net.FlagUp == 0 {
			down = now
			continue
		}
		if p.Started.IsZero() {
			p.Started = down
		}
		// A list that a change interrupts is good enough: the next one follows at once.
		list, _ := p.nl.AddrList(link, netlink.FAMILY_ALL)
		for _, entry := range list {
			a, _ := netip.AddrFromSlice(entry.IP)
			a = a.Unmap()
			if _, known := p.usable[a]; !known && entry.Flags&unix.IFA_F_TENTATIVE == 0 && !a.IsLinkLocalUnicast() {
				p.usable[a] = time.Now()
			}
		}
	}
}

// Usable is when the pod could first use an address, within a few milliseconds.
func (p *CNIPod) Usable(ip netip.Addr) time.Time { return p.usable[ip] }

// AddMany adds pods concurrently, as a kubelet does.
func (c *CNI) AddMany(prefix string, count int, nw CNINetwork) ([]*CNIPod, error) {
	var wg sync.WaitGroup
	all, errs := make([]*CNIPod, count), make([]error, count)
	for i := range count {
		wg.Go(func() { all[i], errs[i] = c.Add(fmt.Sprintf("%s%d", prefix, i), nw) })
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

// read takes the addresses and the host end from the result of a plugin.
func (p *CNIPod) read(result []byte) error {
	var doc struct {
		Interfaces []struct{ Name, Sandbox string }
		IPs        []struct {
			Address netip.Prefix
		}
	}
	if err := json.Unmarshal(result, &doc); err != nil {
		return fmt.Errorf("read the result of ADD: %w\n%s", err, result)
	}
	for _, ip := range doc.IPs {
		p.opts.Addrs = append(p.opts.Addrs, ip.Address.Addr())
	}
	for _, i := range doc.Interfaces {
		// The bridge plugin lists its bridge, too.
		if i.Sandbox == "" && strings.HasPrefix(i.Name, "veth") {
			p.HostInterface = i.Name
		}
	}
	return nil
}

// Del runs DEL of all plugins, the last one first, and removes the netns.
func (c *CNI) Del(p *CNIPod, nw CNINetwork) error {
	var errs []error
	for _, config := range slices.Backward(c.configs(nw)) {
		_, err := c.run("DEL", p, config)
		errs = append(errs, err)
	}
	errs = append(errs, c.Node.DeleteSandbox(p.Netns))
	c.Node.lab.publish(Change{Kind: PodDeleted, Node: c.Node, Pod: p.Pod})
	return errors.Join(errs...)
}

// Release runs DEL of host-local alone: the pod still has the addresses, as for a moment in a DEL that
// releases them first.
func (c *CNI) Release(p *CNIPod, nw CNINetwork) error {
	_, err := c.runPlugin("host-local", "DEL", p, c.configs(nw)[0])
	return err
}

func (c *CNI) run(command string, p *CNIPod, config map[string]any) ([]byte, error) {
	plugin, _ := config["type"].(string)
	return c.runPlugin(plugin, command, p, config)
}

func (c *CNI) runPlugin(plugin, command string, p *CNIPod, config map[string]any) ([]byte, error) {
	input, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(c.plugins, plugin))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	cmd.Env = append(os.Environ(),
		"CNI_COMMAND="+command, "CNI_CONTAINERID="+p.Name, "CNI_NETNS="+p.Path(), "CNI_IFNAME=eth0", "CNI_PATH="+c.plugins)
	if err := c.Node.Start(cmd); err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", plugin, err)
	}
	timer := time.AfterFunc(pluginTimeout, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		// A plugin reports its error on standard output.
		return nil, fmt.Errorf("%s of plugin %s: %w: %s%s", command, plugin, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// Settled returns an error unless an address of the pod is usable: neither tentative nor
// the loser of duplicate address detection.
func (p *CNIPod) Settled(ip netip.Addr) error {
	failed, err := p.detection(ip)
	if failed {
		return fmt.Errorf("%v in netns %s: duplicate address detection failed", ip, p.Name)
	}
	return err
}
