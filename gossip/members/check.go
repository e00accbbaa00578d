package members

import (
	"context"
	"net"
	"net/netip"

	"github.com/dupip/dupip/gossip/transport"
)

// CheckPort returns why an agent cannot listen at a port of an address of this node (empty for all
// addresses); nil if it can. It listens there for a moment.
func CheckPort(bind string, port int) error {
	l, err := transport.Listen(bind, port)
	if err != nil {
		return err
	}
	return l.Close()
}

// CheckKey returns [ErrNoKey] for an agent that needs a key and has none. Without a key it may listen on
// loopback only, unless it is Insecure.
func CheckKey(opts Options) error {
	listen := opts.Bind
	if opts.Sockets != nil {
		listen = opts.Advertise
	}
	if addr, err := netip.ParseAddr(listen); opts.KeyFile != "" || opts.Insecure || err == nil && addr.IsLoopback() {
		return nil
	}
	return ErrNoKey
}

// Resolve returns the addresses of a join list, and the entries without an address when ctx ends. It
// returns an error for a list that [Open] refuses.
func Resolve(ctx context.Context, join []string, port int) (addresses []netip.AddrPort, unresolved []string, err error) {
	targets, err := parseTargets(join, port)
	if err != nil {
		return nil, nil, err
	}
	for n, t := range targets {
		found, err := t.resolve(ctx, net.DefaultResolver.LookupNetIP)
		if err != nil {
			unresolved = append(unresolved, join[n])
		}
		addresses = append(addresses, found...)
	}
	return addresses, unresolved, nil
}
