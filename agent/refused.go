package agent

import (
	"time"

	"github.com/dupip/dupip/bpf"
)

const (
	// sampleEvery is how often the counters of all interfaces are read.
	sampleEvery = 10 * time.Second
	// floodAfter is how many packets must have been refused within that time for a log
	// line about the pod; an ordinary one has none in its life.
	floodAfter = 1000
	// floodAgain is the least time between two such lines about one interface.
	floodAgain = 10 * time.Minute
)

// refused counts packets that made no record because a limit was reached.
type refused struct {
	// last is the latest reading; gone is what counters had reached that are no more,
	// because a program was attached anew.
	last, gone bpf.Counters
	sampled    uint64 // the sum at the last sample
	warned     time.Time
}

func (r *refused) total() bpf.Counters { return plus(r.gone, r.last) }

// read takes a reading; counters begin anew when a program is attached anew.
func (r *refused) read(now bpf.Counters) {
	if now.RefusedData < r.last.RefusedData || now.RefusedAnnounced < r.last.RefusedAnnounced ||
		now.RefusedAnswers < r.last.RefusedAnswers || now.RingFull < r.last.RingFull {
		r.gone = r.total()
	}
	r.last = now
}

func plus(a, b bpf.Counters) bpf.Counters {
	return bpf.Counters{
		RefusedData:      a.RefusedData + b.RefusedData,
		RefusedAnnounced: a.RefusedAnnounced + b.RefusedAnnounced,
		RefusedAnswers:   a.RefusedAnswers + b.RefusedAnswers,
		RingFull:         a.RingFull + b.RingFull,
	}
}

func sum(c bpf.Counters) uint64 {
	return c.RefusedData + c.RefusedAnnounced + c.RefusedAnswers + c.RingFull
}

// sampleRefused reads the counters of all interfaces and names the pods whose packets
// went over the limits.
func (l *loop) sampleRefused(now time.Time) {
	l.nextSample = now.Add(sampleEvery)
	for _, i := range l.interfaces {
		// An error means that nothing is attached now.
		if counters, err := l.observer.Counters(i.Index); err == nil {
			i.refused.read(counters)
		}
		l.nameFlood(i, now)
	}
}

// nameFlood says in the log which pod it was, if it was much since the last sample.
func (l *loop) nameFlood(i *podInterface, now time.Time) {
	total := i.refused.total()
	more := sum(total) - i.refused.sampled
	i.refused.sampled = sum(total)
	if more < floodAfter || now.Sub(i.refused.warned) < floodAgain || !l.floodLog.Allow() {
		return
	}
	i.refused.warned = now
	l.log.Warn("a pod sends more addresses than are recorded; its own duplicates may be found late",
		"interface", i.Name, "netns", label(i.Place), "pid", i.Place.Pid, "pod", i.pod.String(),
		"packetsLately", more, "data", total.RefusedData, "announced", total.RefusedAnnounced,
		"answers", total.RefusedAnswers, "ringFull", total.RingFull)
}

// forgetRefused keeps the figures of an interface that goes for the total; last is what
// its counters were in the end.
func (l *loop) forgetRefused(i *podInterface, last bpf.Counters, now time.Time) {
	if last != (bpf.Counters{}) {
		i.refused.read(last)
	}
	l.nameFlood(i, now)
	l.goneRefused = plus(l.goneRefused, i.refused.total())
}
