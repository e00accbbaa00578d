package agent

import (
	"time"

	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/detector"
)

const (
	// After a list of the node's own addresses that took t, the next one starts hostListPause * t later, but not later than
	// maxHostListPause: a list of 4,096 takes 7 ms, and a pod can announce hundreds of them.
	hostListPause    = 9
	maxHostListPause = 250 * time.Millisecond
)

// hostProbes has the probes of the node itself. A list of its addresses that was made later answers all that wait. The budget of the prober
// limits how many that are.
type hostProbes struct {
	list    func() ([]links.HostAddress, error)
	waiting []exchange.Probe
	next    time.Time // no list before
}

// due returns when to list the addresses, zero for never.
func (h *hostProbes) due() time.Time {
	if len(h.waiting) == 0 {
		return time.Time{}
	}
	return h.next
}

// probeHost verifies an address of the node itself, see hostProbes.
func (l *loop) probeHost(a exchange.Probe, now time.Time) {
	if refusal := l.prober.Allow(detector.Verify, a.ForOther, now); refusal != (detector.ProbeRefusal{}) {
		l.exchange.Probed(a, refusal, now)
		return
	}
	l.host.waiting = append(l.host.waiting, a)
}

// answerHost lists the node's own addresses if probes wait for that, and reports whether it did.
func (l *loop) answerHost(now time.Time) bool {
	waiting := l.host.waiting
	if len(waiting) == 0 || now.Before(l.host.next) {
		return false
	}
	l.host.waiting = nil
	var refusal detector.ProbeRefusal
	list, err := l.host.list()
	if err != nil {
		refusal = detector.ProbeRefusal{Reason: err.Error(), Until: now.Add(time.Second)}
	}
	for _, a := range waiting {
		l.exchange.Probed(a, refusal, now)
		if o, ok := l.table.FindHost(list, a.Key, time.Now()); ok {
			l.observed(&o, time.Now())
		}
	}
	done := time.Now()
	l.host.next = done.Add(min(hostListPause*done.Sub(now), maxHostListPause))
	return true
}
