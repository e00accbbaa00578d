package transport

// windowSize is how many datagrams late a datagram may come. A window counts all datagrams of its
// sender, whoever they are for, and networks reorder by milliseconds.
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
