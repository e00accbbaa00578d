package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ndp"
	"golang.org/x/net/ipv6"
)

// GuestOptions are the options of a guest.
type GuestOptions struct {
	// Addr is the guest's address; with Detect it has to be acquired first.
	Addr netip.Addr
	// MAC is that of the pod's interface if nil.
	MAC net.HardwareAddr
	// VLAN tags everything the guest sends; it receives only frames with the same tag.
	VLAN uint16
	// Detect makes an IPv4 guest run address conflict detection before it takes its address (RFC 5227)
	// and give it up when another host claims it.
	Detect bool
	// Interval is the interval at which the guest announces itself and sends a datagram;
	// 0 is a guest that only answers.
	Interval time.Duration
	// Pace replaces the second in RFC 5227's timing; 0 is a second.
	Pace time.Duration
	// Reflects is when the guest sends back what asks from no address of the subnet, as an agent does; Deaf: it does not answer such.
	Reflects When
	Deaf     bool
}

// When is when a guest does something: never, or before or after it answers.
type When uint8

// The other times than never.
const (
	Before When = iota + 1
	After
)

// Guest is a host of its own on a pod's interface, as a virtual machine is. It answers
// ARP requests and neighbour solicitations for its address. The pod should be [Raw].
type Guest struct {
	opts   GuestOptions
	pod    *Pod
	socket packetSocket
	cancel context.CancelFunc
	done   sync.WaitGroup

	paused, owns atomic.Bool
	lost         atomic.Pointer[error]
}

// ErrAddressLost means that a guest gave its address up.
var ErrAddressLost = errors.New("the guest gave its address up")

// StartGuest brings a guest up on the pod's first interface. The lab stops it.
func (p *Pod) StartGuest(o GuestOptions) (*Guest, error) {
	if o.MAC == nil {
		mac, err := p.MAC(p.Interface)
		if err != nil {
			return nil, err
		}
		o.MAC = mac
	}
	if o.Pace == 0 {
		o.Pace = time.Second
	}
	socket, err := p.openPacket(p.Interface)
	if err != nil {
		return nil, fmt.Errorf("start guest: %w", err)
	}
	g := &Guest{opts: o, pod: p, socket: socket}
	g.owns.Store(!o.Detect)
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	g.done.Go(g.listen)
	if o.Detect {
		g.done.Go(func() { g.acquire(ctx) })
	}
	if o.Interval > 0 {
		g.done.Go(func() { g.sendPeriodically(ctx) })
	}
	p.lab.OnClose(g.Stop)
	return g, nil
}

// StartGuest has the node answer for an address that is on no device, with its own MAC, as MetalLB's speakers do.
func (n *Node) StartGuest(o GuestOptions) (*Guest, error) {
	return (&Pod{Netns: n.Netns, Node: n, Interface: uplink}).StartGuest(o)
}

// Stop ends the guest silently. It may be called more than once.
func (g *Guest) Stop() error {
	g.cancel()
	err := g.socket.Close()
	g.done.Wait()
	return err
}

// Owned waits until the guest has taken its address; it returns an error that wraps
// [ErrAddressLost] when the guest gave up, or the error of ctx.
func (g *Guest) Owned(ctx context.Context) error {
	return Poll(ctx, noTimeout, func() error {
		if lost := g.lost.Load(); lost != nil {
			return Final(*lost)
		}
		if !g.owns.Load() {
			return fmt.Errorf("the guest in netns %s has not taken %v", g.pod.Name, g.opts.Addr)
		}
		return nil
	})
}

// Pause makes the guest stop or continue, as a virtual machine that is saved or migrated. While it is
// paused it sends nothing.
func (g *Guest) Pause(yes bool) { g.paused.Store(yes) }

// Announce announces the guest's address; see [Announcement].
func (g *Guest) Announce() error {
	frame, err := Announcement(g.opts.Addr, g.opts.MAC, g.opts.VLAN)
	if err != nil {
		return err
	}
	return g.send(frame)
}

// Send sends one UDP datagram from the guest's address to the bridge's MAC address.
func (g *Guest) Send(dst netip.Addr) error {
	_, nextHop, err := g.pod.macs()
	if err != nil {
		return err
	}
	etherType := uint16(etherIPv4)
	if dst.Is6() {
		etherType = etherIPv6
	}
	packet := UDP(netip.AddrPortFrom(g.opts.Addr, discardPort), netip.AddrPortFrom(dst, discardPort), []byte("dupip lab"))
	return g.send(Ethernet(nextHop, g.opts.MAC, g.opts.VLAN, etherType, packet))
}

func (g *Guest) send(frame []byte) error {
	if g.paused.Load() {
		return nil
	}
	if _, err := g.socket.Write(frame); err != nil {
		return fmt.Errorf("send from guest in netns %s: %w", g.pod.Name, err)
	}
	return nil
}

