package members

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// The beginning of a stream decides how much memory memberlist takes for it, before it
// knows whether there is anything behind, or who sends it: 100 MiB for a dozen bytes. So it
// is looked at first.

const (
	// vetTimeout is how long a stream may take to begin.
	vetTimeout = 5 * time.Second
	// maxState is the size in bytes of the largest list of members that is taken: 16384 of
	// them have 10 MiB at most.
	maxState = 10 << 20
	// maxHeader is more than the header of an exchange of state has.
	maxHeader = 128

	pingMessage  = 0
	labelMessage = 244
)

var errStream = errors.New("no member begins a stream so")

// vet looks at the beginning of a stream. The connection that it returns begins there
// again.
func vet(conn net.Conn) (net.Conn, error) {
	if err := conn.SetReadDeadline(time.Now().Add(vetTimeout)); err != nil {
		return nil, err
	}
	reader := bufio.NewReaderSize(conn, 512)
	if err := vetBeginning(reader); err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return &begun{conn, reader}, nil
}

func vetBeginning(reader *bufio.Reader) error {
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
	case pingMessage:
		return nil
	case encryptedMessage:
		if head, err = reader.Peek(skip + 5); err != nil {
			return err
		}
		if size := binary.BigEndian.Uint32(head[skip+1:]); size > maxState {
			return fmt.Errorf("%w: %d bytes", errStream, size)
		}
		return nil
	case pushPullMessage:
		return vetState(reader, skip+1)
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
