package members

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/dupip/dupip/gossip/transport"
)

const (
	resolveTimeout = 5 * time.Second
	// maxResolved is how many addresses of one name are looked at.
	maxResolved = 1024
)

// target is an entry of the join list.
type target struct {
	host string // a name, or empty
	addr netip.Addr
	port uint16
}

func (t target) String() string {
	if t.host != "" {
		return net.JoinHostPort(t.host, strconv.Itoa(int(t.port)))
	}
	return netip.AddrPortFrom(t.addr, t.port).String()
}

// parseTargets reads a join list.
func parseTargets(list []string, port int) ([]target, error) {
	var targets []target
	var errs []error
	for _, text := range list {
		t, err := parseTarget(text, port)
		if err != nil {
			errs = append(errs, fmt.Errorf("--join %q: %w", text, err))
		}
		targets = append(targets, t)
	}
	return targets, errors.Join(errs...)
}

// parseTarget reads an address or a name, with a port or without.
func parseTarget(text string, port int) (target, error) {
	host := strings.Trim(text, "[]")
	if _, err := netip.ParseAddr(host); err != nil {
		host = text
		if name, digits, err := net.SplitHostPort(text); err == nil {
			host = name
			if port, err = strconv.Atoi(digits); err != nil {
				return target{}, fmt.Errorf("port %q is no number", digits)
			}
		}
	}
	if port < 1 || port > 65535 {
		return target{}, fmt.Errorf("there is no port %d", port)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		at := netip.AddrPortFrom(addr.Unmap(), uint16(port))
		return target{addr: at.Addr(), port: at.Port()}, transport.CheckAddress(at)
	}
	if host == "" || len(host) > 253 || strings.ContainsAny(host, "/:[] \t\r\n%") {
		return target{}, errors.New("it is neither an address nor a name, with :PORT or without")
	}
	return target{host: host, port: uint16(port)}, nil
}

// resolve finds the addresses of a target, within 5 s.
func (t target) resolve(ctx context.Context, lookup lookup) ([]netip.AddrPort, error) {
	if t.host == "" {
		return []netip.AddrPort{netip.AddrPortFrom(t.addr, t.port)}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := lookup(ctx, "ip", t.host)
	if err != nil {
		return nil, fmt.Errorf("resolving %s: %w", t.host, err)
	}
	var all []netip.AddrPort
	for _, addr := range addrs[:min(len(addrs), maxResolved)] {
		at := netip.AddrPortFrom(addr.Unmap(), t.port)
		if transport.CheckAddress(at) == nil {
			all = append(all, at)
		}
	}
	return all, nil
}

// lookup is net.Resolver's LookupNetIP.
type lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
