package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// pluginDirs are where Debian puts the CNI plugins and where the upstream archive goes.
var pluginDirs = []string{"/opt/cni/bin", "/usr/lib/cni"}

// addTimeout is more than the ten seconds after which a plugin gives up waiting for
// duplicate address detection.
const addTimeout = 20 * time.Second

// cni runs real plugins on a node, as a container runtime does, and keeps the state of
// host-local in a folder of its own.
type cni struct {
	t       *lab.T
	node    *lab.Node
	plugins string
	dataDir string
}

func newCNI(t *lab.T, n *lab.Node) *cni {
	t.Helper()
	for _, dir := range pluginDirs {
		if _, err := os.Stat(filepath.Join(dir, "ptp")); err == nil {
			data, err := os.MkdirTemp("", t.Prefix()+"host-local-")
			t.Do(err)
			t.Cleanup(func() { _ = os.RemoveAll(data) })
			return &cni{t: t, node: n, plugins: dir, dataDir: data}
		}
	}
	t.Fatal(fmt.Errorf("there are no CNI plugins in %v; tests/install.sh test installs them", pluginDirs))
	return nil
}

// network is a configuration: one plugin with host-local, and perhaps others chained.
type network struct {
	plugin  map[string]any
	chained []map[string]any
	// subnets is a range for each address of a pod. One with host bits, as
	// fd00:99::5/64, gives that address only.
	subnets []string
	// afterFirst runs after ADD of the first plugin if it is not nil.
	afterFirst func(hostInterface string) error
}

func (c *cni) configs(nw network) []map[string]any {
	var ranges, routes []any
	for _, s := range nw.subnets {
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
	for k, v := range nw.plugin {
		first[k] = v
	}
	all = append(all, nw.chained...)
	for _, config := range all {
		config["cniVersion"], config["name"] = "1.0.0", "lab"
	}
	return all
}

// sandbox is a pod's netns that plugins have filled.
type sandbox struct {
	*lab.Netns
	id  string
	ips []netip.Addr
	// hostInterface is the other end of eth0.
	hostInterface string
	// took is how long the plugins worked.
	took time.Duration
}

// add makes a netns and runs ADD of all plugins of the network.
func (c *cni) add(name string, nw network) (*sandbox, error) {
	ns, err := c.node.AddSandbox(name)
	if err != nil {
		return nil, err
	}
	s := &sandbox{Netns: ns, id: ns.Name}
	began := time.Now()
	var result json.RawMessage
	for i, config := range c.configs(nw) {
		if i > 0 {
			config["prevResult"] = result
		}
		if result, err = c.run("ADD", s, config); err != nil {
			return s, err
		}
		if i == 0 {
			if err := s.read(result); err != nil {
				return s, err
			}
			if nw.afterFirst != nil {
				if err := nw.afterFirst(s.hostInterface); err != nil {
					return s, err
				}
			}
		}
	}
	s.took = time.Since(began)
	if len(s.ips) != len(nw.subnets) {
		return s, fmt.Errorf("ADD gave the addresses %v, want one of each of %v", s.ips, nw.subnets)
	}
	return s, nil
}

// read takes the addresses and the host end from the result of a plugin.
func (s *sandbox) read(result []byte) error {
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
		s.ips = append(s.ips, ip.Address.Addr())
	}
	for _, i := range doc.Interfaces {
		// The bridge plugin lists its bridge, too.
		if i.Sandbox == "" && strings.HasPrefix(i.Name, "veth") {
			s.hostInterface = i.Name
		}
	}
	return nil
}

// del runs DEL of all plugins, the last one first, and removes the netns.
func (c *cni) del(s *sandbox, nw network) error {
	var errs []error
	for _, config := range slices.Backward(c.configs(nw)) {
		_, err := c.run("DEL", s, config)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, c.node.DeleteSandbox(s.Netns))...)
}

func (c *cni) run(command string, s *sandbox, config map[string]any) ([]byte, error) {
	input, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	plugin, _ := config["type"].(string)
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(c.plugins, plugin))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	cmd.Env = append(os.Environ(),
		"CNI_COMMAND="+command, "CNI_CONTAINERID="+s.id, "CNI_NETNS="+s.Path(), "CNI_IFNAME=eth0", "CNI_PATH="+c.plugins)
	if err := c.node.Start(cmd); err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", plugin, err)
	}
	timer := time.AfterFunc(addTimeout, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		// A plugin reports its error on standard output.
		return nil, fmt.Errorf("%s of plugin %s: %w: %s%s", command, plugin, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// settled says whether an address of the sandbox is usable: neither tentative nor the
// loser of duplicate address detection.
func (s *sandbox) settled(ip netip.Addr) error {
	link, err := s.Netlink().LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0 in netns %s: %w", s.Name, err)
	}
	list, err := s.Netlink().AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses in netns %s: %w", s.Name, err)
	}
	for _, a := range list {
		if b, _ := netip.AddrFromSlice(a.IP); b.Unmap() != ip {
			continue
		}
		if a.Flags&unix.IFA_F_DADFAILED != 0 {
			return fmt.Errorf("%v in netns %s: duplicate address detection failed", ip, s.Name)
		}
		if a.Flags&unix.IFA_F_TENTATIVE != 0 {
			return fmt.Errorf("%v in netns %s is still tentative", ip, s.Name)
		}
		return nil
	}
	return fmt.Errorf("%v is not in netns %s", ip, s.Name)
}
