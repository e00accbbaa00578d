// Package transport carries datagrams and streams between agents: those of memberlist, and those of
// the agents themselves.
//
// With a key, both are sealed. Datagrams are sealed with XChaCha20-Poly1305 for one incarnation of one receiver, and
// each is accepted once, from who gets what is sent to its address; streams are TLS 1.3 connections in which both sides
// prove that they have a key of the file.
// Whoever does not have a key can neither read nor make nor repeat anything, and no datagram is sent in reply to one
// that cannot be opened. Memberlist's own encryption is not used: it allocates memory for a stream before it decrypts
// it, accepts repeated datagrams, and panics on a sealed datagram whose version byte was changed.
//
// Without a key everything can be forged. That is for agents on the loopback of one machine, and for simulations.
package transport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/time/rate"

	"github.com/dupip/dupip/gossip/recent"
	"github.com/dupip/dupip/gossip/wire"
)

// format is the version of the protocol between agents. Agents of different formats do not
// understand each other; a format only ever grows.
const format = "dupip 3"

// maxWindows bounds the senders and receivers that are remembered; twice as many are for some time. One that is forgotten
// is challenged again. What a stranger that is forgotten has sent to memberlist could be repeated.
const maxWindows = 16384

// Handler receives what is not memberlist's. Its methods are called from several goroutines.
type Handler interface {
	// Receive gets the payload of a datagram; it must copy what it keeps, and not block. The sender sent this to this
	// incarnation once. It has the key, if there is one, and with Options.Proofs it is the member that it says.
	Receive(from wire.MemberID, at netip.AddrPort, payload []byte)
	// Serve answers a request. It may block until ctx ends; nil is no answer.
	Serve(ctx context.Context, request []byte) []byte
}

// Options configures a [Transport].
type Options struct {
	Log *slog.Logger
	// ID is this incarnation of the agent.
	ID wire.MemberID
	// Label is the cluster's name. What has another one is refused.
	Label string
	// KeyFile has the keys, see [OpenKeys]; empty is none.
	KeyFile string
	Handler Handler
	// MemberID returns the incarnation in the name of a member of memberlist.
	MemberID func(name string) (wire.MemberID, bool)
	// Sockets are what to listen with; see [Listen].
	Sockets Sockets
	// Proofs have each member prove that it is where it is said to be; nil believes all, for simulations.
	Proofs Proofs
	// AllowLocal allows connections to loopback and link-local addresses: this agent has one itself.
	AllowLocal bool
}

// Transport implements memberlist.NodeAwareTransport. Its methods are safe for concurrent use.
type Transport struct {
	Options
	label  uint32
	first  byte  // of datagrams and streams
	keys   *Keys // nil without a key
	conns  conns
	proofs proofs
	drops
	dialed atomic.Int64 // Unix time in nanoseconds

	// Of the goroutine that receives: windows of senders that have proved nothing, and an opened datagram.
	strangers recent.Map[wire.MemberID, window]
	opened    [MaxDatagram]byte

	packets chan *memberlist.Packet
	streams chan net.Conn
	lists   chan struct{}   // one for each list of members that arrives
	whole   *rate.Limiter   // whole lists for those that join
	short   atomic.Bool     // a short list came
	ctx     context.Context // ends with Shutdown
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

var _ memberlist.NodeAwareTransport = (*Transport)(nil)

// New starts to receive with opts.Sockets, which it closes in the end. Errors are for users.
func New(opts Options) (*Transport, error) {
	t := &Transport{
		Options: opts, label: hashLabel(opts.Label), first: bytePlain,
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), lists: make(chan struct{}, maxLists),
		whole: newWhole(),
		conns: conns{open: make(map[*inbound]bool)}, proofs: newProofs(),
		strangers: recent.Map[wire.MemberID, window]{Half: maxWindows},
	}
	if opts.KeyFile != "" {
		keys, err := OpenKeys(opts.KeyFile, opts.Log)
		if err != nil {
			opts.Sockets.Close()
			return nil, err
		}
		t.keys, t.first = keys, byteSealed
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.wg.Go(t.receive)
	t.wg.Go(t.accept)
	if t.keys != nil {
		t.wg.Go(func() { t.keys.watch(t.ctx) })
	}
	return t, nil
}

// hashLabel is what a label becomes on the wire.
func hashLabel(label string) uint32 {
	sum := sha256.Sum256([]byte(format + "\x00" + label))
	return binary.BigEndian.Uint32(sum[:])
}

// Send sends a payload of at most [MaxPayload] bytes to a member by one datagram, which may be lost. It does not block.
func (t *Transport) Send(to wire.MemberID, at netip.AddrPort, payload []byte) error {
	return t.send(to, at, kindOwn, payload)
}

func (t *Transport) send(to wire.MemberID, at netip.AddrPort, k kind, payload []byte) error {
	if err := t.Reachable(at); err != nil {
		t.add(dropUnsent)
		return err
	}
	if len(payload) > MaxPayload {
		t.add(dropOversize)
		return fmt.Errorf("sending %d bytes: a datagram has room for %d", len(payload), MaxPayload)
	}
	return t.write(at, t.datagram(to, k, payload))
}

func (t *Transport) write(at netip.AddrPort, b []byte) error {
	_, err := t.Sockets.WriteToUDPAddrPort(b, at)
	if err != nil {
		t.add(dropUnsent)
	}
	return err
}

// Reachable refuses what cannot be the address of a member.
func (o *Options) Reachable(at netip.AddrPort) error {
	if local := at.Addr().IsLoopback() || at.Addr().IsLinkLocalUnicast(); local && !o.AllowLocal {
		return fmt.Errorf("%s is an address of one machine or link only", at.Addr())
	}
	return CheckAddress(at)
}

// CheckAddress refuses what cannot be the address of one node.
func CheckAddress(at netip.AddrPort) error {
	addr := at.Addr().Unmap()
	switch {
	case !addr.IsValid(), addr.IsUnspecified(), addr.IsMulticast(), addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s is not the address of one node", addr)
	case addr.Zone() != "":
		return fmt.Errorf("%s is valid on one link only", addr)
	case at.Port() == 0:
		return fmt.Errorf("%s has no port", addr)
	}
	return nil
}

// FinalAdvertiseAddr implements memberlist.Transport. The address is chosen before.
func (t *Transport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return nil, 0, err
	}
	return addr.Unmap().AsSlice(), port, nil
}

