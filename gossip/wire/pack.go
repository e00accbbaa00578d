package wire

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"sync"
)

// A packed packet begins with a byte that begins no packet, which is a map of CBOR. What follows is compressed (RFC 1951). Messages about many
// addresses of the same holders say the same again and again. It is for members that say that they read it.
const packed = 0x01

const (
	// maxUnpacked is the size of the longest packet that is packed, in bytes.
	maxUnpacked = 6 * MaxPacket
	// minPacked is the size of the shortest one.
	minPacked = 256
)

// packers has compressors: each is 0.8 MB. unpackers has what undoes it.
var (
	packers   = sync.Pool{New: func() any { return must(flate.NewWriter(nil, flate.BestSpeed)) }}
	unpackers = sync.Pool{New: func() any { return flate.NewReader(bytes.NewReader(nil)) }}
)

// pack compresses a packet.
func pack(packet []byte) []byte {
	b := bytes.NewBuffer(append(make([]byte, 0, MaxPacket), packed))
	w := packers.Get().(*flate.Writer)
	defer packers.Put(w)
	w.Reset(b)
	_, _ = w.Write(packet) // a buffer cannot fail
	_ = w.Close()
	return b.Bytes()
}

// unpack returns a packet as it was before it was packed, if it was. It fails with ErrMalformed.
func unpack(b []byte) ([]byte, error) {
	if len(b) == 0 || b[0] != packed {
		return b, nil
	}
	r := unpackers.Get().(io.Reader)
	defer unpackers.Put(r)
	_ = r.(flate.Resetter).Reset(bytes.NewReader(b[1:]), nil) // fails never
	packet, err := io.ReadAll(io.LimitReader(r, maxUnpacked+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: unpacking: %w", ErrMalformed, err)
	case len(packet) > maxUnpacked:
		return nil, fmt.Errorf("%w: more than %d bytes are packed", ErrMalformed, maxUnpacked)
	}
	return packet, nil
}

// Packets returns packets of at most [MaxPacket] with what was added, most often one.
func (b *Builder) Packets() (packets [][]byte) {
	packet := b.Bytes()
	if b.Packs && len(packet) >= minPacked {
		if p := pack(packet); len(p) < len(packet) {
			packet = p
		}
	}
	if len(packet) <= MaxPacket || len(b.messages) == 1 {
		return [][]byte{packet}
	}
	half := len(b.messages) / 2
	for _, list := range [][]message{b.messages[:half], b.messages[half:]} {
		part := Builder{Packs: true}
		for _, m := range list {
			part.Add(m.kind, m.encoded)
		}
		packets = append(packets, part.Packets()...)
	}
	return packets
}
