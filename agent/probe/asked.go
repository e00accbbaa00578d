package probe

import (
	"math/rand/v2"
	"time"

	"github.com/dupip/dupip/detector"
)

const (
	// askedFor is how long a probe is remembered. An answer that comes later is none.
	askedFor = 10 * time.Second
	// maxAsked limits the probes that are remembered: those of some seconds at the usual limits.
	maxAsked = 1 << 14
)

// asked has the probes of the last seconds. Each has a source of its own, at random: an answer says by it which probe it is for, and only who
// got a probe can answer it. It must not know what answers mean.
type asked struct {
	prefix [3]byte
	all    map[[6]byte]ask
	order  [][6]byte // the oldest first
}

type ask struct {
	holder detector.HolderID
	sent   time.Time
}

// source returns one for a new probe.
func (a *asked) source(holder detector.HolderID, now time.Time) [6]byte {
	for len(a.order) > 0 && (len(a.order) >= maxAsked || now.Sub(a.all[a.order[0]].sent) > askedFor) {
		delete(a.all, a.order[0])
		a.order = a.order[1:]
	}
	for {
		r := rand.Uint32()
		mac := [6]byte{a.prefix[0], a.prefix[1], a.prefix[2], byte(r), byte(r >> 8), byte(r >> 16)}
		if _, taken := a.all[mac]; !taken {
			a.all[mac] = ask{holder, now}
			a.order = append(a.order, mac)
			return mac
		}
	}
}

// Asked returns to whom a probe with a source was sent, and when; the time is zero if it is not known, or not any more. ours is whether it
// may be one of this agent's or of a former one's: others can make such sources up.
func (p *Prober) Asked(source [6]byte) (holder detector.HolderID, sent time.Time, ours bool) {
	a := p.asked.all[source]
	return a.holder, a.sent, [3]byte(source[:3]) == p.asked.prefix
}
