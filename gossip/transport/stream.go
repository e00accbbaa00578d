package transport

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

// A stream begins with a header as that of a datagram and a byte with its kind. The acceptor answers with
// one byte, a status. With a key a TLS handshake follows, and another status in it. Those that are not memberlist's have a
// request then, its size in two bytes before it, and the reply, which ends with the stream; its encoding shows a cut.
const (
	streamHeader = headerSize + 1

	// connectTimeout is how long a member may take to accept a request, readTimeout how long its reply may
	// take once it has begun.
	connectTimeout = 2 * time.Second
	readTimeout    = 2 * time.Second
	// MaxReply is the size of the largest reply in bytes.
	MaxReply = 1 << 20
)

// refused is why a stream is refused. The text is for users, after the address.
type refused struct {
	why  drop
	text string
}

func (r *refused) Error() string { return r.text }

var (
	errNoAgent  error = &refused{dropStream, "it does not answer like an agent"}
	errCluster  error = &refused{dropLabel, "it belongs to a cluster with another name: check --cluster"}
	errReceiver error = &refused{dropReceiver, "another agent runs there now"}
	errSealed   error = &refused{dropKey, "it has a --gossip-key-file and this node has none"}
	errPlain    error = &refused{dropKey, "this node has a --gossip-key-file and it has none"}
	errBusy     error = &refused{dropStream, "it has too many connections"}
	errOtherKey error = &refused{dropKey, "it has other keys in its --gossip-key-file"}
	errClosed   error = &refused{dropStream, "it closed the connection: is it an agent of this version?"}
)

// statuses are what the acceptor of a stream answers, by number. The first is never sent.
var statuses = []error{errNoAgent, nil, errCluster, errReceiver, errSealed, errPlain, errBusy}

// reason is what counts a stream that failed.
func reason(err error) drop {
	if refused, ok := errors.AsType[*refused](err); ok {
		return refused.why
	}
	return dropStream
}

// keyError returns a plain error for a handshake that the other side has ended because of the keys.
func keyError(err error) error {
	const badCertificate = tls.AlertError(42) // RFC 8446, section 6
	if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "remote error" && failed.Err.Error() == badCertificate.Error() {
		return errOtherKey
	}
	return err
}

// dial opens a stream to an address; to is the incarnation that must be there, 0 for any.
func (t *Transport) dial(ctx context.Context, at netip.AddrPort, k kind, to wire.MemberID) (net.Conn, error) {
	if err := t.Reachable(at); err != nil {
		return nil, err
	}
	conn, err := t.Sockets.Dial(ctx, at)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	stream, err := t.introduce(ctx, conn, append(appendHeader(nil, t.first, t.label, to), byte(k)))
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		t.addFrom(reason(err), at.Addr())
		return nil, err
	}
	return stream, nil
}

// introduce does the dialler's side of the beginning of a stream.
func (t *Transport) introduce(ctx context.Context, conn net.Conn, header []byte) (net.Conn, error) {
	if _, err := conn.Write(header); err != nil {
		return nil, err
	}
	if err := readStatus(conn); err != nil || t.keys == nil {
		return conn, err
	}
	sealed := tls.Client(conn, t.keys.tls(header))
	err := sealed.HandshakeContext(ctx)
	if err == nil {
		err = readStatus(sealed)
	}
	return sealed, keyError(err)
}

// readStatus reads a status and returns it as an error.
func readStatus(conn net.Conn) error {
	var status [1]byte
	if _, err := io.ReadFull(conn, status[:]); errors.Is(err, io.EOF) {
		return errClosed
	} else if err != nil {
		return err
	}
	if int(status[0]) >= len(statuses) {
		return errNoAgent
	}
	return statuses[status[0]]
}

// writeStatus writes an error as a status, and returns it.
func writeStatus(conn net.Conn, err error) error {
	if status := slices.Index(statuses, err); status > 0 {
		if _, failed := conn.Write([]byte{byte(status)}); failed != nil {
			return failed
		}
	}
	return err
}

// Request sends a request of at most 65,535 bytes to a member and calls use with the reply, of at most [MaxReply]. It
// ends with ctx or the transport; a member has 2 seconds to accept it, and 2 seconds for a reply that has begun. While
// it reads, and until use returns, it has a value in a channel, whose capacity bounds how many replies are in memory.
func (t *Transport) Request(
	ctx context.Context, to wire.MemberID, at netip.AddrPort, request []byte, reading chan struct{}, use func(reply []byte) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	connecting, stop := context.WithTimeout(ctx, connectTimeout)
	conn, err := t.dial(connecting, at, kindOwn, to)
	stop()
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(request))), request...)); err != nil {
		return err
	}
	reply := bufio.NewReader(conn)
	if _, err := reply.Peek(1); err != nil {
		return err
	}
	select {
	case reading <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-reading }()
	conn.SetDeadline(time.Now().Add(readTimeout)) //nolint:errcheck // then it is closed
	b, err := io.ReadAll(io.LimitReader(reply, MaxReply+1))
	if len(b) > MaxReply {
		return errors.New("its reply is too long")
	}
	if err := cmp.Or(err, t.ctx.Err()); err != nil {
		return err
	}
	return use(b)
}
