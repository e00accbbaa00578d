package agent

import (
	"maps"
	"net/netip"
	"time"

	"github.com/dupip/dupip/detector"
)

const (
	// echoFor is for how long a holder that sent a question of ours back is taken for one
	// that sends others' packets, too. Each question that comes back renews it.
	echoFor = 5 * time.Minute
	// echoWithin is how late a question may come back. Others who know our MAC could send
	// the like, and the holder merely pass it on.
	echoWithin = 2 * time.Second
	// maxAsked bounds the questions that are remembered of one interface, maxEchoes the
	// holders that sent one back.
	maxAsked  = 256
	maxEchoes = 1024
)

// echoes tells of holders that send our own questions back: a mirror, or a bridge in a
// loop. They send what others say as well, their answers to us included. The zero value is
// ready.
type echoes struct {
	heard map[detector.HolderID]time.Time
}

// asked remembers that a question about an address was sent out of the interface.
func (i *podInterface) asked(ip netip.Addr, now time.Time) {
	if i.questions == nil {
		i.questions = make(map[netip.Addr]time.Time)
	}
	if len(i.questions) >= maxAsked {
		maps.DeleteFunc(i.questions, func(_ netip.Addr, at time.Time) bool { return now.Sub(at) > echoWithin })
	}
	if _, known := i.questions[ip]; known || len(i.questions) < maxAsked {
		i.questions[ip] = now
	}
}

// cameBack takes in that a question with our MAC came out of an interface.
func (l *loop) cameBack(i *podInterface, ip netip.Addr, at time.Time) {
	for _, other := range l.interfaces { // it may have gone in at another one
		if sent, ok := other.questions[ip]; ok && other.holder == i.holder && at.Sub(sent) <= echoWithin {
			l.echoes.add(i.holder, at)
			return
		}
	}
}

// add notes that a holder sent a question back.
func (e *echoes) add(holder detector.HolderID, at time.Time) {
	if e.heard == nil {
		e.heard = make(map[detector.HolderID]time.Time)
	}
	if len(e.heard) >= maxEchoes {
		maps.DeleteFunc(e.heard, func(_ detector.HolderID, heard time.Time) bool { return at.Sub(heard) >= echoFor })
	}
	if _, known := e.heard[holder]; known || len(e.heard) < maxEchoes {
		e.heard[holder] = at
	}
}

// from says whether what a holder sends may be others' packets, sent back.
func (e *echoes) from(holder detector.HolderID, at time.Time) bool {
	heard, ok := e.heard[holder]
	return ok && at.Before(heard.Add(echoFor))
}
