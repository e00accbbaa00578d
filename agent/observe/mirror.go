package observe

import (
	"maps"
	"time"

	"github.com/dupip/dupip/detector"
)

const (
	// mirrorFor is how long a holder counts as a mirror after it sent a probe of ours back. Each
	// probe that comes back renews it.
	mirrorFor = 5 * time.Minute
	// maxMirrors bounds the mirrors that are remembered.
	maxMirrors = 1024
)

// mirrors are the holders that send our own probes back: a port mirror, or a bridge in a loop.
// They send back what others say as well, answers to our probes included. The zero value is
// ready.
type mirrors struct {
	seen map[detector.HolderID]time.Time // when a probe came back last
}

func (m *mirrors) add(holder detector.HolderID, at time.Time) {
	if m.seen == nil {
		m.seen = make(map[detector.HolderID]time.Time)
	}
	if len(m.seen) >= maxMirrors {
		maps.DeleteFunc(m.seen, func(_ detector.HolderID, seen time.Time) bool { return at.Sub(seen) >= mirrorFor })
	}
	if _, known := m.seen[holder]; known || len(m.seen) < maxMirrors {
		m.seen[holder] = at
	}
}

// has reports whether what a holder sends may be packets of others, sent back.
func (m *mirrors) isMirror(holder detector.HolderID, at time.Time) bool {
	seen, ok := m.seen[holder]
	return ok && at.Before(seen.Add(mirrorFor))
}
