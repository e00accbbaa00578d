// Package wire asks and listens on the segments behind devices of the node: who else answers there for an address of this node, or of a pod of it.
//
// It sees ARP and neighbour advertisements only, by sockets of the kernel, so other packets cost nothing, and knows nothing of conflicts. It
// asks for addresses that this node has itself: no neighbour entry is made or changed, neither here nor at those that answer. On a second segment it
// asks for those of its pods, too: an entry that the node has of one leads to a holder on another node, and may then lead to the one that answered.
package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/bounds"
)

const (
	// At most so many questions are asked: other nodes decide when, and all nodes of the segment hear those for IPv4.
	questionsPerSecond, questionsBurst = 20, 60
	// Of what is heard so much is passed on: everybody on a segment decides how much there is.
	heardPerSecond, heardBurst = 200, 1000
	maxHeard                   = 256 // that wait for the agent
	maxPorts                   = 16  // devices that are listened on
	// writeTime is how long a device whose queue stands still may delay a question.
	writeTime = 10 * time.Millisecond
)

var (
	tooManyQuestions = bounds.New("questions on the segment of the nodes")
	tooManyHeard     = bounds.New("answers on the segment of the nodes")
	tooManyPorts     = bounds.New("devices with segments of nodes")
)

// Heard is an answer, or an announcement, that came in for an address.
type Heard struct {
	Device string
	IP     netip.Addr
	MAC    detector.MAC
	At     time.Time
}

// Wire is the segments behind devices of the node. Its methods are safe for concurrent use.
type Wire struct {
	log   *slog.Logger
	heard chan Heard
	limit *rate.Limiter // of questions
	taken *rate.Limiter // of what is heard

	wake   chan struct{} // has a value when other devices are wanted
	wanted atomic.Pointer[wanted]

	following sync.Mutex   // held while the kernel is asked for devices and sockets, which may take long
	own       []netip.Addr // see Follow

	mu    sync.Mutex
	ports map[string]*port // changed with both locks held
}

// port is one device that is listened on. What is not atomic does not change.
type port struct {
	device net.Interface
	arp    *packet.Conn
	ndp    atomic.Pointer[ndp.Conn]
	err    error       // why the device cannot be listened on; then there is no socket
	ended  atomic.Bool // a socket cannot be read any more
}

// New returns a Wire without a device.
func New(log *slog.Logger) *Wire {
	return &Wire{log: log, wake: make(chan struct{}, 1), heard: make(chan Heard, maxHeard), limit: rate.NewLimiter(questionsPerSecond, questionsBurst), taken: rate.NewLimiter(heardPerSecond, heardBurst), ports: make(map[string]*port)}
}

// Heard returns the channel of what is heard.
func (w *Wire) Heard() <-chan Heard { return w.heard }

// Listen has [Wire.Run] follow these devices. It does not wait for the kernel.
func (w *Wire) Listen(devices []string, own []netip.Addr) {
	w.wanted.Store(&wanted{devices, own})
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Device is one that is to be listened on. Err is why it is not.
type Device struct {
	Name string
	Err  error
}

// Devices returns the devices that are to be listened on, by name.
func (w *Wire) Devices() (list []Device) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.ports)) {
		list = append(list, Device{name, w.ports[name].err})
	}
	return list
}

// Run follows the devices that are wanted, until ctx ends.
func (w *Wire) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			next := w.wanted.Load()
			w.Follow(next.devices, next.own)
		}
	}
}

// wanted are the arguments of [Wire.Follow].
type wanted struct {
	devices []string
	own     []netip.Addr
}

