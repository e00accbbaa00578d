package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

// settleTimeout is for things the kernel does by itself within milliseconds.
var settleTimeout = Patience(5 * time.Second)

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
