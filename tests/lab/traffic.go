package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

const discardPort = 9

// pingTimeout is how long Ping waits for an answer.
const pingTimeout = 2 * time.Second

// ErrNoAnswer means that nothing answered a ping.
var ErrNoAnswer = errors.New("no echo reply")

// Ping sends ICMP echo requests to dst, five a second, until one is answered. After two seconds it
// returns an error that wraps [ErrNoAnswer].
func (n *Netns) Ping(dst netip.Addr) error {
	network, listen := "ip4:icmp", "0.0.0.0"
	var echo, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	protocol := 1
	if dst.Is6() {
		network, listen = "ip6:ipv6-icmp", "::"
		echo, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
		protocol = icmp6
	}
	var conn *icmp.PacketConn
	if err := n.Exec(func() (err error) {
		conn, err = icmp.ListenPacket(network, listen)
		return err
	}); err != nil {
		return fmt.Errorf("ping %v from netns %s: %w", dst, n.Name, err)
	}
	defer conn.Close()

	id := rand.IntN(1 << 16)
	buf := make([]byte, 1500)
	deadline := time.Now().Add(Patience(pingTimeout))
	for seq := 0; seq == 0 || time.Now().Before(deadline); seq++ {
		m := icmp.Message{Type: echo, Body: &icmp.Echo{ID: id, Seq: seq, Data: []byte("dupip lab")}}
		b, err := m.Marshal(nil)
		if err != nil {
			return err
		}
		// The address may not resolve yet.
		_, _ = conn.WriteTo(b, &net.IPAddr{IP: dst.AsSlice()})
		if err := conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			return err
		}
		for {
			size, _, err := conn.ReadFrom(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return fmt.Errorf("ping %v from netns %s: %w", dst, n.Name, err)
			}
			got, err := icmp.ParseMessage(protocol, buf[:size])
			if err != nil || got.Type != reply {
				continue
			}
			if e, ok := got.Body.(*icmp.Echo); ok && e.ID == id {
				return nil
			}
		}
	}
	return fmt.Errorf("ping %v from netns %s: %w", dst, n.Name, ErrNoAnswer)
}

// SendUDP sends count datagrams from an address that the netns has to the discard
// port of dst. Nobody has to be there: the first packet may be an ARP request.
func (n *Netns) SendUDP(src, dst netip.Addr, count int) error { return n.sendUDP("", src, dst, count) }

// SendFrom sends one datagram out of a device, independent of the routes.
func (n *Netns) SendFrom(device string, src, dst netip.Addr) error {
	return n.sendUDP(device, src, dst, 1)
}

func (n *Netns) sendUDP(device string, src, dst netip.Addr, count int) error {
	conn, err := n.dialUDP(device, src, netip.AddrPortFrom(dst, discardPort))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := wantErrors(conn); err != nil {
		return err
	}
	for range count {
		err := Poll(context.Background(), Patience(eventuallyTimeout), func() error {
			_, err := conn.Write([]byte("dupip lab"))
			if err != nil && !slices.ContainsFunc(fullTable, func(full error) bool { return errors.Is(err, full) }) {
				return Final(err)
			}
			return err
		})
		// That the one before was not received is no error.
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EHOSTUNREACH) {
			return fmt.Errorf("send from %v to %v in netns %s: %w", src, dst, n.Name, err)
		}
	}
	return nil
}

// fullTable are the errors for a datagram that is not sent because the neighbour table is full, which all namespaces of the machine share:
// that of IPv4, which a socket returns after [wantErrors] only, and that of IPv6 (net/ipv4/udp.c and net/ipv6/ip6_output.c).
var fullTable = []error{unix.ENOBUFS, unix.EINVAL}

func wantErrors(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1) })
	return errors.Join(err, set)
}

// DialUDP opens a socket in the netns that is bound to src and connected to dst.
func (n *Netns) DialUDP(src netip.Addr, dst netip.AddrPort) (*net.UDPConn, error) {
	return n.dialUDP("", src, dst)
}

func (n *Netns) dialUDP(device string, src netip.Addr, dst netip.AddrPort) (udp *net.UDPConn, err error) {
	d := net.Dialer{
		LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(src, 0)),
		Control: func(_, _ string, c syscall.RawConn) error {
			var bindErr error
			err := c.Control(func(fd uintptr) { bindErr = unix.BindToDevice(int(fd), device) })
			return errors.Join(err, bindErr)
		},
	}
	err = n.Exec(func() error {
		conn, err := d.Dial("udp", dst.String())
		udp, _ = conn.(*net.UDPConn)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open socket from %v to %v in netns %s: %w", src, dst, n.Name, err)
	}
	return udp, nil
}

// ListenUDP opens a socket in the netns that receives on an address and port.
func (n *Netns) ListenUDP(on netip.AddrPort) (*net.UDPConn, error) {
	var conn *net.UDPConn
	err := n.Exec(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(on))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %v in netns %s: %w", on, n.Name, err)
	}
	return conn, nil
}

// Spoof sends one UDP datagram from each of these sources from the pod to the node, as a forwarding pod
// or a misbehaving one does.
func (p *Pod) Spoof(srcs ...netip.Addr) error {
	from, to, err := p.macs()
	if err != nil {
		return err
	}
	var frames [][]byte
	for _, src := range srcs {
		etherType := uint16(etherIPv4)
		if src.Is6() {
			etherType = etherIPv6
		}
		packet := UDP(netip.AddrPortFrom(src, discardPort), netip.AddrPortFrom(ExternalAddr(src), discardPort), []byte("dupip lab"))
		frames = append(frames, Ethernet(to, from, 0, etherType, packet))
	}
	return p.SendRaw(frames...)
}

// macs are the addresses of the pod's first interface and of the next hop: the bridge,
// or the host end of a routed pod.
func (p *Pod) macs() (own, nextHop net.HardwareAddr, err error) {
	if own, err = p.MAC(p.Interface); err != nil {
		return nil, nil, err
	}
	device := p.HostInterface
	if p.opts.Style != Routed {
		device = p.opts.Bridge
	}
	nextHop, err = p.Node.MAC(device)
	return own, nextHop, err
}

// Announce sends an [Announcement] of an address.
func (p *Pod) Announce(a netip.Addr) error {
	return p.sendOwn(func(mac net.HardwareAddr) ([]byte, error) { return Announcement(a, mac, 0) })
}

// Probe sends an ARP probe (RFC 5227, 2.1.1) or the solicitation of duplicate address detection
// (RFC 4862, 5.4.2).
func (p *Pod) Probe(a netip.Addr) error {
	return p.sendOwn(func(mac net.HardwareAddr) ([]byte, error) { return Solicitation(netip.Addr{}, a, mac, 0) })
}

// Solicit sends a [Solicitation] from the pod's first address of the family.
func (p *Pod) Solicit(a netip.Addr) error {
	own := slices.IndexFunc(p.opts.Addrs, func(b netip.Addr) bool { return a.Is4() == b.Is4() })
	if own < 0 {
		return fmt.Errorf("solicit %v from netns %s: no address of that family", a, p.Name)
	}
	return p.sendOwn(func(mac net.HardwareAddr) ([]byte, error) { return Solicitation(p.opts.Addrs[own], a, mac, 0) })
}

// sendOwn sends a frame from the MAC of the pod's first interface.
func (p *Pod) sendOwn(build func(mac net.HardwareAddr) ([]byte, error)) error {
	mac, err := p.MAC(p.Interface)
	if err != nil {
		return err
	}
	frame, err := build(mac)
	if err != nil {
		return err
	}
	return p.SendRaw(frame)
}
