package observe

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/bpf"
)

const (
	// sampleEvery is how often the counters of all interfaces are read.
	sampleEvery = 10 * time.Second
	// floodAfter is how many packets must have been refused within that time for a log
	// line about the pod; an ordinary one has none in its life.
	floodAfter = 1000
	// floodAgain is the least time between two such lines about one interface.
	floodPause = 10 * time.Minute
)

// refused counts packets that made no record because a limit was reached.
type refused struct {
	// last is the latest reading; gone is what counters had reached that are no more,
	// because a program was attached anew.
	last, previous bpf.Counters
	sampled        uint64 // the sum at the last sample
	warned         time.Time
}

func (r *refused) total() bpf.Counters { return plus(r.previous, r.last) }

// read takes a reading; counters begin anew when a program is attached anew.
func (r *refused) read(now bpf.Counters) {
	if now.RefusedData < r.last.RefusedData || now.RefusedAnnounced < r.last.RefusedAnnounced ||
		now.RefusedAnswers < r.last.RefusedAnswers || now.RingFull < r.last.RingFull {
		r.previous = r.total()
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

// floods finds the pods whose packets go over the limits.
type floods struct {
	next  time.Time // the next sample
	lines *rate.Limiter
	gone  bpf.Counters // of interfaces that are no more
}

// sample reads the counters of an interface.
func (t *Table) sample(i *Interface) {
	if counters, err := t.Counters(i.Index); err == nil {
		i.refused.read(counters)
	}
}

// logFlood says in the log which pod it was, if it was much since the last sample.
func (t *Table) logFlood(i *Interface, now time.Time) {
	total := i.refused.total()
	packets := sum(total) - i.refused.sampled
	i.refused.sampled = sum(total)
	if packets < floodAfter || now.Sub(i.refused.warned) < floodPause || !t.floods.lines.Allow() {
		return
	}
	i.refused.warned = now
	t.Log.Warn("a pod sends more addresses than are recorded; its own duplicates may be found late",
		"interface", i.Name, "netns", i.NetnsName(), "pid", i.Netns.Pid, "pod", i.Pod.Pod.String(),
		"packetsLately", packets, "data", total.RefusedData, "announced", total.RefusedAnnounced,
		"answers", total.RefusedAnswers, "ringFull", total.RingFull)
}

// forgetRefused keeps the figures of an interface that goes for the total; last is what its
// counters were in the end.
func (t *Table) forgetRefused(i *Interface, last bpf.Counters, now time.Time) {
	if last != (bpf.Counters{}) {
		i.refused.read(last)
	}
	t.logFlood(i, now)
	t.floods.gone = plus(t.floods.gone, i.refused.total())
}

// Refused reads what was refused at an interface because a limit was reached.
func (t *Table) Refused(i *Interface) bpf.Counters {
	t.sample(i)
	return i.refused.total()
}

// RefusedGone is what was refused at interfaces that are gone.
func (t *Table) RefusedGone() bpf.Counters { return t.floods.gone }

// RefusedTotal is what was refused since the agent started, by the last readings.
func (t *Table) RefusedTotal() bpf.Counters {
	total := t.floods.gone
	for _, i := range t.interfaces {
		total = plus(total, i.refused.total())
	}
	return total
}
