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

// Refusals counts the packets of all interfaces that made no record because a limit was reached, and finds the pods that send so many. It
// must not know which addresses they have.
type Refusals struct {
	opts       *Options
	interfaces interfaces
	lines      *rate.Limiter // about pods
	next       time.Time     // the next sample
	gone       bpf.Counters  // of removed interfaces
}

// sample reads the counters of an interface.
func (f *Refusals) sample(i *Interface) {
	if counters, err := f.opts.Counters(i.Index); err == nil {
		i.refused.read(counters)
	}
}

// logFlood logs the pod behind an interface if many packets were refused since the last sample.
func (f *Refusals) logFlood(i *Interface, now time.Time) {
	total := i.refused.total()
	packets := sum(total) - i.refused.sampled
	i.refused.sampled = sum(total)
	if packets < floodAfter || now.Sub(i.refused.warned) < floodPause || !f.lines.Allow() {
		return
	}
	i.refused.warned = now
	f.opts.Log.Warn("a pod sends packets from more addresses than the limits allow; its duplicates may be detected late",
		"interface", i.Name, "netns", i.Netns.Label(), "pid", i.Netns.Pid, "pod", i.Pod.Pod.String(),
		"packetsLately", packets, "data", total.RefusedData, "announced", total.RefusedAnnounced,
		"answers", total.RefusedAnswers, "ringFull", total.RingFull)
}

// forget adds the counters of a removed interface to the total; last is their final reading.
func (f *Refusals) forget(i *Interface, last bpf.Counters, now time.Time) {
	if last != (bpf.Counters{}) {
		i.refused.read(last)
	}
	f.logFlood(i, now)
	f.gone = plus(f.gone, i.refused.total())
}

// Of reads how many packets were refused at an interface because of a limit. That never decreases.
func (f *Refusals) Of(i *Interface) bpf.Counters {
	f.sample(i)
	return i.refused.total()
}

// Total counts the packets that were refused since the agent started, by the last readings. It never decreases.
func (f *Refusals) Total() bpf.Counters {
	total := f.gone
	for _, i := range f.interfaces {
		total = plus(total, i.refused.total())
	}
	return total
}

// due reads the counters of all interfaces if that is due, and reports whether it was.
func (f *Refusals) due(now time.Time) bool {
	if f.next.After(now) {
		return false
	}
	f.next = now.Add(sampleEvery)
	for _, i := range f.interfaces {
		f.sample(i)
		f.logFlood(i, now)
	}
	return true
}
