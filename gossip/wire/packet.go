package wire

import (
	"encoding/binary"
	"errors"
)

const (
	magic = 0xD1B7 // no text and no message of memberlist begins like this
	// version changes with the layout of any entry. The header is the same in all versions,
	// so that it can be said who speaks another one.
	version = 2

	headerSize = 2 + 1 + 1 + 8
)

// The reasons to refuse a packet, for [errors.Is].
var (
	// ErrMagic: it is not one of ours.
	ErrMagic = errors.New("not a packet of dupip")
	// ErrVersion: an agent of another version speaks another language.
	ErrVersion = errors.New("unknown version of packets")
	// ErrType: the version has no such type, or the packet is not of the type asked for.
	ErrType = errors.New("unknown type of packet")
	// ErrOversize: it is longer than MaxPacket.
	ErrOversize = errors.New("packet too long")
	// ErrMalformed: it breaks off, goes on too long, or says what cannot be.
	ErrMalformed = errors.New("malformed packet")
)

// Reason is one word for an error of this package, fit for a label.
func Reason(err error) string {
	switch {
	case errors.Is(err, ErrMagic):
		return "magic"
	case errors.Is(err, ErrVersion):
		return "version"
	case errors.Is(err, ErrType):
		return "type"
	case errors.Is(err, ErrOversize):
		return "oversize"
	default:
		return "malformed"
	}
}

// Packet is a packet of which only the header was looked at.
type Packet struct {
	Header
	entries []byte
}

// Decode reads the header. Of a packet of another version it returns [ErrVersion], and who
// has sent it. The packet refers to b: entries are to be taken out before b
// changes. The entries themselves are copies.
func Decode(b []byte) (Packet, error) {
	switch {
	case len(b) < 2 || binary.BigEndian.Uint16(b) != magic:
		return Packet{}, ErrMagic
	case len(b) > MaxPacket:
		return Packet{}, ErrOversize
	case len(b) < headerSize:
		return Packet{}, ErrMalformed
	case b[2] != version:
		return Packet{Header: Header{Sender: MemberID(binary.BigEndian.Uint64(b[4:]))}}, ErrVersion
	}
	p := Packet{
		Header:  Header{Type: Type(b[3]), Sender: MemberID(binary.BigEndian.Uint64(b[4:]))},
		entries: b[headerSize:],
	}
	switch {
	case p.Type == 0 || p.Type > TypePair:
		return Packet{}, ErrType
	case p.Sender == 0 || len(p.entries) == 0:
		return Packet{}, ErrMalformed
	}
	return p, nil
}

// AppendHeader begins a packet.
func AppendHeader(b []byte, h Header) []byte {
	b = binary.BigEndian.AppendUint16(b, magic)
	b = append(b, version, byte(h.Type))
	return appendMember(b, h.Sender)
}

// Entry is one entry of a packet: a Lease, Ack, Rival, Ask, Verified, Query, Answer or
// Pair.
type Entry interface {
	// Type is the type of packets that have such entries.
	Type() Type
	// Append writes the entry, at most MaxPacket less a header.
	Append(b []byte) []byte
}

// Encode makes a packet of one entry.
func Encode(sender MemberID, e Entry) []byte {
	return e.Append(AppendHeader(nil, Header{Type: e.Type(), Sender: sender}))
}

// all reads entries to the end of the packet.
func all[E any](p Packet, t Type, read func(*reader) E) ([]E, error) {
	if p.Type != t {
		return nil, ErrType
	}
	r := reader{rest: p.entries}
	var list []E
	for len(r.rest) > 0 {
		list = append(list, read(&r))
	}
	if r.bad {
		return nil, ErrMalformed
	}
	return list, nil
}
