package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

// Memberlist allocates what a message announces, and unpacks messages that agents never pack. So it gets only what agents send: the
// types below, each a MessagePack map of names to numbers, truths and short texts. Fields that a later memberlist adds pass.
const (
	// maxListed is how many members a list may have: as many as there may be, and as many that have died lately.
	maxListed = 2 * 16384
	// maxList is the size of a list in bytes. One of 5,000 members has 1.2 MiB.
	maxList = 8 << 20
	// maxEntry is the size of a member in a list, and of any other map: a name of 270 bytes and metadata of 512 fit.
	maxEntry = MaxDatagram
	// maxLists are received at a time; others wait for listTimeout.
	maxLists    = 8
	listTimeout = 5 * time.Second
)

// Types of memberlist's messages (its net.go).
const (
	msgPing         = 0
	msgIndirectPing = 1
	msgAck          = 2
	msgSuspect      = 3
	msgAlive        = 4
	msgDead         = 5
	msgPushPull     = 6
	msgCompound     = 7
	msgNack         = 11
	msgCRC          = 12
	msgError        = 13
)

var (
	news    = []byte{msgSuspect, msgAlive, msgDead}
	packets = append([]byte{msgPing, msgIndirectPing, msgAck, msgNack}, news...)
	streams = []byte{msgPing, msgAck, msgPushPull, msgError}
)

var (
	errScreen error = &refused{dropMemberlist, "it sends what no agent sends"}
	errLists  error = &refused{dropStream, "too many lists of members arrive"}
)

// screenPacket returns an error for a datagram that no agent sends. In a compound message, news follow one other message.
func screenPacket(b []byte) error {
	if len(b) > 5 && b[0] == msgCRC { // memberlist compares it
		b = b[5:]
	}
	if len(b) < 2 || b[0] != msgCompound {
		return screenMessage(b, packets)
	}
	sizes, parts := b[2:], 2*int(b[1])
	if len(sizes) < parts {
		return errScreen
	}
	sizes, b = sizes[:parts], sizes[parts:]
	for types := packets; len(sizes) > 0; types, sizes = news, sizes[2:] {
		size := int(binary.BigEndian.Uint16(sizes))
		if len(b) < size {
			return errScreen
		}
		if err := screenMessage(b[:size], types); err != nil {
			return err
		}
		b = b[size:]
	}
	if len(b) > 0 {
		return errScreen
	}
	return nil
}

// screenMessage returns an error if b is not one message of these types.
func screenMessage(b []byte, types []byte) error {
	if len(b) == 0 || !slices.Contains(types, b[0]) {
		return errScreen
	}
	rest := bytes.NewReader(b[1:])
	if err := (&msgpack{in: rest}).readMap(anything); err != nil || rest.Len() > 0 {
		return errScreen
	}
	return nil
}

// msgpack reads MessagePack.
type msgpack struct {
	in   io.Reader
	b    []byte // what was read
	text []byte // the last text of it
}

// take reads so many bytes.
func (m *msgpack) take(size int) ([]byte, error) {
	at := len(m.b)
	if at+size > maxEntry {
		return nil, errScreen
	}
	m.b = slices.Grow(m.b, size)[:at+size]
	_, err := io.ReadFull(m.in, m.b[at:])
	return m.b[at:], err
}

// readMap reads a map. Permit is asked for the value of each field, 0 for what is no number.
func (m *msgpack) readMap(permit func(name string, value uint64) bool) error {
	b, err := m.take(1)
	if err != nil {
		return err
	}
	if b[0]&0xf0 != 0x80 {
		return errScreen
	}
	for range b[0] & 0xf {
		name, err := m.take(1)
		if err != nil {
			return err
		}
		if name[0]&0xe0 != 0xa0 {
			return errScreen
		}
		if name, err = m.take(int(name[0] & 0x1f)); err != nil {
			return err
		}
		value, err := m.readValue()
		if err != nil {
			return err
		}
		if !permit(string(name), value) {
			return errScreen
		}
	}
	return nil
}

