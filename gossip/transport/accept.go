package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

const (
	// greetTimeout is how long a stream may take until both sides know each other, serveTimeout how
	// long a request may take then. Memberlist has timeouts of its own.
	greetTimeout = 5 * time.Second
	serveTimeout = 10 * time.Second
	// maxUnauthenticated connections may be open here that have not proven to have a key, and
	// maxAuthenticated that have.
	maxUnauthenticated = 64
	maxAuthenticated   = 128
)

// accept takes connections until Shutdown.
func (t *Transport) accept() {
	for {
		conn, err := t.Sockets.Accept()
		if err != nil {
			if t.pause() {
				return
			}
			continue
		}
		c := t.conns.add(conn, &t.drops)
		t.wg.Go(func() { t.greet(c) })
	}
}

// greet serves a connection, or hands it over to memberlist, which closes it then.
func (t *Transport) greet(c *inbound) {
	conn, k, err := t.welcome(c)
	if err == nil && k == kindMemberlist {
		select {
		case t.streams <- t.screen(conn, true):
			return
		case <-t.ctx.Done():
		}
	} else if err == nil {
		err = t.serve(conn)
	}
	if err != nil && !errors.Is(err, net.ErrClosed) { // whoever closes it here counts it
		t.addFrom(reason(err), c.from)
	}
	c.Close()
}

// welcome does the acceptor's side of the beginning of a stream.
func (t *Transport) welcome(c *inbound) (net.Conn, kind, error) {
	if err := c.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return nil, 0, err
	}
	header := make([]byte, streamHeader)
	_, err := io.ReadFull(c, header)
	switch {
	case errors.Is(err, io.EOF):
		return nil, 0, net.ErrClosed // somebody checks whether the port is open
	case err != nil:
		return nil, 0, err
	}
	k := kind(header[headerSize])
	if err := writeStatus(c, t.judge(header, k)); err != nil || t.keys == nil {
		return c, k, errors.Join(err, c.SetDeadline(time.Time{}))
	}
	sealed := tls.Server(c, t.keys.tls(header))
	if err := sealed.HandshakeContext(t.ctx); err != nil {
		return nil, 0, keyError(err)
	}
	err = writeStatus(sealed, t.conns.authenticate(c))
	return sealed, k, errors.Join(err, c.SetDeadline(time.Time{}))
}

// judge returns why a stream with a header is refused.
func (t *Transport) judge(header []byte, k kind) error {
	to := wire.MemberID(binary.BigEndian.Uint64(header[5:]))
	switch {
	case header[0] != bytePlain && header[0] != byteSealed, k != kindMemberlist && k != kindOwn:
		return errNoAgent
	case binary.BigEndian.Uint32(header[1:]) != t.label:
		return errCluster
	case header[0] == byteSealed && t.keys == nil:
		return errPlain
	case header[0] == bytePlain && t.keys != nil:
		return errSealed
	case to != 0 && to != t.ID:
		return errReceiver
	}
	return nil
}

// serve answers one request.
func (t *Transport) serve(conn net.Conn) error {
	ctx, cancel := context.WithTimeout(t.ctx, serveTimeout)
	defer cancel()
	if err := conn.SetDeadline(time.Now().Add(serveTimeout)); err != nil {
		return err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); errors.Is(err, io.EOF) {
		return net.ErrClosed // a challenge
	} else if err != nil {
		return err
	}
	request := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, request); err != nil {
		return err
	}
	reply := t.Handler.Serve(ctx, request)
	if reply == nil {
		return nil
	}
	if _, err := conn.Write(reply); err != nil {
		return err
	}
	return conn.Close() // ends the reply
}

// inbound is a connection that was accepted.
type inbound struct {
	net.Conn
	conns         *conns
	from          netip.Addr
	since         time.Time
	authenticated bool
}

// Close implements net.Conn.
func (c *inbound) Close() error {
	c.conns.mu.Lock()
	delete(c.conns.open, c)
	c.conns.mu.Unlock()
	return c.Conn.Close()
}

// conns are the connections that were accepted and are open. It is safe for concurrent use.
type conns struct {
	mu     sync.Mutex
	open   map[*inbound]bool
	closed bool
}

// add adds a connection. If there are too many, the oldest of the address that has the most is closed:
// who opens many closes their own.
func (c *conns) add(conn net.Conn, drops *drops) *inbound {
	in := &inbound{Conn: conn, conns: c, since: time.Now()}
	if at, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		in.from = at.Addr().Unmap()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.Close()
		return in
	}
	c.open[in] = true
	var all []*inbound
	of := make(map[netip.Addr]int)
	for other := range c.open {
		if !other.authenticated {
			all = append(all, other)
			of[other.from]++
		}
	}
	if len(all) <= maxUnauthenticated {
		return in
	}
	last := slices.MinFunc(all, func(a, b *inbound) int { return cmp.Or(of[b.from]-of[a.from], a.since.Compare(b.since)) })
	delete(c.open, last)
	last.Conn.Close()
	drops.add(dropStream)
	return in
}

// authenticate notes that the other side has a key, if there is room for it.
func (c *conns) authenticate(in *inbound) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := 0
	for other := range c.open {
		if other.authenticated {
			count++
		}
	}
	if count >= maxAuthenticated {
		return errBusy
	}
	in.authenticated = true
	return nil
}

// close closes all, and those that are added from now on.
func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for in := range c.open {
		in.Conn.Close()
	}
}
