package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AddAddr gives the pod another address on its first interface and, in routed style,
// the node its route.
func (p *Pod) AddAddr(a netip.Addr) error {
	o := p.opts
	o.Addrs = []netip.Addr{a}
	if o.Style == Routed {
		if err := p.Node.route(p.HostInterface, host(a), netip.Addr{}); err != nil {
			return err
		}
	}
	// The first address of a family needs the routes, which the kernel removed with the last one.
	if err := errors.Join(p.dropReports(o, func() error { return p.assign(o, a) }), p.answers(o), p.routes(o)); err != nil {
		return err
	}
	p.lab.publish(Change{Kind: PodAddrAdded, Node: p.Node, Pod: p, Addr: a})
	return nil
}

// AddAddrOn adds an address with its prefix length to any device of the pod.
func (p *Pod) AddAddrOn(device string, prefix netip.Prefix) error {
	return p.addAddr(device, prefix)
}

// DelAddr takes an address from the pod's first interface.
func (p *Pod) DelAddr(a netip.Addr) error {
	list, err := p.addrs(p.Interface)
	if err != nil {
		return err
	}
	for _, entry := range list {
		if b, _ := netip.AddrFromSlice(entry.IP); b.Unmap() == a {
			return p.change(p.Interface, fmt.Sprintf("remove %v", a), func(link netlink.Link) error { return p.nl.AddrDel(link, &entry) })
		}
	}
	return fmt.Errorf("remove %v from netns %s: it is not there", a, p.Name)
}

// DefaultRoute makes gateways on the link of eth0 the pod's default routes.
func (p *Pod) DefaultRoute(gateways ...netip.Addr) error {
	for _, g := range gateways {
		dst := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if g.Is6() {
			dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if err := p.route(p.Interface, dst, g); err != nil {
			return err
		}
	}
	return nil
}

// RouteVia sends a destination to a device of the pod.
func (p *Pod) RouteVia(device string, dst netip.Prefix) error {
	return p.route(device, dst, netip.Addr{})
}

// WaitDAD waits until duplicate address detection for an address of the pod is over,
// and returns an error if the result is not as expected.
func (p *Pod) WaitDAD(timeout time.Duration, a netip.Addr, wantFailed bool) error {
	var failed bool
	if err := Poll(context.Background(), timeout, func() (err error) {
		failed, err = p.detection(a)
		return err
	}); err != nil {
		return err
	}
	if failed != wantFailed {
		return fmt.Errorf("duplicate address detection of %v in netns %s failed: got %t, want %t", a, p.Name, failed, wantFailed)
	}
	return nil
}

// detection returns the result of duplicate address detection for an address of the pod, or an error
// if it has not ended.
func (p *Pod) detection(a netip.Addr) (failed bool, err error) {
	list, err := p.addrs(p.Interface)
	if err != nil {
		return false, err
	}
	for _, entry := range list {
		if b, _ := netip.AddrFromSlice(entry.IP); b.Unmap() != a {
			continue
		}
		failed := entry.Flags&unix.IFA_F_DADFAILED != 0
		if !failed && entry.Flags&unix.IFA_F_TENTATIVE != 0 {
			return false, fmt.Errorf("%v in netns %s is still tentative", a, p.Name)
		}
		return failed, nil
	}
	return false, fmt.Errorf("%v is not in netns %s", a, p.Name)
}

// SetUp and SetDown change the pod's own end of its first interface.
func (p *Pod) SetUp() error { return p.up(p.Interface) }

// SetDown is the opposite of SetUp.
func (p *Pod) SetDown() error { return p.down(p.Interface) }

// Delete removes the pod as a CNI DEL and the runtime do: the devices, then the netns.
func (p *Pod) Delete() error {
	p.removeDevices()
	return p.DeleteNetns()
}

// DeleteNetns removes only the netns; the kernel removes the devices later.
func (p *Pod) DeleteNetns() error {
	p.lab.forget(p.Netns)
	err := p.close()
	p.lab.publish(Change{Kind: PodDeleted, Node: p.Node, Pod: p})
	return err
}

// DeleteLink removes only the first veth pair; the netns stays.
func (p *Pod) DeleteLink() error {
	return p.Node.change(p.HostInterface, "delete", p.Node.nl.LinkDel)
}
