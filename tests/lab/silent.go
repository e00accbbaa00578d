package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

// settleTimeout is for things the kernel does by itself within milliseconds.
var settleTimeout = Patience(5 * time.Second)

// hush runs change with a queueing discipline on the pod's device that drops what it
// sends, until the one multicast listener report is gone that Linux sends whenever an
// interface with an IPv6 address joins its groups.
func (p *Pod) hush(o PodOptions, change func(device string) error) error {
	if !slices.ContainsFunc(o.Addrs, netip.Addr.Is6) {
		return change(o.Interface)
	}
	index, err := p.Ifindex(o.Interface)
	if err != nil {
		return err
	}
	hole := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		QdiscType:  "blackhole",
	}
	if err := p.nl.QdiscAdd(hole); err != nil {
		return fmt.Errorf("silence %s in netns %s: %w", o.Interface, p.Name, err)
	}
	if err := change(o.Interface); err != nil {
		return err
	}
	link, err := p.nl.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("find %s in netns %s: %w", o.Interface, p.Name, err)
	}
	if err := poll(settleTimeout, func() (bool, error) {
		list, err := dump(func() ([]netlink.Qdisc, error) { return p.nl.QdiscList(link) })
		if err != nil {
			return false, err
		}
		for _, q := range list {
			if s := q.Attrs().Statistics; q.Type() == "blackhole" && s != nil && s.Queue != nil && s.Queue.Drops > 0 {
				return true, nil
			}
		}
		return false, nil
	}); err != nil {
		return fmt.Errorf("silence %s in netns %s: %w", o.Interface, p.Name, err)
	}
	if err := p.nl.QdiscDel(hole); err != nil {
		return fmt.Errorf("end silence of %s in netns %s: %w", o.Interface, p.Name, err)
	}
	return nil
}

// settled waits until a device carries packets. A bridge forwards through a port only
// after the kernel has noticed its carrier, which it does asynchronously.
func (n *Netns) settled(device string) error {
	err := poll(settleTimeout, func() (bool, error) {
		link, err := n.nl.LinkByName(device)
		if err != nil {
			return false, err
		}
		return link.Attrs().OperState == netlink.OperUp, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s in netns %s: %w", device, n.Name, err)
	}
	return nil
}

// poll calls ok every few milliseconds until it says yes or fails.
func poll(timeout time.Duration, ok func() (bool, error)) error {
	for deadline := time.Now().Add(timeout); ; time.Sleep(2 * time.Millisecond) {
		if done, err := ok(); done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return ErrTimeout
		}
	}
}
