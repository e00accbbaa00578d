package members

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dupip/dupip/gossip/transport"
)

// resolveTimeout is how long the name service may take.
const resolveTimeout = 5 * time.Second

// target is an entry of the join list.
type target struct {
	host string         // a name, or empty
	at   netip.AddrPort // the address, or with a name only the port

	// addresses are those that it was resolved to at last; err says why it could not be since then.
	addresses []netip.AddrPort
	err       error
}

// lookup is net.Resolver's LookupNetIP.
type lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// parseTargets reads a join list.
func parseTargets(list []string, port int) (targets []target, err error) {
	for _, text := range list {
		t, err := parseTarget(text, port)
		if err != nil {
			return nil, fmt.Errorf("--join %q: %w", text, err)
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// validName has the characters that Go's resolver sends to a name service.
var validName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$`)

// parseTarget reads an address or a name, with a port or without.
func parseTarget(text string, port int) (target, error) {
	host := strings.Trim(text, "[]")
	if _, err := netip.ParseAddr(host); err != nil {
		host = text
		if name, digits, err := net.SplitHostPort(text); err == nil {
			host = name
			port, _ = strconv.Atoi(digits) // what is no number is 0
		}
	}
	if port < 1 || port > 65535 {
		return target{}, errors.New("its port is not one from 1 to 65535")
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		at := netip.AddrPortFrom(addr.Unmap(), uint16(port))
		return target{at: at}, transport.CheckAddress(at)
	}
	// Digits and dots alone are an address with a mistake in it, which no name service ever resolves.
	if len(host) > 253 || !validName.MatchString(host) || strings.Trim(host, "0123456789.") == "" {
		return target{}, errors.New("it is neither an address nor a name, with :PORT or without")
	}
	return target{host: host, at: netip.AddrPortFrom(netip.Addr{}, uint16(port))}, nil
}

// resolve finds the addresses of a target, within 5 s.
func (t target) resolve(ctx context.Context, lookup lookup) (all []netip.AddrPort, err error) {
	if t.host == "" {
		return []netip.AddrPort{t.at}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := lookup(ctx, "ip", t.host)
	if err != nil {
		return nil, fmt.Errorf("resolving %s: %w", t.host, err)
	}
	for _, addr := range addrs {
		if at := netip.AddrPortFrom(addr.Unmap(), t.at.Port()); transport.CheckAddress(at) == nil {
			all = append(all, at)
		}
	}
	return all, nil
}

// Resolve returns the addresses of a join list, and the entries without an address when ctx ends or because
// [Options.Check] refuses them.
func Resolve(ctx context.Context, join []string, port int) (addresses []netip.AddrPort, unresolved []string) {
	for _, text := range join {
		t, err := parseTarget(text, port)
		var found []netip.AddrPort
		if err == nil {
			found, err = t.resolve(ctx, net.DefaultResolver.LookupNetIP)
		}
		if err != nil {
			unresolved = append(unresolved, text)
		}
		addresses = append(addresses, found...)
	}
	return addresses, unresolved
}

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
