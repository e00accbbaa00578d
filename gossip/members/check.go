package members

import (
	"context"
	"net"
	"net/netip"
)

// CountKeys reads a file of keys as [Open] does and returns how many it has. The error
// says what is wrong with the file and never quotes it.
func CountKeys(path string) (int, error) {
	list, _, err := readKeys(path)
	return len(list), err
}

// CheckPort returns why an agent could not listen at an address of this node, empty for all,
// and a port, nil if it could. It listens there for a moment.
func CheckPort(bind string, port int) error {
	var n network
	if err := n.listen(bind, port); err != nil {
		return err
	}
	n.udp.Close()
	return n.tcp.Close()
}

// Resolve returns the addresses that a join list leads to, and the entries of which no
// address is found before ctx ends. [Open] refuses the list for which there is an error.
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