// readValue reads a number or a truth and returns it, or a text or nothing.
func (m *msgpack) readValue() (uint64, error) {
	b, err := m.take(1)
	if err != nil {
		return 0, err
	}
	switch first := b[0]; {
	case first < 0x80:
		return uint64(first), nil
	case first == 0xc0, first == 0xc2:
		return 0, nil
	case first == 0xc3:
		return 1, nil
	case first&0xe0 == 0xa0:
		m.text, err = m.take(int(first & 0x1f))
		return 0, err
	case first >= 0xcc && first <= 0xd3: // of 1, 2, 4 and 8 bytes; a negative one is a large one here
		return m.readNumber(1<<(first&3), first >= 0xd0)
	case first == 0xc4, first == 0xc5: // bytes
		return 0, m.readText(1 << (first - 0xc4))
	case first == 0xd9, first == 0xda:
		return 0, m.readText(1 << (first - 0xd9))
	}
	return 0, errScreen
}

// readNumber reads a number of so many bytes.
func (m *msgpack) readNumber(size int, signed bool) (value uint64, err error) {
	b, err := m.take(size)
	for _, digit := range b {
		value = value<<8 | uint64(digit)
	}
	if signed && len(b) > 0 && b[0] >= 0x80 {
		return 0, errScreen
	}
	return value, err
}

// readText reads a text, and before it its length in so many bytes.
func (m *msgpack) readText(size int) error {
	length, err := m.readNumber(size, false)
	if err == nil {
		m.text, err = m.take(int(length))
	}
	return err
}

// screened is a stream from which memberlist reads only what agents send. One goroutine reads and closes it.
type screened struct {
	net.Conn
	t       *Transport
	inbound bool // others decide how many there are
	msgpack
	begun   bool
	joins   bool   // the other side joins
	ready   []byte // for memberlist, a part of what msgpack has
	entries uint64 // that follow
	bytes   int    // of the list so far
	listed  bool   // it is one of maxLists
}

func anything(string, uint64) bool { return true }

func (t *Transport) screen(conn net.Conn, inbound bool) *screened {
	return &screened{Conn: conn, t: t, inbound: inbound, msgpack: msgpack{in: bufio.NewReader(conn)}}
}

// Read implements net.Conn.
func (s *screened) Read(p []byte) (int, error) {
	if len(s.ready) == 0 {
		if err := s.next(); err != nil {
			if refused, ok := errors.AsType[*refused](err); ok {
				s.t.add(refused.why)
				s.Close()
			}
			return 0, err
		}
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

// next reads a message, or the next member of a list.
func (s *screened) next() error {
	s.b = s.b[:0]
	var err error
	switch {
	case !s.begun:
		s.begun = true
		err = s.begin()
	case s.entries > 0:
		s.entries--
		err = s.readMap(anything)
	default:
		return io.EOF
	}
	s.ready = s.b
	if s.bytes += len(s.b); s.bytes > maxList {
		return errScreen
	}
	return err
}

// begin reads a message, or the beginning of a list.
func (s *screened) begin() error {
	first, err := s.take(1)
	if err != nil {
		return err
	}
	if !slices.Contains(streams, first[0]) {
		return errScreen
	}
	if first[0] != msgPushPull {
		return s.readMap(anything)
	}
	if err := s.readMap(func(name string, value uint64) bool {
		switch {
		case name == "Nodes":
			s.entries = value
		case name == "Join" && value == 1 && s.inbound:
			s.joins = true
		case name == "Short" && value == 1 && !s.inbound:
			s.t.short.Store(true)
		}
		return (name != "Nodes" || value <= maxListed) && (name != "UserStateLen" || value == 0)
	}); err != nil || !s.inbound {
		return err
	}
	select {
	case s.t.lists <- struct{}{}:
		s.listed = true
		return nil
	case <-time.After(listTimeout):
		return errLists
	case <-s.t.ctx.Done():
		return s.t.ctx.Err()
	}
}

// Close implements net.Conn.
func (s *screened) Close() error {
	if s.listed {
		s.listed = false
		<-s.t.lists
	}
	return s.Conn.Close()
}
