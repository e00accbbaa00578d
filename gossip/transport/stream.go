package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

// A stream begins with a header as that of a datagram and a byte with its kind. The other side answers
// with one byte, a status. With a key a TLS handshake follows.
const (
	streamHeader = headerSize + 1

	// greetTimeout is how long a stream may take until both sides know each other, serveTimeout how
	// long a request may take then. Memberlist has timeouts of its own.
	greetTimeout = 5 * time.Second
	serveTimeout = 10 * time.Second
	// MaxRequest and MaxReply are the sizes in bytes of the largest request and reply.
	MaxRequest = 4 << 10
	MaxReply   = 1 << 20
)

// status is what the acceptor of a stream says about it.
type status byte

const (
	statusOK status = iota + 1
	statusLabel
	statusReceiver
	statusSealed
	statusPlain
	statusBusy
)

// statusErrors are for users, after the address.
var statusErrors = map[status]error{
	statusLabel:    errors.New("it belongs to a cluster with another name: check --cluster"),
	statusReceiver: errors.New("another agent runs there now"),
	statusSealed:   errors.New("it has a --gossip-key-file and this node has none"),
	statusPlain:    errors.New("this node has a --gossip-key-file and it has none"),
	statusBusy:     errors.New("it has too many connections"),
}

var (
	errOtherKey = errors.New("it has other keys in its --gossip-key-file")
	errHungUp   = errors.New("it closed the connection: is it an agent of this version?")
	errUnknown  = errors.New("it does not answer like an agent")
)

// dial opens a stream to an address; to is the incarnation that must be there, 0 for any.
func (t *Transport) dial(ctx context.Context, at netip.AddrPort, k kind, to wire.MemberID) (net.Conn, error) {
	if err := t.reachable(at); err != nil {
		return nil, err
	}
	conn, err := t.Sockets.Dial(ctx, at)
	if err != nil {
		return nil, err
	}
	if t.paths != nil {
		t.paths.prove(at)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	sealed, err := t.introduce(ctx, conn, k, to)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return sealed, nil
}

// introduce does the dialler's side of the beginning of a stream.
func (t *Transport) introduce(ctx context.Context, conn net.Conn, k kind, to wire.MemberID) (net.Conn, error) {
	first := byte(bytePlain)
	if t.keys != nil {
		first = byteSealed
	}
	if _, err := conn.Write(append(appendHeader(nil, first, t.label, to), byte(k))); err != nil {
		return nil, err
	}
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); errors.Is(err, io.EOF) {
		return nil, errHungUp
	} else if err != nil {
		return nil, err
	}
	if err := statusErrors[status(answer[0])]; err != nil {
		return nil, err
	}
	if status(answer[0]) != statusOK {
		return nil, errUnknown
	}
	if t.keys == nil {
		return conn, nil
	}
	sealed := tls.Client(conn, t.keys.clientTLS())
	if err := sealed.HandshakeContext(ctx); err != nil {
		return nil, keyError(err)
	}
	return sealed, nil
}

// keyError returns a plain error for a handshake that failed because of the keys.
func keyError(err error) error {
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return errOtherKey
	}
	return err
}

// connectTimeout is how long a member may take to accept a request.
const connectTimeout = 2 * time.Second

// Request sends a request to a member and returns the reply. While it reads, it has a value in a channel, so that
// its capacity bounds how many replies are read at the same time.
func (t *Transport) Request(ctx context.Context, to wire.MemberID, at netip.AddrPort, request []byte, reading chan struct{}) ([]byte, error) {
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	conn, err := t.dial(connecting, at, kindOwn, to)
	cancel()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if err := writeFrame(conn, request); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, keyError(err)
	}
	select {
	case reading <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-reading }()
	return readFrame(io.MultiReader(bytes.NewReader(size[:]), conn), MaxReply)
}

func writeFrame(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b))), b...))
	return err
}

