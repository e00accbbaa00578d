package route

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Entry is a leg of a route in one of the kernel's tables.
type Entry struct {
	Prefix  netip.Prefix
	Local   bool // the addresses are the node's own
	Index   int  // of the device
	Gateway netip.Addr
}

// Tables calls f for each leg of each route that sends packets somewhere, of all tables. It reports false if the tables have changed
// meanwhile, so that f may not have seen all.
func Tables(f func(Entry)) (whole bool, err error) {
	whole = true
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		err := netlink.RouteListFilteredIter(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
			if r.Dst == nil || r.Type != unix.RTN_UNICAST && r.Type != unix.RTN_LOCAL {
				return true
			}
			e := Entry{Prefix: prefix(r.Dst), Local: r.Type == unix.RTN_LOCAL, Index: r.LinkIndex, Gateway: gateway(r.Gw, r.Via)}
			if len(r.MultiPath) == 0 {
				f(e)
			}
			for _, hop := range r.MultiPath {
				e.Index, e.Gateway = hop.LinkIndex, gateway(hop.Gw, hop.Via)
				f(e)
			}
			return true
		})
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			whole = false
		} else if err != nil {
			return false, fmt.Errorf("listing routes: %w", err)
		}
	}
	return whole, nil
}

// Leg returns where packets go by an entry.
func (e Entry) Leg() (Route, error) { return by(e.Prefix.Addr(), e.Index, e.Gateway) }

// IsVXLAN reports whether a device is one whose forwarding entries say where packets go.
func IsVXLAN(index int) bool {
	link, err := linkByIndex(index)
	return err == nil && link.Type() == "vxlan"
}
