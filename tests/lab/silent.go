package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// settleTimeout is for things the kernel does by itself within milliseconds, or seconds if others keep its queues busy.
var settleTimeout = Patience(20 * time.Second)

// dropReports runs change. For a silent pod it adds a queueing discipline that drops what the device
// sends, until it has dropped the multicast listener report that Linux sends whenever an interface
// with an IPv6 address joins its groups.
func (p *Pod) dropReports(o PodOptions, change func() error) error {
	if !o.Silent || IsL3() || !slices.ContainsFunc(o.Addrs, netip.Addr.Is6) { // a device without ARP sends none
		return change()
	}
	return p.change(o.Interface, "silence", func(link netlink.Link) error {
		hole := &netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			QdiscType:  "blackhole",
		}
		if err := p.nl.QdiscAdd(hole); err != nil {
			return err
		}
		dropped := func() error {
			list, err := Dump(func() ([]netlink.Qdisc, error) { return p.nl.QdiscList(link) })
			for _, q := range list {
				if s := q.Attrs().Statistics; q.Type() == "blackhole" && s != nil && s.Queue != nil && s.Queue.Drops > 0 {
					return nil
				}
			}
			return errors.Join(errors.New("nothing was dropped"), err)
		}
		if err := change(); err != nil {
			return err
		}
		return errors.Join(Poll(context.Background(), settleTimeout, dropped), p.nl.QdiscDel(hole))
	})
}

// settled waits until a device carries packets. A bridge forwards through a port only
// after the kernel has noticed its carrier, which it does asynchronously.
func (n *Netns) settled(device string) error {
	return Poll(context.Background(), settleTimeout, func() error {
		link, err := n.link(device)
		if err == nil && link.Attrs().OperState != netlink.OperUp {
			err = fmt.Errorf("%s in netns %s is not up", device, n.Name)
		}
		return err
	})
}

// listens waits until a device takes questions about its IPv6 addresses. The kernel joins their groups in a queue that all netns share
// (addrconf_dad_work, net/ipv6/addrconf.c), so what happens in others can make that take seconds.
func (n *Netns) listens(device string, addrs []netip.Addr) error {
	link, err := n.link(device)
	if err != nil || link.Attrs().RawFlags&(unix.IFF_UP|unix.IFF_NOARP) != unix.IFF_UP { // it is down, or nobody asks there
		return err
	}
	return Poll(context.Background(), settleTimeout, func() error {
		var groups []byte // net/igmp6 of proc(5)
		err := n.Exec(func() (err error) {
			groups, err = os.ReadFile("/proc/thread-self/net/igmp6")
			return err
		})
		for _, a := range addrs {
			// The solicited-node address (RFC 4291, 2.7.1).
			if b := a.As16(); err == nil && a.Is6() && !bytes.Contains(groups, fmt.Appendf(nil, "%-4d %-15s ff0200000000000000000001ff%x ", link.Attrs().Index, device, b[13:])) {
				err = fmt.Errorf("%s in netns %s has not joined the group of %v", device, n.Name, a)
			}
		}
		return err
	})
}
