package events

import (
	"errors"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
)

// After a failure nothing is written in its namespace for minPause, which doubles up to maxPause. Unless it was refused, all others
// wait for minPause, and for longer if the API server did not answer.
const minPause, maxPause = time.Second, 30 * time.Second

// wait is a pause after failures. The zero value is none.
type wait struct {
	until time.Time
	pause time.Duration
}

func (w wait) lasts(now time.Time) bool { return now.Before(w.until) }

func (w *wait) longer(now time.Time) {
	w.pause = min(max(minPause, 2*w.pause), maxPause)
	w.until = now.Add(w.pause)
}

// fail notes that a request failed for the moment.
func (p *Planner) fail(n *notice, err error, now time.Time) {
	p.pause(n, now)
	if _, answered := errors.AsType[*kube.StatusError](err); answered {
		p.server = wait{}
	}
	p.server.longer(now)
}

// pause makes the namespace of a notice wait. A pod of another one has its turn.
func (p *Planner) pause(n *notice, now time.Time) {
	p.turn = time.Time{}
	w := p.waits[n.namespace()]
	w.longer(now)
	p.waits[n.namespace()], n.held = w, w.until
}

// failed is 1 if the last request in the namespace of a notice failed, 2 if the last one about itself did: who may write Events
// there, or limits them, can make it fail. It is 0 otherwise.
func (p *Planner) failed(n *notice) int {
	switch {
	case !n.held.IsZero():
		return 2
	case p.waits[n.namespace()] != wait{}:
		return 1
	}
	return 0
}
