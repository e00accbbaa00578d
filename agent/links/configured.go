package links

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
)

// Configured says how an address of the node is configured.
type Configured struct {
	Prefix netip.Prefix // the address with the length of its subnet
	Index  int          // of the device
	Device string
	// Dynamic: the address has a lifetime. Since is when it was configured, zero if the kernel does not say.
	Dynamic bool
	Since   time.Time
	// Proto is who has set it, by IFA_PROTO (Linux 5.18), 0 if nobody said.
	Proto uint8
}

// ifaProto is IFA_PROTO of linux/if_addr.h.
const ifaProto = 11

// ListConfigured lists the addresses of the node that are among these, on all devices.
func ListConfigured(ips map[netip.Addr]bool) (list []Configured, err error) {
	messages, err := netns.List("addresses", func() ([][]byte, error) {
		r := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
		r.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		return r.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
	})
	if err != nil {
		return nil, err
	}
	var clock unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock); err != nil { // without the time in suspension, like the kernel's stamps
		return nil, fmt.Errorf("reading the time since boot: %w", err)
	}
	now, uptime := time.Now(), time.Duration(clock.Nano())
	for _, message := range messages {
		c, ok := parseConfigured(message, now, uptime)
		if !ok || !ips[c.Prefix.Addr()] {
			continue
		}
		if device, err := net.InterfaceByIndex(c.Index); err == nil {
			c.Device = device.Name
			list = append(list, c)
		}
	}
	return list, nil
}

// parseConfigured reads an RTM_NEWADDR (struct ifaddrmsg, linux/if_addr.h).
func parseConfigured(message []byte, now time.Time, uptime time.Duration) (c Configured, ok bool) {
	if len(message) < unix.SizeofIfAddrmsg {
		return c, false
	}
	head := nl.DeserializeIfAddrmsg(message)
	attributes, err := nl.ParseRouteAttr(message[head.Len():])
	if err != nil {
		return c, false
	}
	flags, bits := uint32(head.Flags), int(head.Prefixlen)
	var local, address netip.Addr
	for _, a := range attributes {
		switch a.Attr.Type {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(a.Value)
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(a.Value)
		case unix.IFA_FLAGS:
			if len(a.Value) >= 4 {
				flags = binary.NativeEndian.Uint32(a.Value)
			}
		case ifaProto:
			if len(a.Value) == 1 {
				c.Proto = a.Value[0]
			}
		case unix.IFA_CACHEINFO: // struct ifa_cacheinfo, cstamp is the third field
			if len(a.Value) >= unix.SizeofIfaCacheinfo {
				c.Since = stamped(binary.NativeEndian.Uint32(a.Value[8:]), now, uptime)
			}
		}
	}
	switch {
	case !local.IsValid():
		local = address
	case local != address: // the subnet is that of the other end
		bits = local.BitLen()
	}
	c.Prefix, c.Index, c.Dynamic = netip.PrefixFrom(local, bits), int(head.Index), flags&unix.IFA_F_PERMANENT == 0
	return c, c.Prefix.IsValid()
}

// stamped converts a time of the kernel, in hundredths of a second since boot, of which there are 32 bits: after 497 days it is not known.
func stamped(hundredths uint32, now time.Time, uptime time.Duration) time.Time {
	age := uptime - time.Duration(hundredths)*10*time.Millisecond
	if uptime >= 1<<32*10*time.Millisecond || age < -time.Second {
		return time.Time{}
	}
	return now.Add(-max(age, 0))
}
