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
//	8 bytes  sequence number: each datagram of an incarnation to another one has a higher one, see proof.go
//	1 byte   kind
//	payload
const (
	bytePlain  = 0xd2
	byteSealed = 0xd3

	headerSize = 1 + 4 + 8
	innerSize  = 8 + 8 + 1

	// MaxDatagram is the size of the largest datagram in bytes: it passes through every network that carries IPv6.
	MaxDatagram = 1200
	// MaxPayload is the most bytes that a datagram carries.
	MaxPayload = MaxDatagram - headerSize - chacha20poly1305.NonceSizeX - innerSize - chacha20poly1305.Overhead
)

// kind is what a datagram or stream is for.
type kind byte

const (
	kindMemberlist kind = iota + 1
	kindOwn
	kindChallenge // a nonce
	kindAnswer    // the nonce, and a byte that is 1 if the member is about to leave; number 0 says nothing
)

func appendHeader(b []byte, first byte, label uint32, to wire.MemberID) []byte {
	b = binary.BigEndian.AppendUint32(append(b, first), label)
	return binary.BigEndian.AppendUint64(b, uint64(to))
}

// datagram returns a datagram with a payload and the next number.
func (t *Transport) datagram(to wire.MemberID, k kind, payload []byte) []byte {
	return t.seal(to, k, t.proofs.number(to), payload)
}

func (t *Transport) seal(to wire.MemberID, k kind, seq uint64, payload []byte) []byte {
	b := appendHeader(make([]byte, 0, MaxDatagram), t.first, t.label, to)
	header := b
	if t.keys != nil {
		b = b[:headerSize+chacha20poly1305.NonceSizeX]
		rand.Read(b[headerSize:])
	}
	inner := len(b)
	b = binary.BigEndian.AppendUint64(b, uint64(t.ID))
	b = binary.BigEndian.AppendUint64(b, seq)
	b = append(append(b, byte(k)), payload...)
	if t.keys == nil {
		return b
	}
	return t.keys.list()[0].aead.Seal(b[:inner], b[headerSize:inner], b[inner:], header)
}

// content is what a datagram carries.
type content struct {
	from    wire.MemberID
	seq     uint64
	kind    kind
	payload []byte // valid until the next one is opened
}

// open opens a datagram, or returns why it is refused.
func (t *Transport) open(b []byte) (d content, why drop) {
	switch {
	case len(b) > MaxDatagram:
		return d, dropOversize
	case len(b) < headerSize || b[0] != bytePlain && b[0] != byteSealed:
		return d, dropMalformed
	case binary.BigEndian.Uint32(b[1:]) != t.label:
		return d, dropLabel
	case (b[0] == byteSealed) != (t.keys != nil):
		return d, dropKey
	case wire.MemberID(binary.BigEndian.Uint64(b[5:])) != t.ID:
		return d, dropReceiver
	}
	inner := b[headerSize:]
	if t.keys != nil {
		if inner = t.keys.open(t.opened[:0], inner, b[:headerSize]); inner == nil {
			return d, dropKey
		}
	}
	if len(inner) < innerSize || kind(inner[16]) < kindMemberlist || kind(inner[16]) > kindAnswer {
		return d, dropMalformed
	}
	return content{wire.MemberID(binary.BigEndian.Uint64(inner)), binary.BigEndian.Uint64(inner[8:]), kind(inner[16]), inner[innerSize:]}, 0
}

// open appends to dst what follows the header; nil if no key opens it.
func (k *Keys) open(dst, b, header []byte) []byte {
	if len(b) < chacha20poly1305.NonceSizeX {
		return nil
	}
	nonce, sealed := b[:chacha20poly1305.NonceSizeX], b[chacha20poly1305.NonceSizeX:]
	for _, key := range k.list() {
		if plain, err := key.aead.Open(dst, nonce, sealed, header); err == nil {
			return plain
		}
	}
	return nil
}

// windowSize is how many datagrams late a datagram may come. Networks reorder by milliseconds.
const windowSize = 2048

// window accepts each sequence number of one sender once (RFC 4303, section 3.4.3). A datagram is for one incarnation
// of its receiver: what was sent before that started is refused in any case, and windows begin empty.
type window struct {
	top  uint64 // the highest number so far
	seen [windowSize / 64]uint64
}

// accept reports whether a number is new, and remembers it. What is older than the window is not new.
func (w *window) accept(seq uint64) bool {
	if seq > w.top {
		if seq-w.top >= windowSize {
			clear(w.seen[:])
		} else {
			for n := w.top; n != seq; {
				n++
				w.seen[n%windowSize/64] &^= 1 << (n % 64)
			}
		}
		w.top = seq
	} else if w.top-seq >= windowSize {
		return false
	}
	word, bit := &w.seen[seq%windowSize/64], uint64(1)<<(seq%64)
	isNew := *word&bit == 0
	*word |= bit
	return isNew
}