// Follow listens on these devices from now on, at most maxPorts of them, also for requests that others send from own, the addresses that this node and its
// pods have there, sorted (RFC 5227, section 2.4). One that was made anew is opened again; without an IPv6 address nothing is
// heard for IPv6, which is tried again each time. It waits for the kernel.
func (w *Wire) Follow(devices []string, own []netip.Addr) {
	w.following.Lock()
	defer w.following.Unlock()
	w.watch(own)
	if more := len(devices) - maxPorts; more > 0 {
		tooManyPorts.Exceeded(more)
		devices = devices[:maxPorts]
	}
	for name, p := range w.ports {
		if !slices.Contains(devices, name) {
			p.close()
			w.set(name, nil)
		}
	}
	for _, name := range devices {
		before := w.ports[name]
		p := w.open(before, name)
		if p != before {
			w.set(name, p)
		}
		if p.err != nil && (before == nil || before.err == nil) {
			w.log.Info("this device cannot be listened on: an address that two nodes have there is a finding of \"dupip audit\", and no conflict", "device", name, "error", p.err)
		}
	}
}

// set replaces the port of a device, by none if p is nil.
func (w *Wire) set(name string, p *port) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ports[name] = p; p == nil {
		delete(w.ports, name)
	}
}

// open opens the sockets of a device that are not open, or those of an earlier device of that name: then it returns another port.
func (w *Wire) open(p *port, name string) *port {
	device, err := deviceOf(name)
	if err != nil || p == nil || p.arp == nil || p.ended.Load() || device.Index != p.device.Index || !slices.Equal(device.HardwareAddr, p.device.HardwareAddr) {
		p.close()
		p = new(port)
		if err == nil {
			p.device = *device
			err = w.openARP(p)
		}
		if err != nil {
			p.err = fmt.Errorf("listening on %s: %w", name, err)
		}
	}
	if p.err == nil && p.ndp.Load() == nil {
		w.openNDP(p)
	}
	return p
}

// deviceOf finds a device by its name, and no others as [net.InterfaceByName] does.
func deviceOf(name string) (*net.Interface, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	return &net.Interface{Index: link.Attrs().Index, Name: name, HardwareAddr: link.Attrs().HardwareAddr, MTU: link.Attrs().MTU}, nil
}

func (w *Wire) openARP(p *port) error {
	if len(p.device.HardwareAddr) != len(detector.MAC{}) {
		return errors.New("it has no Ethernet address")
	}
	filter, err := bpf.Assemble(filterOf(w.own))
	if err != nil {
		return fmt.Errorf("assembling the filter of answers: %w", err)
	}
	conn, err := packet.Listen(&p.device, packet.Raw, int(ethernet.EtherTypeARP), &packet.Config{Filter: filter})
	if err != nil {
		return err
	}
	p.arp = conn
	go w.readARP(p)
	return nil
}

var allNodes = netip.MustParseAddr("ff02::1")

func (w *Wire) openNDP(p *port) {
	device := p.device
	device.Name = strconv.Itoa(device.Index) // as a zone: Go remembers the index of a name for a minute, and the device may have been made anew
	conn, _, err := ndp.Listen(&device, ndp.LinkLocal)
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
	p.ndp.Store(conn)
	go w.readNDP(p, conn)
}

// close ends what reads the sockets, if there are any.
func (p *port) close() {
	if p == nil {
		return
	}
	if p.arp != nil {
		p.arp.Close()
	}
	if conn := p.ndp.Load(); conn != nil {
		conn.Close()
	}
}

// maxWatched bounds the addresses for which requests are heard, too.
const maxWatched = 256

var tooManyWatched = bounds.New("addresses watched on the segment of the nodes")

// watch has requests from these addresses heard, too.
func (w *Wire) watch(ips []netip.Addr) {
	own := slices.DeleteFunc(slices.Clone(ips), func(ip netip.Addr) bool { return !ip.Is4() })
	if more := len(own) - maxWatched; more > 0 {
		tooManyWatched.Exceeded(more)
		own = own[:maxWatched]
	}
	if slices.Equal(own, w.own) {
		return
	}
	w.own = own
	filter, err := bpf.Assemble(filterOf(own))
	if err != nil {
		return
	}
	for name, p := range w.ports {
		if p.arp == nil {
			continue
		}
		if err := p.arp.SetBPF(filter); err != nil {
			w.log.Debug("changing the filter of answers failed", "device", name, "error", err)
		}
	}
}

