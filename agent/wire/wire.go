// Package wire asks and listens on the segment that joins the nodes: who else answers there for an address of this node.
//
// It sees ARP and neighbour advertisements only, by sockets of the kernel, so other packets cost nothing, and knows nothing of conflicts. It
// asks for addresses that this node has itself: no neighbour entry is made or changed, neither here nor at those that answer.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/bounds"
)

const (
	// At most so many questions are asked: other nodes decide when, and all nodes of the segment hear those for IPv4.
	questionsPerSecond, questionsBurst = 20, 60
	maxHeard                           = 256 // that wait for the agent
)

var (
	tooManyQuestions = bounds.New("questions on the segment of the nodes")
	tooManyHeard     = bounds.New("answers on the segment of the nodes")
)

// Heard is an answer, or an announcement, that came in for an address.
type Heard struct {
	IP  netip.Addr
	MAC detector.MAC
	At  time.Time
}

// Wire is the segment that joins the nodes. Its methods are safe for concurrent use.
type Wire struct {
	log   *slog.Logger
	heard chan Heard
	limit *rate.Limiter

	mu  sync.Mutex
	own []netip.Addr      // see Watch
	now links.HostAddress // the device that is listened on
	arp *packet.Conn
	ndp *ndp.Conn
	err error // why the device cannot be listened on
}

// New returns a Wire without a device.
func New(log *slog.Logger) *Wire {
	return &Wire{log: log, heard: make(chan Heard, maxHeard), limit: rate.NewLimiter(questionsPerSecond, questionsBurst), err: errors.New("this node has no address on a segment of nodes")}
}

// Heard returns the channel of what is heard.
func (w *Wire) Heard() <-chan Heard { return w.heard }

// Follow listens on the device of an address from now on, if it is another one than before. Without an IPv6 address on the device nothing is
// heard for IPv6: that is tried again each time.
func (w *Wire) Follow(at links.HostAddress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at.Index != w.now.Index || at.Device != w.now.Device || string(at.MAC) != string(w.now.MAC) || w.arp == nil {
		w.close()
		before := w.err
		if w.now, w.err = at, w.openARP(at); w.err != nil && (before == nil || before.Error() != w.err.Error()) {
			w.log.Info("this node does not hear the segment of the nodes: an address that two nodes have is told, and not proved", "error", w.err)
		}
	}
	if w.ndp == nil && w.err == nil {
		w.openNDP(at.Index)
	}
}

func (w *Wire) openARP(at links.HostAddress) error {
	if len(at.MAC) != len(detector.MAC{}) {
		return fmt.Errorf("%s has no Ethernet address", at.Device)
	}
	filter, err := bpf.Assemble(filterOf(w.own))
	if err != nil {
		return fmt.Errorf("assembling the filter of answers: %w", err)
	}
	device := &net.Interface{Index: at.Index, Name: at.Device, HardwareAddr: at.MAC}
	conn, err := packet.Listen(device, packet.Raw, int(ethernet.EtherTypeARP), &packet.Config{Filter: filter})
	if err != nil {
		return fmt.Errorf("listening on %s: %w", at.Device, err)
	}
	w.arp = conn
	go w.readARP(conn)
	return nil
}

var allNodes = netip.MustParseAddr("ff02::1")

func (w *Wire) openNDP(index int) {
	device, err := net.InterfaceByIndex(index)
	if err != nil {
		return
	}
	conn, _, err := ndp.Listen(device, ndp.LinkLocal)
	if err != nil {
		return
	}
	var advertisements ipv6.ICMPFilter
	advertisements.SetAll(true)
	advertisements.Accept(ipv6.ICMPTypeNeighborAdvertisement)
	if err := conn.SetICMPFilter(&advertisements); err != nil {
		conn.Close()
		return
	}
	_ = conn.JoinGroup(allNodes) // else only answers are heard
	w.ndp = conn
	go w.readNDP(conn)
}

// maxWatched bounds the addresses for which requests are heard, too.
const maxWatched = 256

var tooManyWatched = bounds.New("addresses watched on the segment of the nodes")