// WriteTo implements memberlist.Transport, but memberlist knows the names of its receivers.
func (t *Transport) WriteTo([]byte, string) (time.Time, error) {
	return time.Time{}, errors.New("sending to an address without a member")
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *Transport) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	at, err := parseAddress(to.Addr)
	if err != nil {
		return time.Time{}, err
	}
	id, ok := t.MemberID(to.Name)
	if !ok {
		return time.Time{}, fmt.Errorf("%q is not the name of a member", to.Name)
	}
	err = t.send(id, at, kindMemberlist, b)
	return time.Now(), err
}

// PacketCh implements memberlist.Transport.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *Transport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout implements memberlist.Transport. The address must be one: names are never resolved here.
func (t *Transport) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	at, err := parseAddress(to)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	conn, err := t.dial(ctx, at, kindMemberlist, 0)
	if err != nil {
		return nil, err
	}
	t.dialed.Store(time.Now().UnixNano())
	return t.screen(conn, false), nil
}

// Dialed is when memberlist dialled another member last.
func (t *Transport) Dialed() time.Time { return time.Unix(0, t.dialed.Load()) }

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t *Transport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(to.Addr, timeout)
}

// Shutdown implements memberlist.Transport.
func (t *Transport) Shutdown() error {
	t.cancel()
	err := t.Sockets.Close()
	t.conns.close()
	t.wg.Wait()
	return err
}

// receive takes datagrams until Shutdown.
func (t *Transport) receive() {
	buf := make([]byte, MaxDatagram+1)
	for {
		size, from, err := t.Sockets.ReadFromUDPAddrPort(buf)
		if err != nil {
			if t.pause() {
				return
			}
			continue
		}
		t.take(buf[:size], netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), time.Now())
	}
}

// take handles one datagram.
func (t *Transport) take(b []byte, from netip.AddrPort, now time.Time) {
	d, why := t.open(b)
	if why == 0 {
		why = t.admit(d, from)
	}
	switch {
	case why != 0:
		t.addFrom(why, from.Addr())
		return
	case d.kind == kindOwn:
		t.Handler.Receive(d.from, from, d.payload)
		return
	case d.kind != kindMemberlist:
		return
	}
	if err := screenPacket(d.payload); err != nil {
		t.addFrom(reason(err), from.Addr())
		return
	}
	packet := &memberlist.Packet{Buf: bytes.Clone(d.payload), From: net.UDPAddrFromAddrPort(from), Timestamp: now}
	select {
	case t.packets <- packet:
	case <-t.ctx.Done():
	}
}

// pause waits after an error of the network, and reports whether it comes from Shutdown.
func (t *Transport) pause() (ended bool) {
	select {
	case <-t.ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
	return t.ctx.Err() != nil
}

// parseAddress parses an address and port of one node.
func parseAddress(text string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address and port", text)
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}