// readFrame reads a frame; memory grows with what comes, not with what is announced.
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(size[:]))
	if n > int64(limit) {
		return nil, fmt.Errorf("a message of %d bytes; %d are allowed", n, limit)
	}
	b, err := io.ReadAll(io.LimitReader(r, n))
	if err == nil && int64(len(b)) < n {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// accept takes connections until Shutdown.
func (t *Transport) accept() {
	var wait pause
	for {
		conn, err := t.Sockets.Accept()
		if err != nil {
			if wait.fails(t.ctx) {
				return
			}
			continue
		}
		wait = 0
		c := t.conns.add(conn, &t.drops)
		t.wg.Go(func() {
			if !t.greet(c) {
				c.Close()
			}
		})
	}
}

// greet does the acceptor's side of the beginning of a stream, and hands it over. It reports whether it
// did; otherwise the stream is to be closed.
func (t *Transport) greet(c *inbound) bool {
	if c.SetDeadline(time.Now().Add(greetTimeout)) != nil {
		return false
	}
	var header [streamHeader]byte
	if n, err := io.ReadFull(c, header[:]); err != nil {
		if n > 0 {
			t.refuseStream(c, header[0])
		}
		return false
	}
	status, why := t.judge(header[:])
	if status == 0 {
		t.refuseStream(c, header[0])
		return false
	}
	if why != 0 {
		t.drops.from(why, c.from, time.Now())
	}
	if _, err := c.Write([]byte{byte(status)}); err != nil || status != statusOK {
		return false
	}
	var conn net.Conn = c
	if t.keys != nil {
		sealed := tls.Server(c, t.keys.serverTLS())
		if err := sealed.HandshakeContext(t.ctx); err != nil {
			if errors.Is(keyError(err), errOtherKey) || errors.Is(err, errOtherKey) {
				t.drops.from(DropKey, c.from, time.Now())
			} else {
				t.drops.add(DropStream)
			}
			return false
		}
		conn = sealed
		if !t.conns.trust(c) {
			t.drops.add(DropStream)
			return false
		}
	}
	if c.SetDeadline(time.Time{}) != nil {
		return false
	}
	if kind(header[headerSize]) == kindOwn {
		t.serve(conn)
		return false
	}
	select {
	case t.streams <- conn:
		return true
	case <-t.ctx.Done():
		return false
	}
}

// judge decides about a stream by its header. Without a status it is not of an agent.
func (t *Transport) judge(header []byte) (status, Drop) {
	sealed := header[0] == byteSealed
	to := wire.MemberID(binary.BigEndian.Uint64(header[5:]))
	switch k := kind(header[headerSize]); {
	case !sealed && header[0] != bytePlain, k != kindMemberlist && k != kindOwn:
		return 0, DropStream
	case binary.BigEndian.Uint32(header[1:]) != t.label:
		return statusLabel, DropLabel
	case to != 0 && to != t.ID:
		return statusReceiver, 0
	case sealed && t.keys == nil:
		return statusPlain, DropKey
	case !sealed && t.keys != nil:
		return statusSealed, DropKey
	}
	return statusOK, 0
}

func (t *Transport) refuseStream(c *inbound, first byte) {
	if first == firstOfVersion1 {
		t.drops.from(DropVersion, c.from, time.Now())
	} else {
		t.drops.add(DropStream)
	}
}

// serve answers one request.
func (t *Transport) serve(conn net.Conn) {
	ctx, cancel := context.WithTimeout(t.ctx, serveTimeout)
	defer cancel()
	if conn.SetDeadline(time.Now().Add(serveTimeout)) != nil {
		return
	}
	request, err := readFrame(conn, MaxRequest)
	if err != nil {
		t.drops.add(DropStream)
		return
	}
	if reply := t.Handler.Serve(ctx, request); reply != nil {
		if err := writeFrame(conn, reply); err != nil {
			t.drops.add(DropUnsent)
		}
	}
}

const (
	// maxStrangers is how many connections may be open here that have not proven to have a key, and
	// maxStrangersFrom how many of one address. maxTrusted may be open that have.
	maxStrangers     = 64
	maxStrangersFrom = 16
	maxTrusted       = 128
)

// inbound is a connection that was accepted.
type inbound struct {
	net.Conn
	conns   *conns
	from    netip.Addr
	since   time.Time
	trusted bool
}

// Close implements net.Conn.
func (c *inbound) Close() error {
	c.conns.mu.Lock()
	delete(c.conns.all, c)
	c.conns.mu.Unlock()
	return c.Conn.Close()
}

// conns are the connections that were accepted and are open. It is safe for concurrent use.
type conns struct {
	mu  sync.Mutex
	all map[*inbound]bool
}

// add adds a connection. If there are too many, the oldest of the address that has the most is closed:
// who opens many keeps out only those of the same address.
func (c *conns) add(conn net.Conn, drops *Drops) *inbound {
	in := &inbound{Conn: conn, conns: c, since: time.Now()}
	if at, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		in.from = at.Addr().Unmap()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[in] = true
	strangers, from := 0, make(map[netip.Addr]int)
	for other := range c.all {
		if !other.trusted {
			strangers++
			from[other.from]++
		}
	}
	most := in.from
	if from[in.from] <= maxStrangersFrom {
		if strangers <= maxStrangers {
			return in
		}
		for addr, n := range from {
			if n > from[most] {
				most = addr
			}
		}
	}
	var oldest *inbound
	for other := range c.all {
		if !other.trusted && other.from == most && (oldest == nil || other.since.Before(oldest.since)) {
			oldest = other
		}
	}
	delete(c.all, oldest)
	oldest.Conn.Close()
	drops.add(DropStream)
	return in
}

// trust notes that the other side has a key, and reports whether there is room for it.
func (c *conns) trust(in *inbound) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	trusted := 0
	for other := range c.all {
		if other.trusted {
			trusted++
		}
	}
	in.trusted = trusted < maxTrusted
	return in.trusted
}

// close closes all.
func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for in := range c.all {
		in.Conn.Close()
	}
}
