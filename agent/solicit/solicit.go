// Package solicit asks a pod whether it has an address, in the one way that leaves
// the pod and everybody else as they were: ARP probes and neighbour solicitations,
// sent out of one host veth into one netns.
//
// Answers are not read here. They come back through the observer, because on a
// bridge port the bridge takes them before any socket sees them.
package solicit

import (
	"crypto/sha256"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Sender sends solicitations on any interface of the netns it was opened in. It is
// safe for concurrent use.
type Sender struct {
	fd  int
	mac net.HardwareAddr
}

// MAC derives the source address of a node's solicitations: locally administered,
// unique to the node and the same for every agent of one boot.
//
// It is no address of the host on purpose. An answer to the host's own MAC would be
// taken in by the host's stack, which then moves its neighbour entry for that IP to
// whoever answered last: with a duplicate, or a pod that answers for others, our
// question would turn the host's traffic. A foreign MAC is answered just as well,
// and the host's stack drops the answer after the observer saw it.
func MAC(node, bootID string) net.HardwareAddr {
	sum := sha256.Sum256([]byte("dupip solicitation\x00" + node + "\x00" + bootID))
	mac := net.HardwareAddr(sum[:6:6])
	mac[0] = mac[0]&^1 | 2 // unicast, locally administered
	return mac
}

// Open returns a Sender with the source address mac. Its socket receives nothing.
func Open(mac net.HardwareAddr) (*Sender, error) {
	// Protocol 0 is bound to no packet type, so nothing is ever queued here.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening packet socket (needs CAP_NET_RAW): %w", err)
	}
	// Past the qdisc layer, where another program on egress could eat the frame.
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bypassing the qdisc on packet socket: %w", err)
	}
	return &Sender{fd: fd, mac: mac}, nil
}

// Send sends one solicitation and does not wait. [unix.ENXIO] and [unix.ENODEV]
// mean that the interface is gone, [unix.ENETDOWN] that it is down.
func (s *Sender) Send(t Target) error {
	frame, err := Frame(t, s.mac)
	if err != nil {
		return err
	}
	address := unix.SockaddrLinklayer{Ifindex: t.Ifindex, Halen: 6}
	copy(address.Addr[:], frame[:6])
	if err := unix.Sendto(s.fd, frame, unix.MSG_DONTWAIT, &address); err != nil {
		return fmt.Errorf("sending solicitation for %s: %w", t.IP, err)
	}
	return nil
}

// Close closes the socket.
func (s *Sender) Close() error { return unix.Close(s.fd) }
