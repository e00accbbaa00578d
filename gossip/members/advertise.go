package members

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/dupip/dupip/gossip/transport"
)

// advertised is where others reach this agent: what the user says, or the address that it
// listens at, or the one that the default route uses.
func advertised(text, bind string, port int) (netip.AddrPort, error) {
	if text != "" {
		return resolveAdvertised(text, port)
	}
	addr, _ := netip.ParseAddr(bind) // see [Options.Check]
	if bind == "" || addr.IsUnspecified() {
		var err error
		if addr, err = routed(addr.Is4()); err != nil {
			return netip.AddrPort{}, err
		}
	}
	at := netip.AddrPortFrom(addr.Unmap(), uint16(port))
	if err := transport.CheckAddress(at); err != nil {
		return netip.AddrPort{}, fmt.Errorf("others cannot reach this node: %w; give --advertise", err)
	}
	return at, nil
}

func resolveAdvertised(text string, port int) (netip.AddrPort, error) {
	t, err := parseTarget(text, port)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--advertise %q: %w", text, err)
	}
	all, err := t.resolve(context.Background(), net.DefaultResolver.LookupNetIP)
	if err == nil && len(all) == 0 {
		err = errors.New("it has no address")
	}
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--advertise %q: %w", text, err)
	}
	return all[0], nil
}

// translated are what a node with IPv6 only sends IPv4 from, to have it translated (464XLAT). All such nodes have the same
// (RFC 7335).
var translated = netip.MustParsePrefix("192.0.0.0/29")

// routed is the node's address on the way to everybody else. The kernel chooses it when a
// socket is connected to an address that nobody has (RFC 5737, RFC 3849); nothing is sent.
func routed(only4 bool) (netip.Addr, error) {
	for _, way := range []struct{ network, to string }{{"udp4", "192.0.2.1:9"}, {"udp6", "[2001:db8::1]:9"}} {
		if only4 && way.network != "udp4" {
			continue
		}
		conn, err := net.Dial(way.network, way.to)
		if err != nil {
			continue
		}
		addr := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		conn.Close()
		if !addr.IsLoopback() && !addr.IsLinkLocalUnicast() && !translated.Contains(addr) {
			return addr, nil
		}
	}
	return netip.Addr{}, errors.New("this node has no default route from which to take its address; give --advertise or --bind")
}
