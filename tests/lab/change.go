package lab

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// AddAddr gives the pod another address on its first interface and, in routed style,
// the node its route.
func (p *Pod) AddAddr(a netip.Addr) error {
	if p.opts.Style == Routed {
		if err := p.Node.route(p.HostInterface, host(a), netip.Addr{}); err != nil {
			return err
		}
	}
	o := p.opts
	o.Interface = p.Interface
	add := func() error { return p.assign(o, a) }
	if o.Silent && a.Is6() {
		return p.hush(o, func(string) error { return add() })
	}
	return add()
}

// AddAddrOn adds an address with its prefix length to any device of the pod.
func (p *Pod) AddAddrOn(device string, prefix netip.Prefix) error {
	return p.addAddr(device, prefix)
}

// DelAddr takes an address from the pod's first interface.
func (p *Pod) DelAddr(a netip.Addr) error {
	link, err := p.nl.LinkByName(p.Interface)
	if err != nil {
		return fmt.Errorf("find %s in netns %s: %w", p.Interface, p.Name, err)
	}
	list, err := p.nl.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses of %s in netns %s: %w", p.Interface, p.Name, err)
	}
	for _, entry := range list {
		if b, _ := netip.AddrFromSlice(entry.IP); b.Unmap() == a {
			if err := p.nl.AddrDel(link, &entry); err != nil {
				return fmt.Errorf("remove %v from netns %s: %w", a, p.Name, err)
			}
			return nil
		}
	}
	return fmt.Errorf("remove %v from netns %s: it is not there", a, p.Name)
}

// SetUp and SetDown change the pod's own end of its first interface.
func (p *Pod) SetUp() error { return p.up(p.Interface) }

// SetDown is the opposite of SetUp.
func (p *Pod) SetDown() error { return p.down(p.Interface) }

// Delete removes the pod as a CNI DEL and the runtime do: the devices, then the netns.
func (p *Pod) Delete() error {
	p.removeDevices()
	p.lab.forget(p.Netns)
	return p.close()
}

// DeleteNetns removes only the netns: the kernel takes the devices away when it gets to it.
func (p *Pod) DeleteNetns() error {
	p.lab.forget(p.Netns)
	return p.close()
}

// DeleteLink removes only the first veth pair; the netns stays.
func (p *Pod) DeleteLink() error {
	link, err := p.Node.nl.LinkByName(p.HostInterface)
	if err != nil {
		return fmt.Errorf("find %s in netns %s: %w", p.HostInterface, p.Node.Name, err)
	}
	if err := p.Node.nl.LinkDel(link); err != nil {
		return fmt.Errorf("delete %s in netns %s: %w", p.HostInterface, p.Node.Name, err)
	}
	return nil
}