// Close ends listening.
func (w *Wire) Close() error {
	w.Follow(nil, nil)
	return nil
}

// ErrTooMany says that a question was not asked, because there were too many.
var ErrTooMany = errors.New("too many questions on the segments of nodes")

// Ask asks behind a device for an address that this node or a pod of it has, with an ARP probe (RFC 5227), or a neighbour solicitation from the device's
// own address: no neighbour entry is made of the answer. The source is the device's own MAC, because
// switches may refuse others. Pods behind the same device do not hear it.
func (w *Wire) Ask(device string, ip netip.Addr) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.ports[device]
	if p == nil || p.err != nil || p.ended.Load() {
		return fmt.Errorf("%s is not listened on", device)
	}
	if !w.limit.Allow() {
		tooManyQuestions.Exceeded(1)
		return ErrTooMany
	}
	ask := p.askNDP
	if ip.Is4() {
		ask = p.askARP
	}
	if err := ask(ip, time.Now().Add(writeTime)); err != nil {
		return fmt.Errorf("asking for %s on %s: %w", ip, device, err)
	}
	return nil
}

func (p *port) askARP(ip netip.Addr, deadline time.Time) error {
	frame, err := probe.Frame(probe.Target{IP: ip, Source: [6]byte(p.device.HardwareAddr)})
	if err != nil {
		return err
	}
	_ = p.arp.SetWriteDeadline(deadline)
	_, err = p.arp.WriteTo(frame, &packet.Addr{HardwareAddr: ethernet.Broadcast})
	return err
}

func (p *port) askNDP(ip netip.Addr, deadline time.Time) error {
	conn := p.ndp.Load()
	if conn == nil {
		return errors.New("the device has no link-local address")
	}
	group, err := ndp.SolicitedNodeMulticast(ip)
	if err != nil {
		return err
	}
	_ = conn.SetWriteDeadline(deadline)
	return conn.WriteTo(&ndp.NeighborSolicitation{
		TargetAddress: ip, Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: p.device.HardwareAddr}},
	}, nil, group)
}

func (w *Wire) readARP(p *port) {
	buffer := make([]byte, 128)
	for {
		n, _, err := p.arp.ReadFrom(buffer)
		switch {
		case errors.Is(err, unix.ENETDOWN): // it is told once, also of one that comes up again
			continue
		case err != nil:
			p.ended.Store(true)
			return
		}
		var frame ethernet.Frame
		var message arp.Packet
		if frame.UnmarshalBinary(buffer[:n]) == nil && message.UnmarshalBinary(frame.Payload) == nil {
			w.hear(p.device.Name, message.SenderIP, message.SenderHardwareAddr)
		}
	}
}

func (w *Wire) readNDP(p *port, conn *ndp.Conn) {
	for {
		message, _, _, err := conn.ReadFrom()
		if errors.As(err, new(net.Error)) { // of the socket, and not of a malformed message
			p.ended.Store(true)
			return
		}
		advertisement, ok := message.(*ndp.NeighborAdvertisement)
		if err != nil || !ok {
			continue
		}
		for _, option := range advertisement.Options {
			if target, ok := option.(*ndp.LinkLayerAddress); ok && target.Direction == ndp.Target {
				w.hear(p.device.Name, advertisement.TargetAddress, target.Addr)
			}
		}
	}
}

func (w *Wire) hear(device string, ip netip.Addr, mac net.HardwareAddr) {
	if len(mac) != len(detector.MAC{}) {
		return
	}
	if !w.taken.Allow() {
		tooManyHeard.Exceeded(1)
		return
	}
	select {
	case w.heard <- Heard{device, ip, detector.MAC(mac), time.Now()}:
	default:
		tooManyHeard.Exceeded(1)
	}
}
