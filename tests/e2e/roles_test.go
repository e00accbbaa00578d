package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// An agent without any state meets a pod that has renamed its eth0 and moved it into a nested netns: a CNI result names
// its host end, so that its duplicate is found, with the name of the pod. Without a result the first name counts.
func TestPrimaryByResult(t *testing.T) {
	for _, plugin := range []map[string]any{{"type": "ptp"}, {"type": "bridge", "bridge": "cni7", "isGateway": true}} {
		t.Run(plugin["type"].(string), func(t *testing.T) {
			t.Parallel()
			l := lab.NewT(t)
			k := newKube(l, plugin)
			l.Do(k.Start(t.Context()))
			p := k.run("pod", 1)[0]
			nested := l.Pod(k.Node, "nested", lab.PodOptions{Style: lab.Raw, Interface: "spare"})
			l.Do(moveDevice(p, "eth0", nested, "net7"))
			for source, socket := range map[string]string{
				"containerd": k.Socket, "libcni's cache": filepath.Join(t.TempDir(), "none.sock"), "nothing": "none",
			} {
				t.Run(source, func(t *testing.T) {
					l := &lab.T{Lab: l.Lab, TB: t}
					a := l.Agent(k.Node, "--cri-socket", socket, "--state-dir", t.TempDir())
					defer func() { l.Do(a.Stop()) }()
					if source == "nothing" {
						l.Eventually("its role", func() error { return hasRole(l, a, "net7", false, "name") })
						return
					}
					l.Eventually("its role", func() error { return hasRole(l, a, "net7", true, "cni-result") })
					intruder := l.Pod(k.Node, "intruder-"+source[:3], lab.PodOptions{Style: lab.Routed, Addrs: p.IPs})
					for _, ip := range p.IPs {
						confirmedBetween(l, a, ip, ref(p), lab.PodRef{})
					}
					l.Do(intruder.Delete())
				})
			}
		})
	}
}

// moveDevice moves a device of a pod into a lab's netns under another name, with the pod's addresses.
func moveDevice(p *cri.Pod, device string, to *lab.Pod, name string) error {
	from, err := netns.GetFromPath(p.Netns)
	if err != nil {
		return err
	}
	defer from.Close()
	handle, err := netlink.NewHandleAt(from)
	if err != nil {
		return err
	}
	defer handle.Close()
	link, err := handle.LinkByName(device)
	if err != nil {
		return err
	}
	target, err := netns.GetFromPath(to.Path())
	if err != nil {
		return err
	}
	defer target.Close()
	if err := handle.LinkSetNsFd(link, int(target)); err != nil {
		return err
	}
	if link, err = to.Netlink().LinkByName(device); err != nil {
		return err
	}
	errs := []error{to.Netlink().LinkSetName(link, name), to.Sysctl("ipv6/conf/"+name+"/accept_dad", "0")}
	for _, ip := range p.IPs {
		errs = append(errs, to.AddAddrOn(name, netip.PrefixFrom(ip, ip.BitLen())))
	}
	return errors.Join(append(errs, to.Netlink().LinkSetUp(link))...)
}

// hasRole returns an error unless the interface with this end in a pod has a role, known from a source.
func hasRole(l *lab.T, a *lab.Agent, peer string, primary bool, from string) error {
	list, err := a.Client.Interfaces(l.Context())
	for _, i := range list {
		if i.Peer != peer {
			continue
		}
		if i.Primary != primary || i.RoleFrom != from {
			return fmt.Errorf("%+v, want primary %t from %s", i, primary, from)
		}
		return nil
	}
	return errors.Join(err, fmt.Errorf("no interface leads to a device %s: %+v", peer, list))
}
