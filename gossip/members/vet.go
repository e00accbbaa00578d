package members

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// What comes from the network is looked at before memberlist gets it. The beginning of a
// stream decides how much memory memberlist takes for it, before it knows whether there is
// anything behind, or who sends it: 100 MiB for a dozen bytes. And some bytes make it panic.

const (
	// vetTimeout is how long a stream may take to begin.
	vetTimeout = 5 * time.Second
	// maxState is the size in bytes of the largest list of members that is taken: 16384 of
	// them have 10 MiB at most.
	maxState = 10 << 20
	// maxStream bounds all that is read of a stream: a single text in it may claim to have
	// gigabytes.
	maxStream = maxState + 4096
	// maxHeader is more than the header of an exchange of state has.
	maxHeader = 128
	// minSealed is the size of a sealed message with one byte in it.
	minSealed = 1 + nonceSize + 16 + 1

	pingMessage  = 0
	ackMessage   = 2
	errorMessage = 13
	labelMessage = 244

	// noCipher is no version of any sealed message.
	noCipher = 255
)

var errStream = errors.New("no member begins a stream so")

// vet looks at the beginning of a stream. The connection that it returns begins there
// again.
func vet(conn net.Conn) (net.Conn, error) {
	if err := conn.SetReadDeadline(time.Now().Add(vetTimeout)); err != nil {
		return nil, err
	}
	reader := bufio.NewReaderSize(io.LimitReader(conn, maxStream), 512)
	if err := vetBeginning(reader, pingMessage); err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return &begun{conn, reader}, nil
}

// vetBeginning takes exchanges of state, sealed messages, and messages of other types that
// are given.
func vetBeginning(reader *bufio.Reader, others ...byte) error {
	skip := 0
	head, err := reader.Peek(1)
	if err != nil {
		return err
	}
	if head[0] == labelMessage {
		if head, err = reader.Peek(2); err != nil {
			return err
		}
		skip = 2 + int(head[1])
	}
	if head, err = reader.Peek(skip + 1); err != nil {
		return err
	}
	switch head[skip] {
	case encryptedMessage:
		if head, err = reader.Peek(skip + 6); err != nil {
			return err
		}
		size, version := binary.BigEndian.Uint32(head[skip+1:]), head[skip+5]
		if size < minSealed || size > maxState || version != cipherVersion {
			return fmt.Errorf("%w: %d bytes sealed in way %d", errStream, size, version)
		}
		return nil
	case pushPullMessage:
		return vetState(reader, skip+1)
	}
	if slices.Contains(others, head[skip]) {
		return nil
	}
	return fmt.Errorf("%w: type %d", errStream, head[skip])
}

// vetState reads the header of an exchange of state as memberlist will.
func vetState(reader *bufio.Reader, skip int) error {
	var header stateHeader
	// It may have come in pieces, and is less than what is waited for: more bytes are
	// waited for only while it is cut short.
	for size := skip + 1; ; size = max(size+1, skip+min(reader.Buffered()-skip, maxHeader)) {
		if size > skip+maxHeader {
			return errStream
		}
		head, err := reader.Peek(size)
		if err != nil {
			return err
		}
		if codec.NewDecoderBytes(head[skip:], new(codec.MsgpackHandle)).Decode(&header) == nil {
			break
		}
	}
	if header.Nodes < 0 || header.Nodes > 2*maxMembers || header.UserStateLen != 0 {
		return fmt.Errorf("%w: %d members, %d bytes of state", errStream, header.Nodes, header.UserStateLen)
	}
	return nil
}

// begun is a connection of which some was read already.
type begun struct {
	net.Conn
	reader *bufio.Reader
}

// Read implements net.Conn.
func (b *begun) Read(p []byte) (int, error) { return b.reader.Read(p) }

// dialled is a connection from here. What is answered on it is looked at in the same way.
type dialled struct {
	net.Conn
	reader *bufio.Reader
	vet    func() error // once, and it says the same ever after
}

func newDialled(conn net.Conn) *dialled {
	d := &dialled{Conn: conn, reader: bufio.NewReaderSize(io.LimitReader(conn, maxStream), 512)}
	d.vet = sync.OnceValue(func() error { return vetBeginning(d.reader, ackMessage, errorMessage) })
	return d
}

// Read implements net.Conn.
func (d *dialled) Read(p []byte) (int, error) {
	if err := d.vet(); err != nil {
		return 0, err
	}
	return d.reader.Read(p)
}

// vetDatagram looks at a datagram of an agent that has keys. The seal does not cover the
// byte that says how it was made, and memberlist ends with a panic where a member's own
// datagram comes back with the byte of the old way: it takes the last byte for a number of
// bytes to cut off. Such a one becomes unreadable, which memberlist counts and says.
func vetDatagram(b []byte) {
	if len(b) > 1 && b[0] == labelMessage {
		b = b[min(len(b), 2+int(b[1])):]
	}
	if len(b) > 0 && b[0] != cipherVersion {
		b[0] = noCipher
	}
}
