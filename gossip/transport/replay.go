package transport

import "github.com/dupip/dupip/gossip/wire"

const (
	// windowSize is how many datagrams late a datagram may come. A window counts all datagrams of its
	// sender, whoever they are for, and networks reorder by milliseconds.
	windowSize = 2048
	// maxWindows bounds the senders that are remembered; twice as many are for some time.
	maxWindows = 16384
)

// window accepts each sequence number of one sender once (RFC 4303, section 3.4.3).
type window struct {
	top  uint64 // the highest number so far
	seen [windowSize / 64]uint64
}

// accept reports whether a number is new, and remembers it. What is older than the window is not new.
func (w *window) accept(seq uint64) bool {
	if seq > w.top {
		for n := w.top + 1; n <= seq && n <= w.top+windowSize; n++ {
			w.seen[n/64%uint64(len(w.seen))] &^= 1 << (n % 64)
		}
		w.top = seq
	} else if w.top-seq >= windowSize {
		return false
	}
	word, bit := &w.seen[seq/64%uint64(len(w.seen))], uint64(1)<<(seq%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}

// windows are those of all senders. A datagram is for one incarnation of its receiver: whatever was
// sent before this agent started is not accepted in any case, and windows begin empty.
//
// Senders that were not heard for long make room: in turns, the younger half becomes the older one.
type windows struct {
	young, old map[wire.MemberID]*window
}

// accept reports whether a datagram is new, and remembers it.
func (w *windows) accept(from wire.MemberID, seq uint64) bool {
	of := w.young[from]
	if of == nil {
		if of = w.old[from]; of == nil {
			of = new(window)
		}
		if w.young == nil || len(w.young) >= maxWindows {
			w.young, w.old = make(map[wire.MemberID]*window), w.young
		}
		w.young[from] = of
	}
	return of.accept(seq)
}
