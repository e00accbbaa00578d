package observe

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/bpf"
)

const (
	// sampleEvery is how often the counters of all interfaces are read.
	sampleEvery = 10 * time.Second
	// floodAfter is how many refused packets within that time make a log line about the pod.
	// Ordinary pods have none.
	floodAfter = 1000
	// floodPause is the least time between two such lines about one interface.
	floodPause = 10 * time.Minute
)

// refused counts packets that made no record because a limit was reached.
type refused struct {
	// last is the latest reading, previous the sum of the programs that were attached before.
	last, previous bpf.Counters
	sampled        uint64 // the sum at the last sample
	warned         time.Time
}

func (r *refused) total() bpf.Counters { return plus(r.previous, r.last) }

// read takes a reading. Counters restart from 0 when a program is attached again.
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

// floods is the state for finding pods whose packets exceed the limits.
type floods struct {
	next  time.Time // the next sample
	lines *rate.Limiter
	gone  bpf.Counters // of removed interfaces
}

// sample reads the counters of an interface.
func (t *Table) sample(i *Interface) {
	if counters, err := t.Counters(i.Index); err == nil {
		i.refused.read(counters)
	}
}

// logFlood logs the pod behind an interface if many packets were refused since the last sample.
func (t *Table) logFlood(i *Interface, now time.Time) {
	total := i.refused.total()
	packets := sum(total) - i.refused.sampled
	i.refused.sampled = sum(total)
	if packets < floodAfter || now.Sub(i.refused.warned) < floodPause || !t.floods.lines.Allow() {
		return
	}
	i.refused.warned = now
	t.Log.Warn("a pod sends packets from more addresses than the limits allow; its duplicates may be detected late",
		"interface", i.Name, "netns", i.Netns.Label(), "pid", i.Netns.Pid, "pod", i.Pod.Pod.String(),
		"packetsLately", packets, "data", total.RefusedData, "announced", total.RefusedAnnounced,
		"answers", total.RefusedAnswers, "ringFull", total.RingFull)
}

// forgetRefused adds the counters of a removed interface to the total; last is their final reading.
func (t *Table) forgetRefused(i *Interface, last bpf.Counters, now time.Time) {
	if last != (bpf.Counters{}) {
		i.refused.read(last)
	}
	t.logFlood(i, now)
	t.floods.gone = plus(t.floods.gone, i.refused.total())
}

// Refused reads how many packets were refused at an interface because of a limit. That never decreases.
func (t *Table) Refused(i *Interface) bpf.Counters {
	t.sample(i)
	return i.refused.total()
}

// RefusedTotal counts the packets that were refused since the agent started, by the last readings. It never decreases.
func (t *Table) RefusedTotal() bpf.Counters {
	total := t.floods.gone
	for _, i := range t.interfaces {
		total = plus(total, i.refused.total())
	}
	return total
}
