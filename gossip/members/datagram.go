package members

import (
	"encoding/binary"

	"github.com/hashicorp/memberlist"
)

const (
	compoundMessage   = 7
	userMessage       = 8
	compressedMessage = 9
	checksumMessage   = 12

	// noCipher is no version of any sealed message.
	noCipher = 255
)

// seals open what members have sealed.
type seals struct {
	ring  *memberlist.Keyring
	label string
}

// openStream opens a sealed message of a stream, from its type on.
func (s *seals) openStream(message []byte) ([]byte, error) {
	return openWith(s.ring.GetKeys(), message[5:], additional(message[:5], s.label))
}

// openDatagram opens a sealed datagram, from its version on.
func (s *seals) openDatagram(message []byte) ([]byte, error) {
	return openWith(s.ring.GetKeys(), message, []byte(s.label))
}

// vetDatagram looks at a datagram and says whether memberlist may have it.
//
// The seal does not cover the byte that says how it was made, and memberlist ends with a
// panic where a member's own datagram comes back with the byte of the old way: it takes the
// last byte for a number of bytes to cut off. Such a one becomes unreadable, which
// memberlist counts and says, as does one that no key opens.
func vetDatagram(b []byte, seals *seals) bool {
	if len(b) > 1 && b[0] == labelMessage {
		b = b[min(len(b), 2+int(b[1])):]
	}
	switch {
	case len(b) == 0:
		return true
	case seals == nil:
		return plainParts(b)
	case b[0] == cipherVersion:
		if plain, err := seals.openDatagram(b); err == nil {
			return plainParts(plain)
		}
	}
	b[0] = noCipher
	return true
}

// plainParts says whether a message is what it seems to be. No agent compresses, or puts
// several messages into one within one; memberlist would unpack either, again and again,
// each time to 40 MiB if it wants to be as much.
func plainParts(b []byte) bool {
	if len(b) >= 5 && b[0] == checksumMessage {
		b = b[5:]
	}
	switch {
	case len(b) == 0:
		return true
	case b[0] == compressedMessage:
		return false
	case b[0] != compoundMessage || len(b) < 2:
		return true
	}
	sizes, rest := b[2:], b[2:]
	count := int(b[1])
	if len(rest) < 2*count {
		return true // memberlist refuses it
	}
	rest = rest[2*count:]
	for range count {
		size := int(binary.BigEndian.Uint16(sizes))
		if len(rest) < size {
			return true // as memberlist, which takes what came before
		}
		if size > 0 && (rest[0] == compressedMessage || rest[0] == compoundMessage) {
			return false
		}
		sizes, rest = sizes[2:], rest[size:]
	}
	return true
}
