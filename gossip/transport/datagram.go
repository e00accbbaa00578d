package transport

import (
	"crypto/rand"
	"encoding/binary"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/dupip/dupip/gossip/wire"
)

// A datagram has, in this order:
//
//	1 byte   plain or sealed
//	4 bytes  hash of the label
//	8 bytes  the receiver's incarnation
//	24 bytes nonce, random; if sealed. What follows is sealed then, together with what is before
//	8 bytes  the sender's incarnation
//	8 bytes  sequence number: each datagram of an incarnation has a higher one
//	1 byte   kind
//	payload
const (
	bytePlain  = 0xd2
	byteSealed = 0xd3
	byteProbe  = 0xd4 // of paths
	byteAnswer = 0xd5 // of paths

	headerSize = 1 + 4 + 8
	innerSize  = 8 + 8 + 1

	// MaxDatagram is the size of the largest datagram in bytes: it passes through every network that
	// carries IPv6.
	MaxDatagram = 1200
	// MaxPayload is the most bytes that a datagram carries.
	MaxPayload = MaxDatagram - headerSize - chacha20poly1305.NonceSizeX - innerSize - chacha20poly1305.Overhead
)

// firstOfVersion1 begins datagrams and streams of memberlist that have a label, as all of dupip 0.1 do.
const firstOfVersion1 = 244

// kind is what a datagram or stream is for.
type kind byte

const (
	kindMemberlist kind = iota + 1
	kindOwn
)

// datagram is an opened one.
type datagram struct {
	from    wire.MemberID
	kind    kind
	payload []byte
}

func appendHeader(b []byte, first byte, label uint32, to wire.MemberID) []byte {
	b = binary.BigEndian.AppendUint32(append(b, first), label)
	return binary.BigEndian.AppendUint64(b, uint64(to))
}

// appendDatagram appends a datagram with that payload.
func (t *Transport) appendDatagram(b []byte, to wire.MemberID, k kind, payload []byte) []byte {
	inner := func(b []byte) []byte {
		b = binary.BigEndian.AppendUint64(b, uint64(t.ID))
		b = binary.BigEndian.AppendUint64(b, t.seq.Add(1))
		return append(append(b, byte(k)), payload...)
	}
	if t.keys == nil {
		return inner(appendHeader(b, bytePlain, t.label, to))
	}
	b = appendHeader(b, byteSealed, t.label, to)
	header := b
	var nonce [chacha20poly1305.NonceSizeX]byte
	rand.Read(nonce[:])
	b = append(b, nonce[:]...)
	var plain [innerSize + MaxPayload]byte
	return t.keys.list()[0].aead.Seal(b, nonce[:], inner(plain[:0]), header)
}

// open opens a datagram in place, or returns why it is refused.
func (t *Transport) open(b []byte) (d datagram, why Drop) {
	switch {
	case len(b) > MaxDatagram:
		return d, DropOversize
	case len(b) > 0 && b[0] == firstOfVersion1:
		return d, DropVersion
	case len(b) < headerSize || b[0] != bytePlain && b[0] != byteSealed:
		return d, DropMalformed
	case binary.BigEndian.Uint32(b[1:]) != t.label:
		return d, DropLabel
	case wire.MemberID(binary.BigEndian.Uint64(b[5:])) != t.ID:
		return d, DropReceiver
	case (b[0] == byteSealed) != (t.keys != nil):
		return d, DropKey
	}
	inner := b[headerSize:]
	if t.keys != nil {
		if inner = t.keys.open(inner, b[:headerSize]); inner == nil {
			return d, DropKey
		}
	}
	if len(inner) < innerSize {
		return d, DropMalformed
	}
	d.from = wire.MemberID(binary.BigEndian.Uint64(inner))
	d.kind, d.payload = kind(inner[16]), inner[innerSize:]
	switch {
	case d.kind != kindMemberlist && d.kind != kindOwn:
		return d, DropMalformed
	// Without a key anybody could exhaust the window of anybody.
	case t.keys != nil && !t.windows.accept(d.from, binary.BigEndian.Uint64(inner[8:])):
		return d, DropReplay
	}
	return d, 0
}

// open opens what follows the header, in place; nil if no key does.
func (k *Keys) open(b, header []byte) []byte {
	if len(b) < chacha20poly1305.NonceSizeX {
		return nil
	}
	nonce, sealed := b[:chacha20poly1305.NonceSizeX], b[chacha20poly1305.NonceSizeX:]
	for _, key := range k.list() {
		// A failed attempt clears what it was to write.
		if plain, err := key.aead.Open(nil, nonce, sealed, header); err == nil {
			return plain
		}
	}
	return nil
}
