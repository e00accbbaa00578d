package members

import (
	"bufio"
	"bytes"
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
// anything behind: 100 MiB for a dozen bytes. And some bytes make it panic. What members
// have sealed is opened and looked at in the same way: a key may be stolen.

const (
	// vetTimeout is how long a stream may take to begin, and sealedTimeout how long to end
	// if it is sealed.
	vetTimeout    = 5 * time.Second
	sealedTimeout = 10 * time.Second
	// maxState is the size in bytes of the largest list of members that is taken: 16384 of
	// them have 10 MiB at most.
	maxState = 10 << 20
	// maxStream bounds all that is read of a stream: a single text in it may claim to have
	// gigabytes.
	maxStream = maxState + 4096
	// maxHeader is more than the header of an exchange of state has.
	maxHeader = 128
	// nodeSize is about what memberlist takes for each member that a header announces.
	nodeSize = 128
	// minSealed is the size of a sealed message with one byte in it.
	minSealed = 1 + nonceSize + 16 + 1

	pingMessage  = 0
	ackMessage   = 2
	errorMessage = 13
	labelMessage = 244
)

var errStream = errors.New("not the beginning of a stream of a member")

// vet looks at the beginning of a stream, of which the connection that it returns begins
// there again. A sealed one it reads to the end.
func vet(s *stream, seals *seals) (net.Conn, error) {
	if err := s.SetReadDeadline(time.Now().Add(vetTimeout)); err != nil {
		return nil, err
	}
	b := newBegun(s, seals)
	b.patience = sealedTimeout
	if err := b.vet(pingMessage); err != nil {
		return nil, err
	}
	if err := s.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return b, nil
}

// dialled is a connection from here. What is answered on it is looked at in the same way.
type dialled struct {
	*begun
	vetted func() error // once, and it says the same ever after
}

func newDialled(s *stream, seals *seals) *dialled {
	b := newBegun(s, seals)
	return &dialled{b, sync.OnceValue(func() error {
		err := b.vet(ackMessage, errorMessage)
		if errors.Is(err, errStream) {
			s.refuse()
		}
		return err
	})}
}

// Read implements net.Conn.
func (d *dialled) Read(p []byte) (int, error) {
	if err := d.vetted(); err != nil {
		return 0, err
	}
	return d.begun.Read(p)
}

// begun is a connection of which some was read already.
type begun struct {
	*stream
	seals    *seals
	reader   io.Reader
	patience time.Duration // 0: somebody else sees to it
}

func newBegun(s *stream, seals *seals) *begun {
	return &begun{stream: s, seals: seals, reader: io.LimitReader(s, maxStream)}
}

// Read implements net.Conn.
func (b *begun) Read(p []byte) (int, error) { return b.reader.Read(p) }

// vet takes exchanges of state, messages of other types that are given, and either of
// them sealed.
func (b *begun) vet(others ...byte) error {
	reader := bufio.NewReaderSize(b.reader, 512)
	b.reader = reader
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
	if head[skip] != encryptedMessage {
		return b.vetPlain(reader, skip, others)
	}
	if head, err = reader.Peek(skip + 6); err != nil {
		return err
	}
	size, version := binary.BigEndian.Uint32(head[skip+1:]), head[skip+5]
	if size < minSealed || size > maxState || version != cipherVersion {
		return fmt.Errorf("%w: %d bytes encrypted with version %d", errStream, size, version)
	}
	if b.seals == nil {
		return nil // memberlist says so, too
	}
	return b.vetSealed(reader, skip, int(size), others)
}

// vetPlain looks at a message that begins after some bytes.
func (b *begun) vetPlain(reader *bufio.Reader, skip int, others []byte) error {
	head, err := reader.Peek(skip + 1)
	switch {
	case err != nil:
		return err
	case head[skip] == pushPullMessage:
		nodes, err := vetState(reader, skip+1)
		if err != nil {
			return err
		}
		return b.take(nodes * nodeSize)
	case slices.Contains(others, head[skip]):
		return nil
	}
	return fmt.Errorf("%w: type %d", errStream, head[skip])
}

// vetSealed reads all of a sealed message and looks at what is in it.
func (b *begun) vetSealed(reader *bufio.Reader, skip, size int, others []byte) error {
	if b.patience > 0 {
		if err := b.SetReadDeadline(time.Now().Add(b.patience)); err != nil {
			return err
		}
	}
	// Its memory grows with what comes, by less than that of a bytes.Buffer.
	message, err := io.ReadAll(io.LimitReader(reader, int64(skip+5+size)))
	if err != nil {
		return err
	}
	if len(message) < skip+5+size {
		return io.EOF
	}
	plain, err := b.seals.openStream(message[skip:])
	if err != nil {
		// Memberlist is to say who that was, and must not find a key that has just come.
		message = message[:skip+5+minSealed]
		binary.BigEndian.PutUint32(message[skip+1:], minSealed)
		clear(message[skip+6:])
		b.reader = bytes.NewReader(bytes.Clone(message))
		return nil
	}
	b.reader = bytes.NewReader(message)
	return b.vetPlain(bufio.NewReaderSize(bytes.NewReader(plain), 512), 0, others)
}

// vetState reads the header of an exchange of state as memberlist will, and says how many
// members it announces.
func vetState(reader *bufio.Reader, skip int) (nodes int, err error) {
	var header stateHeader
	// It may have come in pieces, and is less than what is waited for: more bytes are
	// waited for only while it is cut short.
	for size := skip + 1; ; size = max(size+1, skip+min(reader.Buffered()-skip, maxHeader)) {
		if size > skip+maxHeader {
			return 0, errStream
		}
		head, err := reader.Peek(size)
		if err != nil {
			return 0, err
		}
		if codec.NewDecoderBytes(head[skip:], new(codec.MsgpackHandle)).Decode(&header) == nil {
			break
		}
	}
	if header.Nodes < 0 || header.Nodes > 2*maxMembers || header.UserStateLen != 0 {
		return 0, fmt.Errorf("%w: %d members, %d bytes of state", errStream, header.Nodes, header.UserStateLen)
	}
	return header.Nodes, nil
}
