package wire

// Batch packs entries for one receiver into as few packets as they need. An entry of
// another type begins another packet. Set Sender and add. It is not safe for concurrent use.
type Batch struct {
	Sender MemberID

	full [][]byte
	last []byte
	kind Type
}

// Add adds an entry.
func (b *Batch) Add(e Entry) {
	if b.last == nil || b.kind != e.Type() {
		b.begin(e.Type())
	}
	n := len(b.last)
	b.last = e.Append(b.last)
	if len(b.last) > MaxPacket && n > headerSize {
		entry := b.last[n:]
		b.last = b.last[:n:n]
		b.begin(e.Type())
		b.last = append(b.last, entry...)
	}
}

func (b *Batch) begin(t Type) {
	if b.last != nil {
		b.full = append(b.full, b.last)
	}
	b.kind = t
	b.last = AppendHeader(nil, Header{Type: t, Sender: b.Sender})
}

// Take returns the packets and empties the batch.
func (b *Batch) Take() [][]byte {
	packets := b.full
	if b.last != nil {
		packets = append(packets, b.last)
	}
	b.full, b.last = nil, nil
	return packets
}
