package netns

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// LocalRoute is a range of addresses that the netns takes for its own although it does not list them, as after
// "ip route add local 10.0.0.0/24 dev lo". Linux answers ARP requests for all of them (arp_process in net/ipv4/arp.c), and
// neighbour solicitations for none.
type LocalRoute struct {
	Prefix netip.Prefix
	// Where, OuterVLAN and InnerVLAN are those of its device, as of an [Address].
	Where                Where
	OuterVLAN, InnerVLAN uint16
}

// maxRoutes is how many local routes are read, also those of addresses: a pod that is a node has one for each Service, and a pod can
// make a million in seconds.
const maxRoutes = 1 << 16

// readRoutes reads the local routes of IPv4 in the table "local" of the calling thread's netns. Those to devices that do not receive
// through the peer have a limit of their own: they must not displace others.
func (v *View) readRoutes(devices *topology) error {
	listed := make(map[netip.Prefix]bool)
	for _, a := range v.Addresses {
		if a.IP.Is4() {
			listed[netip.PrefixFrom(a.IP, a.IP.BitLen())] = true
		}
	}
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening a netlink socket: %w", err)
	}
	defer socket.Close()
	if err := socket.SetReceiveTimeout(&nl.SocketTimeoutTv); err != nil {
		return err
	}
	// Since Linux 5.0 the kernel leaves out all other routes then, which may be many.
	_ = unix.SetsockoptInt(socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	r := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	r.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	r.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}})

	var here, elsewhere []LocalRoute
	read, stopped := 0, false
	err = dump(r, unix.RTM_NEWROUTE, func() { here, elsewhere, read = nil, nil, 0 }, func(message []byte) {
		prefix, index, ok := parseLocalRoute(message)
		at := devices.path(index)
		if index == 0 { // it has a nexthop object; the kernel does not care for the device
			at = path{where: OnLoopback}
		}
		switch r := (LocalRoute{prefix, at.where, at.outer, at.inner}); {
		case !ok || listed[prefix]:
		case r.Where != Elsewhere:
			here = append(here, r)
		case len(elsewhere) == maxAddresses:
			v.More = true
		default:
			elsewhere = append(elsewhere, r)
		}
		if read++; !stopped && (read > maxRoutes || len(here) > maxAddresses) {
			stopped = true
			socket.Close() // the kernel makes the next part of the list only when it is read
		}
	})
	if errors.Is(err, unix.ENOENT) { // the table is made with the first route
		err = nil
	}
	if err != nil && !stopped && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("listing local routes: %w", err)
	}
	v.LocalRoutes = append(here[:min(len(here), maxAddresses)], elsewhere...)
	v.Truncated = v.Truncated || stopped || err != nil
	v.More = v.More || v.Truncated
	return nil
}

// parseLocalRoute reads an RTM_NEWROUTE (struct rtmsg, linux/rtnetlink.h). It returns false if that is not a local route
// in the table "local" to global addresses.
func parseLocalRoute(message []byte) (prefix netip.Prefix, index int, ok bool) {
	if len(message) < unix.SizeofRtMsg {
		return prefix, 0, false
	}
	table, to := int(message[4]), netip.IPv4Unspecified().AsSlice()
	local := message[0] == unix.AF_INET && message[7] == unix.RTN_LOCAL
	for kind, value := range attributes(message[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_DST:
			to = value
		case unix.RTA_OIF:
			index = number(value)
		case unix.RTA_TABLE:
			table = number(value)
		}
	}
	ip, ok := netip.AddrFromSlice(to)
	prefix = netip.PrefixFrom(ip, int(message[1]))
	return prefix, index, ok && prefix.IsValid() && local && table == unix.RT_TABLE_LOCAL && !isLocalScope(ip)
}

// isLocalScope reports whether an address is never that of a pod for others.
func isLocalScope(ip netip.Addr) bool {
	return ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast()
}
