package observe

import (
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/bounds"
)

const (
	// mirrorFor is how long a holder counts as a mirror after it last sent one of our probes back.
	mirrorFor = 5 * time.Minute
	// cameBackWithin is how late a probe may come back: later, somebody who has seen it could send it.
	cameBackWithin = 2 * time.Second
	// heardFor is how long answers are remembered: far longer than a mirror takes.
	heardFor = 4 * time.Second
	// retryWatch is the pause after a failure to watch an interface: the program may have to be loaded.
	retryWatch = time.Minute
	// maxHeard limits the answers that are remembered, maxWatches the interfaces that are watched.
	maxHeard   = 1 << 13
	maxWatches = 64
)

var (
	tooManyHeard   = bounds.New("too many answers to compare those of mirrors with")
	tooManyWatches = bounds.New("too many interfaces whose pods send back what they get")
)

// Mirrors has the pods that send back what they get: a port mirror, a bridge in a loop, or one that only pretends. A mirror only repeats.
// So what a mirror answers or announces unasked is its own, unless the same came in at another interface before, or was delivered to the
// mirror. For that, its interfaces are watched once one of our probes has come back from there. It must not know who has an address.
type Mirrors struct {
	opts       *Options
	interfaces interfaces
	heard      map[answer][]heard
	order      []answer // the oldest first; one for each element of heard
	watched    int      // interfaces
	// cameBackLast is when a probe came back at any interface.
	cameBackLast time.Time
	missed       time.Time // when there was no room for what was heard; zero if there always was
	retry        time.Time // after a failure no interface is watched before
}

// answer is an answer or a gratuitous packet, which a mirror repeats as it is.
type answer struct {
	ip      netip.Addr
	mac, to [6]byte
}

// heard is where an answer was seen: it came in at the interface of a holder, or was delivered to it.
type heard struct {
	holder    detector.HolderID
	delivered bool
	at        time.Time
}

// mirror is what an interface is as a mirror.
type mirror struct {
	cameBack time.Time // when one of our probes last did; zero if none has
	watch    io.Closer // nil if it is not watched
	since    time.Time // since when it is
}

// drop forgets what an interface was as a mirror. To end its watch takes a moment.
func (m *Mirrors) drop(i *Interface) {
	if i.mirror.watch != nil {
		go i.mirror.watch.Close()
		m.watched--
	}
	i.mirror = mirror{}
}

// cameBack notes that a probe came in at an interface. If it was sent to its holder, that is a mirror.
func (m *Mirrors) cameBack(i *Interface, source [6]byte, at time.Time) {
	if holder, sent, _ := m.opts.Asked(source); holder != i.Holder || sent.IsZero() || at.Sub(sent) > cameBackWithin {
		return
	}
	i.mirror.cameBack, m.cameBackLast = at, at
	for _, other := range m.interfaces { // what it repeats here may be delivered there
		if other.Holder == i.Holder && other.mirror.watch == nil && other.watchable() {
			m.watch(other)
		}
	}
}

// watchable reports whether what is delivered to an interface is observed.
func (i *Interface) watchable() bool { return i.State == links.Attached && i.Mute() == "" }

func (m *Mirrors) watch(i *Interface) {
	if m.watched >= maxWatches {
		tooManyWatches.Exceeded(1)
		return
	}
	now := m.opts.Now()
	if now.Before(m.retry) {
		return
	}
	watch, err := m.opts.Watch(i.Index)
	if err != nil {
		m.retry = now.Add(retryWatch)
		m.opts.Log.Warn("an interface whose pod sends back what it gets cannot be watched: duplicates of that pod stay suspected", "interface", i.Name, "error", err)
		return
	}
	i.mirror.watch, i.mirror.since = watch, m.opts.Now()
	m.watched++
}

// hear notes an answer or a gratuitous packet, before anything is decided by it: all answers to our probes, and others while anybody is
// watched.
func (m *Mirrors) hear(i *Interface, r *bpf.Record) {
	if r.Kind != bpf.Answer && r.Kind != bpf.Gratuitous && r.Kind != bpf.Delivered {
		return
	}
	if _, _, ours := m.opts.Asked(r.To); !ours && m.watched == 0 {
		return
	}
	at, key := m.opts.TimeOf(r.Time), answer{r.IP, r.MAC, r.To}
	m.forget(at.Add(-heardFor))
	if len(m.order) >= maxHeard {
		tooManyHeard.Exceeded(1)
		m.missed = at
		return
	}
	m.heard[key], m.order = append(m.heard[key], heard{i.Holder, r.Kind == bpf.Delivered, at}), append(m.order, key)
}

// forget forgets what was heard before a time.
func (m *Mirrors) forget(before time.Time) {
	for len(m.order) > 0 && m.heard[m.order[0]][0].at.Before(before) {
		key := m.order[0]
		m.order = m.order[1:]
		if m.heard[key] = m.heard[key][1:]; len(m.heard[key]) == 0 {
			delete(m.heard, key)
		}
	}
}

// mirrors reports whether the holder behind an interface is a mirror.
func (m *Mirrors) mirrors(i *Interface, at time.Time) bool {
	return at.Before(m.cameBackLast.Add(mirrorFor)) && // or there is none, as mostly
		m.interfaces.any(i.Holder, func(other *Interface) bool { return at.Before(other.mirror.cameBack.Add(mirrorFor)) })
}

// said is whose a packet is, by all that is known.
type said uint8

const (
	own      said = iota // the pod's own
	repeated             // perhaps another's, which the pod has sent back
	unclear              // nobody has listened long enough: it is worth a probe, and answers none
)

// judge says whose a packet is that has an address which the kernel of the pod does not list.
func (m *Mirrors) judge(i *Interface, r *bpf.Record, at time.Time) said {
	_, asked, ours := m.opts.Asked(r.To)
	if !ours {
		asked = at.Add(-heardFor) // by nobody before
	}
	switch mirrors := m.mirrors(i, at); {
	case !mirrors && (!ours || r.Kind != bpf.Answer):
		return own
	case r.Kind != bpf.Answer && r.Kind != bpf.Gratuitous, m.before(i, r, at):
		return repeated
	case mirrors && !m.watchedSince(i, asked):
		return unclear
	}
	return own
}

// before reports whether the same was said before by somebody else.
func (m *Mirrors) before(i *Interface, r *bpf.Record, at time.Time) bool {
	return slices.ContainsFunc(m.heard[answer{r.IP, r.MAC, r.To}], func(h heard) bool {
		return h.delivered == (h.holder == i.Holder) && !h.at.After(at)
	})
}

// watchedSince reports whether all that was delivered to the holder behind an interface since a time was heard.
func (m *Mirrors) watchedSince(i *Interface, at time.Time) bool {
	return m.missed.Before(at) && !m.interfaces.any(i.Holder, func(other *Interface) bool {
		return other.watchable() && (other.mirror.watch == nil || !other.mirror.since.Before(at))
	})
}

// expire ends the watches of those that have been no mirrors for long.
func (m *Mirrors) expire(now time.Time) {
	m.forget(now.Add(-heardFor))
	for _, i := range m.interfaces {
		if i.mirror.watch != nil && !m.mirrors(i, now) {
			m.drop(i)
		}
	}
}