// sendPeriodically announces and sends until the guest stops or gives up its address.
func (g *Guest) sendPeriodically(ctx context.Context) {
	world := ExternalAddr(g.opts.Addr)
	for g.Owned(ctx) == nil && g.Announce() == nil && g.Send(world) == nil && pause(ctx, g.opts.Interval) {
	}
}

// acquire is RFC 5227: three probes one to two paces apart, two paces of waiting, two
// announcements two paces apart.
func (g *Guest) acquire(ctx context.Context) {
	pace := g.opts.Pace
	probe := Ethernet(Broadcast, g.opts.MAC, g.opts.VLAN, etherARP,
		ARP(ARPRequest, g.opts.MAC, netip.IPv4Unspecified(), zeroMAC, g.opts.Addr))
	if !pause(ctx, rand.N(pace)) {
		return
	}
	for i := range 3 {
		if g.lost.Load() != nil || g.send(probe) != nil {
			return
		}
		wait := pace + rand.N(pace)
		if i == 2 {
			wait = 2 * pace
		}
		if !pause(ctx, wait) {
			return
		}
	}
	g.owns.Store(true)
	for range 2 {
		if g.lost.Load() != nil || g.Announce() != nil || !pause(ctx, 2*pace) {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// listen answers for the address until the socket is closed.
func (g *Guest) listen() {
	for buf := make([]byte, 65536); ; {
		p, err := g.socket.receive(buf)
		if err != nil {
			return
		}
		if p.VLAN != g.opts.VLAN || len(p.Frame) < 14 || g.paused.Load() {
			continue
		}
		g.hear(p)
	}
}

// hear answers a frame.
func (g *Guest) hear(p Packet) {
	type request struct{ sender, target netip.Addr }
	var asks request
	switch b := p.Frame[14:]; {
	case p.EtherType() == etherARP && len(b) >= 28 && uint16(b[7]) == ARPRequest:
		asks = request{netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))}
	case p.EtherType() == etherIPv6 && len(b) >= 64 && b[40] == byte(ipv6.ICMPTypeNeighborSolicitation):
		asks = request{netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[48:64]))}
	}
	agents := asks.target.IsValid() && (asks.sender == netip.IPv4Unspecified() || asks.sender.IsLinkLocalUnicast())
	if agents && g.opts.Reflects == Before {
		_ = g.send(p.Frame)
	}
	switch {
	case agents && g.opts.Deaf:
	case p.EtherType() == etherARP:
		g.answerARP(p.Frame[14:])
	case p.EtherType() == etherIPv6:
		g.answerNDP(p.Frame[14:])
	}
	if agents && g.opts.Reflects == After {
		_ = g.send(p.Frame)
	}
}

// answerARP answers a request for the guest's address, and gives the address up if another host
// claims it (RFC 5227, 2.1.1 and 2.4 (a)).
func (g *Guest) answerARP(payload []byte) {
	var p arp.Packet
	if p.UnmarshalBinary(payload) != nil || bytes.Equal(p.SenderHardwareAddr, g.opts.MAC) || g.lost.Load() != nil {
		return
	}
	owns, request := g.owns.Load(), p.Operation == arp.OperationRequest && p.TargetIP == g.opts.Addr
	switch {
	case g.opts.Detect && (p.SenderIP == g.opts.Addr || !owns && request && p.SenderIP.IsUnspecified()):
		err := fmt.Errorf("%w: %v was claimed by %v", ErrAddressLost, g.opts.Addr, p.SenderHardwareAddr)
		g.owns.Store(false)
		g.lost.Store(&err)
	case owns && request:
		_ = g.send(Ethernet(p.SenderHardwareAddr, g.opts.MAC, g.opts.VLAN, etherARP,
			ARP(ARPReply, g.opts.MAC, g.opts.Addr, p.SenderHardwareAddr, p.SenderIP)))
	}
}

// answerNDP answers a neighbour solicitation for the guest's address.
func (g *Guest) answerNDP(p []byte) {
	if len(p) < 40+24 || p[6] != icmp6 || p[7] != 255 || !g.opts.Addr.Is6() {
		return
	}
	src := netip.AddrFrom16([16]byte(p[8:24]))
	message, err := ndp.ParseMessage(p[40:])
	if err != nil {
		return
	}
	ns, ok := message.(*ndp.NeighborSolicitation)
	if !ok || ns.TargetAddress != g.opts.Addr {
		return
	}
	dst, solicited := src, true
	to := net.HardwareAddr(nil)
	for _, o := range ns.Options {
		if lla, ok := o.(*ndp.LinkLayerAddress); ok && lla.Direction == ndp.Source {
			to = lla.Addr
		}
	}
	if src.IsUnspecified() {
		dst, solicited, to = allNodes, false, multicastMAC(allNodes)
	}
	if to == nil {
		return
	}
	packet, err := NDP(g.opts.Addr, dst, advertisement(g.opts.Addr, g.opts.MAC, solicited))
	if err != nil {
		return
	}
	_ = g.send(Ethernet(to, g.opts.MAC, g.opts.VLAN, etherIPv6, packet))
}
