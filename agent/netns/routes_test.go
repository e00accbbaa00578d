package netns_test

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/netns"
)

// routedPod is a pod with eth0, lo and the bridge docker0, all up.
func routedPod(t *testing.T, hostEnd string) (file *os.File, peer int) {
	t.Helper()
	pod := ownnetns.NewPod(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = hostEnd
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(pod.Pid)}))
	host, err := netlink.LinkByName(hostEnd)
	must(t, err)
	file = pod.Open(t)
	must(t, netns.Do(file, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "docker0"
		err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
		for device, ip := range map[string]string{"lo": "", "eth0": "10.1.0.4/24", "docker0": "10.1.0.7/24"} {
			link, failed := netlink.LinkByName(device)
			if err = errors.Join(err, failed); err != nil {
				return err
			}
			err = netlink.LinkSetUp(link)
			if ip != "" {
				address, failed := netlink.ParseAddr(ip)
				err = errors.Join(err, failed, netlink.AddrAdd(link, address))
			}
		}
		return err
	}))
	return file, host.Attrs().ParentIndex
}

// addRoute adds a route to a device in the calling thread's netns.
func addRoute(device, to string, kind, table int) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	_, prefix, err := net.ParseCIDR(to)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: prefix, Type: kind, Table: table, Scope: netlink.SCOPE_HOST})
}

// Linux answers for the addresses of a local route although no list has them.
func TestLocalRoutes(t *testing.T) {
	file, peer := routedPod(t, "pod6")
	must(t, netns.Do(file, func() error {
		return errors.Join(
			addRoute("lo", "10.9.0.0/24", unix.RTN_LOCAL, unix.RT_TABLE_LOCAL),
			addRoute("eth0", "10.9.1.1/32", unix.RTN_LOCAL, unix.RT_TABLE_LOCAL),
			addRoute("docker0", "10.9.2.1/32", unix.RTN_LOCAL, unix.RT_TABLE_LOCAL),
			addRoute("lo", "169.254.20.10/32", unix.RTN_LOCAL, unix.RT_TABLE_LOCAL),
			addRoute("lo", "10.9.3.0/24", unix.RTN_LOCAL, 100), // as transparent proxies, by a rule for marked packets
			addRoute("lo", "10.9.4.0/24", unix.RTN_UNICAST, unix.RT_TABLE_LOCAL),
		)
	}))
	view, err := netns.Scan(file, peer)
	must(t, err)
	var routes []netip.Prefix
	for _, r := range view.LocalRoutes {
		routes = append(routes, r.Prefix)
	}
	if got := fmt.Sprint(routes); got != "[10.9.0.0/24 10.9.1.1/32 10.9.2.1/32]" || view.Truncated || view.More {
		t.Errorf("local routes %s, truncated %t, more %t", got, view.Truncated, view.More)
	}
	for _, test := range []struct {
		ip               string
		vlan             uint16
		holds, elsewhere bool
	}{
		{"10.9.0.0", 0, true, false},
		{"10.9.0.255", 7, true, false}, // on lo: for any device
		{"10.9.1.1", 0, true, false},
		{"10.9.1.1", 7, false, true},
		{"10.9.1.2", 0, false, false},
		{"10.9.2.1", 0, false, true},
		{"10.9.3.1", 0, false, false},
		{"10.9.4.1", 0, false, false},
		{"10.1.0.4", 0, true, false},
		{"10.1.0.7", 0, false, true},
	} {
		ip := netip.MustParseAddr(test.ip)
		if holds, elsewhere := view.Holds(ip, test.vlan, 0), view.Elsewhere(ip, test.vlan, 0); holds != test.holds || elsewhere != test.elsewhere {
			t.Errorf("%s with tag %d: holds %t, elsewhere %t", test.ip, test.vlan, holds, elsewhere)
		}
		if listed := view.HoldsAddress(ip, test.vlan, 0); listed != (test.ip == "10.1.0.4") {
			t.Errorf("%s with tag %d: listed %t", test.ip, test.vlan, listed)
		}
	}
}

// nexthopMessage is a struct nhmsg (linux/nexthop.h).
type nexthopMessage [8]byte

func (nexthopMessage) Len() int            { return 8 }
func (m nexthopMessage) Serialize() []byte { return m[:] }

// A route may have a nexthop object instead of a device, which the kernel then leaves out of the list.
func TestLocalRouteByNexthop(t *testing.T) {
	file, peer := routedPod(t, "pod7")
	err := netns.Do(file, func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/nexthop_compat_mode", []byte("0"), 0); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		const nhaID, nhaOIF, rtaNHID, id = 1, 5, 30, 7 // linux/nexthop.h, linux/rtnetlink.h
		hop := nl.NewNetlinkRequest(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE|unix.NLM_F_ACK)
		hop.AddData(nexthopMessage{unix.AF_INET, 0, unix.RTPROT_STATIC})
		hop.AddData(nl.NewRtAttr(nhaID, nl.Uint32Attr(id)))
		hop.AddData(nl.NewRtAttr(nhaOIF, nl.Uint32Attr(uint32(lo.Attrs().Index))))
		_, err = hop.Execute(unix.NETLINK_ROUTE, 0)
		route := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_ACK)
		route.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{
			Family: unix.AF_INET, Dst_len: 32, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Protocol: unix.RTPROT_STATIC,
		}})
		route.AddData(nl.NewRtAttr(unix.RTA_DST, []byte{10, 9, 0, 9}))
		route.AddData(nl.NewRtAttr(rtaNHID, nl.Uint32Attr(id)))
		if err == nil {
			_, err = route.Execute(unix.NETLINK_ROUTE, 0)
		}
		return err
	})
	must(t, err)
	view, err := netns.Scan(file, peer)
	must(t, err)
	if !view.Holds(netip.MustParseAddr("10.9.0.9"), 0, 0) {
		t.Errorf("local routes %+v", view.LocalRoutes)
	}
}

// Beyond the limits, what is not read may be there, too; many routes to other devices displace none that count.
func TestManyLocalRoutes(t *testing.T) {
	for device, truncated := range map[string]bool{"lo": true, "docker0": false} {
		t.Run(device, func(t *testing.T) {
			file, peer := routedPod(t, cmp.Or(map[string]string{"lo": "pod8"}[device], "pod9"))
			must(t, netns.Do(file, func() (err error) {
				for n := range 1100 {
					err = errors.Join(err, addRoute(device, fmt.Sprintf("10.10.%d.%d/32", n/256, n%256), unix.RTN_LOCAL, unix.RT_TABLE_LOCAL))
				}
				return errors.Join(err, addRoute("lo", "10.11.0.0/32", unix.RTN_LOCAL, unix.RT_TABLE_LOCAL))
			}))
			view, err := netns.Scan(file, peer)
			must(t, err)
			if n := len(view.LocalRoutes); n < 1024 || n > 1026 || !view.More || view.Truncated != truncated || view.Covers(0, 0) == truncated {
				t.Errorf("%d routes, truncated %t, more %t", n, view.Truncated, view.More)
			}
			if ip := netip.MustParseAddr("10.11.0.0"); !truncated && !view.Holds(ip, 0, 0) {
				t.Errorf("%s was displaced", ip)
			}
		})
	}
}