// Watch has requests heard, too, that others send from these addresses, which this node and its pods have (RFC 5227, section 2.4). They are sorted.
func (w *Wire) Watch(ips []netip.Addr) {
	own := slices.DeleteFunc(slices.Clone(ips), func(ip netip.Addr) bool { return !ip.Is4() })
	if more := len(own) - maxWatched; more > 0 {
		tooManyWatched.Exceeded(more)
		own = own[:maxWatched]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Equal(own, w.own) {
		return
	}
	w.own = own
	if filter, err := bpf.Assemble(filterOf(own)); err == nil && w.arp != nil {
		if err := w.arp.SetBPF(filter); err != nil {
			w.log.Debug("changing the filter of answers failed", "device", w.now.Device, "error", err)
		}
	}
}

// Close ends listening.
func (w *Wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.close()
	return nil
}

func (w *Wire) close() {
	if w.arp != nil {
		w.arp.Close()
	}
	if w.ndp != nil {
		w.ndp.Close()
	}
	w.arp, w.ndp = nil, nil
}

// Ask asks for an address of this node with an ARP probe (RFC 5227), or a neighbour solicitation from the device's own address: this node has
// no neighbour entry of its own address, and does not make one of the answer. The source is the device's own MAC, because switches may refuse others.
func (w *Wire) Ask(ip netip.Addr) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if !w.limit.Allow() {
		tooManyQuestions.Exceeded(1)
		return errors.New("too many questions on the segment of the nodes")
	}
	var err error
	switch {
	case ip.Is4():
		var frame []byte
		if frame, err = probe.Frame(probe.Target{IP: ip, Source: [6]byte(w.now.MAC)}); err == nil {
			_, err = w.arp.WriteTo(frame, &packet.Addr{HardwareAddr: ethernet.Broadcast})
		}
	case w.ndp == nil:
		return fmt.Errorf("%s has no link-local address", w.now.Device)
	default:
		var group netip.Addr
		if group, err = ndp.SolicitedNodeMulticast(ip); err == nil {
			err = w.ndp.WriteTo(&ndp.NeighborSolicitation{
				TargetAddress: ip, Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: w.now.MAC}},
			}, nil, group)
		}
	}
	if err != nil {
		return fmt.Errorf("asking for %s on %s: %w", ip, w.now.Device, err)
	}
	return nil
}

// filterOf returns the filter of frames with ARP: replies, and what is announced unasked, to this node or to all, and requests from these addresses. What
// has the tag of a VLAN that the node does not have counts as others' (PACKET_OTHERHOST).
func filterOf(own []netip.Addr) []bpf.Instruction {
	refuse, accept := bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: 128}
	list := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: 2, SkipTrue: 1}, // PACKET_HOST, _BROADCAST, _MULTICAST
		refuse,
		bpf.LoadAbsolute{Off: 14, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x0001_0800, SkipTrue: 1}, // Ethernet, IPv4
		refuse,
		bpf.LoadAbsolute{Off: 20, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(arp.OperationReply), SkipTrue: 1},
		accept,
		bpf.LoadAbsolute{Off: 38, Size: 4}, // the target
		bpf.TAX{},
		bpf.LoadAbsolute{Off: 28, Size: 4}, // the sender
		bpf.JumpIfX{Cond: bpf.JumpNotEqual, SkipTrue: 1},
		accept,
	}
	for _, ip := range own {
		four := ip.As4()
		list = append(list, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(four[:]), SkipTrue: 1}, accept)
	}
	return append(list, refuse)
}

func (w *Wire) readARP(conn *packet.Conn) {
	buffer := make([]byte, 128)
	for {
		n, _, err := conn.ReadFrom(buffer)
		switch {
		case errors.Is(err, unix.ENETDOWN): // it is told once, also of one that comes up again
			continue
		case err != nil:
			return
		}
		var frame ethernet.Frame
		var message arp.Packet
		if frame.UnmarshalBinary(buffer[:n]) == nil && message.UnmarshalBinary(frame.Payload) == nil {
			w.hear(message.SenderIP, message.SenderHardwareAddr)
		}
	}
}

func (w *Wire) readNDP(conn *ndp.Conn) {
	for {
		message, _, _, err := conn.ReadFrom()
		if errors.As(err, new(net.Error)) { // of the socket, and not of a malformed message
			return
		}
		advertisement, ok := message.(*ndp.NeighborAdvertisement)
		if err != nil || !ok {
			continue
		}
		for _, option := range advertisement.Options {
			if target, ok := option.(*ndp.LinkLayerAddress); ok && target.Direction == ndp.Target {
				w.hear(advertisement.TargetAddress, target.Addr)
			}
		}
	}
}

func (w *Wire) hear(ip netip.Addr, mac net.HardwareAddr) {
	if len(mac) != len(detector.MAC{}) {
		return
	}
	select {
	case w.heard <- Heard{ip, detector.MAC(mac), time.Now()}:
	default:
		tooManyHeard.Exceeded(1)
	}
}
