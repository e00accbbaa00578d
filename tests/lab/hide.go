package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// This file has what a pod with NET_ADMIN can do to be taken for another.

// Rename renames the pod's first interface while it is up (Linux 6.2).
func (p *Pod) Rename(name string) error {
	err := p.change(p.Interface, "rename", func(link netlink.Link) error { return p.nl.LinkSetName(link, name) })
	if err == nil {
		p.Interface, p.opts.Interface = name, name
	}
	return err
}

// MoveInterface moves a device of the pod into another pod's netns, gives it another name there, and these addresses: it
// loses its own on the way. If it was the pod's first interface, it is the other pod's first one now.
func (p *Pod) MoveInterface(device string, to *Pod, name string, addrs ...netip.Addr) error {
	errs := []error{
		p.change(device, "move", func(link netlink.Link) error { return p.nl.LinkSetNsFd(link, int(to.fd)) }),
		to.change(device, "rename", func(link netlink.Link) error { return to.nl.LinkSetName(link, name) }),
		to.Sysctl("ipv6/conf/"+name+"/accept_dad", "0"),
	}
	for _, a := range addrs {
		errs = append(errs, to.AddAddrOn(name, host(a)))
	}
	if device == p.Interface {
		to.Interface, to.HostInterface, to.opts = name, p.HostInterface, p.opts
		to.opts.Interface = name
	}
	return errors.Join(append(errs, to.up(name))...)
}

// Nest makes a netns of the pod's own and moves the pod's first interface there, with its addresses and under another
// name.
func (p *Pod) Nest(netnsName, name string) (*Pod, error) {
	list, err := p.addrs(p.Interface)
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, entry := range list {
		if a, _ := netip.AddrFromSlice(entry.IP); a.Unmap().IsGlobalUnicast() {
			addrs = append(addrs, a.Unmap())
		}
	}
	nested, err := p.Node.AddPod(netnsName, PodOptions{Style: Raw, Interface: "spare"})
	if err != nil {
		return nil, err
	}
	return nested, errors.Join(nested.DeleteLink(), p.MoveInterface(p.Interface, nested, name, addrs...))
}

// AddLocalRoute has the pod's kernel take addresses for its own that it does not list.
func (p *Pod) AddLocalRoute(device string, to netip.Prefix, table int) error {
	return p.change(device, fmt.Sprintf("add local route to %v", to), func(link netlink.Link) error {
		return p.nl.RouteAdd(&netlink.Route{
			LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_HOST, Type: unix.RTN_LOCAL, Table: table,
			Dst: &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())},
		})
	})
}

// inner is the device of [Pod.Hide].
const inner = "inner"

// Hide gives the pod an address on a bridge of its own, and announces it on its first interface.
func (p *Pod) Hide(a netip.Addr) error {
	return errors.Join(p.AsNode().AddBridge(inner, host(a)), p.Announce(a))
}

// Unhide is the opposite.
func (p *Pod) Unhide() error { return p.change(inner, "delete", p.nl.LinkDel) }

// NoARP switches ARP off at the pod's first interface.
func (p *Pod) NoARP() error { return p.change(p.Interface, "switch ARP off", p.nl.LinkSetARPOff) }

// DropProbes has the pod's kernel drop ARP requests from 0.0.0.0 and solicitations from link-local addresses, as an agent sends them, and
// nothing that its neighbours send.
func (p *Pod) DropProbes() error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(`
table arp dupip { chain input { type filter hook input priority filter; arp saddr ip 0.0.0.0 drop; }; }
table ip6 dupip { chain input { type filter hook input priority filter; ip6 saddr fe80::/10 icmpv6 type nd-neighbor-solicit drop; }; }
`)
	var output Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := p.Exec(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("drop probes in netns %s: %w\n%s", p.Name, err, output.String())
	}
	return nil
}
