package probe

import (
	"crypto/sha256"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Socket sends probes on the interfaces of the netns that it was opened in. It is a [Sender] and safe
// for concurrent use.
type Socket struct {
	fd  int
	mac net.HardwareAddr
}

// MAC derives the source address of a node's probes: locally administered, unique to the node, and the
// same for all agents of one boot.
//
// It is deliberately not an address of the host. The host's stack would accept an answer to its own
// MAC and change its neighbour entry for that IP to the pod that answered last. With a duplicate, or a pod
// that answers for others, our probe would then redirect the host's traffic. Pods answer a foreign MAC just
// as well, and the host's stack drops the answer after the observer has seen it.
func MAC(node, bootID string) net.HardwareAddr {
	sum := sha256.Sum256([]byte("dupip solicitation\x00" + node + "\x00" + bootID))
	mac := net.HardwareAddr(sum[:6:6])
	mac[0] = mac[0]&^1 | 2 // unicast, locally administered
	return mac
}

// OpenSocket returns a Socket with the source address mac.
func OpenSocket(mac net.HardwareAddr) (*Socket, error) {
	// With protocol 0 the socket receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening packet socket (needs CAP_NET_RAW): %w", err)
	}
	// Another egress program in the qdisc layer could drop the frame.
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bypassing the qdisc on packet socket: %w", err)
	}
	return &Socket{fd: fd, mac: mac}, nil
}

// Send sends one probe and does not block. [unix.ENXIO] and [unix.ENODEV] mean that the interface is
// gone, [unix.ENETDOWN] that it is down.
func (s *Socket) Send(t Target) error {
	frame, err := Frame(t, s.mac)
	if err != nil {
		return err
	}
	address := unix.SockaddrLinklayer{Ifindex: t.Ifindex, Halen: 6}
	copy(address.Addr[:], frame[:6])
	if err := unix.Sendto(s.fd, frame, unix.MSG_DONTWAIT, &address); err != nil {
		return fmt.Errorf("sending a probe for %s: %w", t.IP, err)
	}
	return nil
}

// Close closes the socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }
