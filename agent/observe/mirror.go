package observe

import (
	"maps"
	"time"

	"github.com/dupip/dupip/detector"
)

const (
	// mirrorFor is how long a holder counts as a mirror after it last sent one of our probes back.
	mirrorFor = 5 * time.Minute
	// maxMirrors limits the mirrors.
	maxMirrors = 1024
)

// mirrors are the holders that send our own probes back: a port mirror, or a bridge in a loop. They also
// send back the packets of others, such as answers to our probes. The zero value is ready to use.
type mirrors struct {
	seen map[detector.HolderID]time.Time // when the last probe came back
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

// isMirror reports whether a holder's packets may be packets of others, sent back.
func (m *mirrors) isMirror(holder detector.HolderID, at time.Time) bool {
	seen, ok := m.seen[holder]
	return ok && at.Before(seen.Add(mirrorFor))
}
