package events

import (
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
	"github.com/dupip/dupip/internal/schedule"
)

const (
	// DefaultRenew is how often the Event of what goes on is renewed: Kubernetes deletes Events after an hour.
	DefaultRenew = 30 * time.Minute
	// With more open conflicts than maxOpen, or so many Events to write, pods get theirs one at a time.
	maxOpen, maxDue = 30, 4 * maxOpen
	podEvery        = time.Second
	// keepEnded is how long what has ended waits to be written.
	keepEnded = 15 * time.Minute
	// maxNotices bounds the notices.
	maxNotices = 4 * maxKeys
)

// Planner decides what to write next. It belongs to one goroutine.
type Planner struct {
	// Instance is the reportingInstance of all Events.
	Instance string
	// Program is how the commands in Events begin.
	Program string
	// Renew is how often Events are renewed.
	Renew time.Duration
	// About adds to a conflict what the books of the API server say; nil for nothing.
	About func(*document.Conflict)

	state    state
	judging  judging
	found    map[foundOn]string // the node that the findings are about, too
	notices  map[string]*notice
	byKey    map[detector.Key][]*notice
	existing map[place]kube.Series // of all Events, as read when leading began
	leading  bool
	changed  bool // node notices have to be found again
	nodesAt  time.Time
	turn     time.Time       // of the next pod, while there are too many
	server   wait            // after it did not answer
	waits    map[string]wait // by namespace, whose last request failed
	stats    Stats           // without Open
}

// Stats are for metrics. Skipped counts the pods that got no Event, because the conflict ended before their turn or there were too many.
type Stats struct {
	Open, Pending int
	Skipped       uint64
}

// Write is one request to make.
type Write struct {
	Event kube.Event // with a series if it is there and is to be renewed

	of  *notice
	end bool
}

// New returns a planner that does not lead yet.
func New(instance, program string, renew time.Duration, rules merge.Rules) *Planner {
	return &Planner{
		Instance: instance, Program: program, Renew: renew,
		state:   state{rules, make(map[detector.Key]*reported), make(map[foundOn]bool), make(map[string]time.Time)},
		notices: make(map[string]*notice),
		byKey:   make(map[detector.Key][]*notice), waits: make(map[string]wait),
	}
}

// Conflict takes the conflict of a report, as it was decoded.
func (p *Planner) Conflict(from cluster.Report, c document.Conflict, now time.Time) {
	p.changed = true
	crowded := p.crowded()
	if !p.state.conflict(from, c, now) {
		p.stats.Skipped++
		return
	}
	p.update(c.Key(), crowded, now)
}

// Summary takes what an agent says of its node. node is its NodeID.
func (p *Planner) Summary(node string, s cluster.Summary) {
	p.changed = true
	for kind := range agentEvents {
		on := foundOn{node, kind}
		if s.Findings[kind+" address"] == 0 {
			delete(p.state.found, on)
		} else if len(p.state.found) < maxNodes || p.state.found[on] {
			p.state.found[on] = true
		} else {
			p.stats.Skipped++
		}
	}
}

// Findings takes what the books of the API server and the wire say differently.
func (p *Planner) Findings(list []document.Finding) {
	found := make(map[foundOn]string)
	for _, f := range list {
		found[foundOn{f.Node, f.Kind}] = f.ReservedNode
	}
	p.changed = p.changed || !maps.Equal(found, p.found)
	p.found = found
}

// Members takes the members of gossip, from time to time, and returns how many agents are alive.
func (p *Planner) Members(members []cluster.Member, now time.Time) int {
	crowded, alive := p.crowded(), make(map[string]cluster.Member)
	for _, m := range members {
		if m.Role == cluster.Agent && m.Live() {
			if m.Epoch >= alive[m.NodeID()].Epoch {
				alive[m.NodeID()] = m
			}
		}
	}
	p.judging.members(members)
	for _, key := range p.state.gone(alive, now) {
		p.update(key, crowded, now)
		p.changed = true
	}
	p.forget(now)
	return len(alive)
}

// crowded reports whether there are too many open conflicts to write all their Events at once.
func (p *Planner) crowded() bool { return len(p.state.conflicts) > maxOpen }

// update compares the notices of an address with its open conflicts.
func (p *Planner) update(key detector.Key, crowded bool, now time.Time) {
	seen := make(map[*notice]bool)
	for _, c := range p.state.merged(key) {
		coming := p.judging.coming(c)
		for i := range c.Holders {
			if n := podNotice(c, i); n != nil {
				n.coming, n.heard = coming, now
				if n = p.add(n); n != nil {
					seen[n] = true
				}
			}
		}
	}
	for _, n := range p.byKey[key] {
		switch {
		case seen[n] && !n.closed:
			n.ended = time.Time{}
		case !seen[n] && n.ended.IsZero():
			n.ended, n.crowded = now, n.crowded || crowded
		}
	}
}

// add returns the notice of the same pod in the same conflict, which is now up to date, or adds this one. It returns nil
// if there are too many.
func (p *Planner) add(n *notice) *notice {
	for _, have := range p.byKey[n.key] {
		if have.name == n.name || have.ended.IsZero() && have.holder == n.holder {
			have.related, have.note, have.named, have.coming = n.related, n.note, n.named, n.coming
			return have
		}
	}
	if len(p.notices) >= maxNotices {
		p.stats.Skipped++
		return nil
	}
	p.adopt(n)
	p.notices[n.name] = n
	p.byKey[n.key] = append(p.byKey[n.key], n)
	return n
}

// adopt notes what of a notice is there already.
func (p *Planner) adopt(n *notice) {
	if s, there := p.existing[place{n.namespace(), n.name}]; there && s.Count > n.count {
		n.written, n.renewed, n.count = true, s.LastObservedTime.Time, s.Count
	}
	if _, there := p.existing[place{n.namespace(), n.resolved()}]; there {
		n.closed = true
	}
}

// place is where an Event is: its name alone can be one that somebody else has given to an Event in another namespace.
type place struct{ namespace, name string }

// Lead begins to write. Others have written these Events: earlier leaders, and everybody who may write Events in a namespace, for
// that namespace. They can be some of those that are there, or none: an Event that is made again is found there, and its series
// begins again.
func (p *Planner) Lead(existing []kube.Listed, now time.Time) {
	p.leading, p.existing = true, make(map[place]kube.Series)
	p.server = wait{}
	clear(p.waits)
	for _, e := range existing {
		series := kube.Series{Count: 1, LastObservedTime: e.EventTime}
		if e.Series != nil {
			series = *e.Series
		}
		series.LastObservedTime.Time = schedule.Earlier(series.LastObservedTime.Time, now)
		p.existing[place{e.Metadata.Namespace, e.Metadata.Name}] = series
	}
	for _, n := range p.notices {
		p.adopt(n)
	}
}

// Follow ends writing.
func (p *Planner) Follow() { p.leading, p.existing, p.found, p.changed = false, nil, nil, true }

// forget forgets what has ended.
func (p *Planner) forget(now time.Time) {
	for name, n := range p.notices {
		if !n.ended.IsZero() && now.Sub(n.ended) >= keepEnded {
			p.drop(name)
		}
	}
	maps.DeleteFunc(p.waits, func(_ string, w wait) bool { return now.Sub(w.until) >= keepEnded })
}

func (p *Planner) drop(name string) {
	n := p.notices[name]
	if delete(p.notices, name); !n.onPod() {
		return
	}
	if p.leading && !n.written {
		p.stats.Skipped++
	}
	p.byKey[n.key] = slices.DeleteFunc(p.byKey[n.key], func(other *notice) bool { return other == n })
	if len(p.byKey[n.key]) == 0 {
		delete(p.byKey, n.key)
	}
}

// Next returns what to write now, nil if nothing.
func (p *Planner) Next(now time.Time) *Write {
	if p.changed && now.Sub(p.nodesAt) >= nodesEvery {
		p.changed, p.nodesAt = false, now
		p.findNodes(now)
	}
	crowded := p.crowded()
	p.stats.Pending = 0
	var first *notice
	var firstDue time.Time
	for name, n := range p.notices {
		if n.onPod() && !n.written {
			n.crowded = n.crowded || crowded
			if n.crowded && !n.ended.IsZero() && p.leading {
				p.drop(name)
				continue
			}
		}
		due, ok := n.due(p.Renew, now)
		if !ok {
			continue
		}
		p.stats.Pending++
		if now.Before(n.held) || p.waits[n.namespace()].lasts(now) || n.unsettled(now) {
			continue
		}
		if first == nil || p.before(due, n, firstDue, first) {
			first, firstDue = n, due
		}
	}
	if !p.leading || first == nil || p.server.lasts(now) {
		return nil
	}
	if first.onPod() && (crowded || p.stats.Pending > maxDue) {
		if now.Before(p.turn) {
			return nil
		}
		p.turn = now.Add(podEvery)
	}
	w := &Write{of: first, end: first.written && !first.ended.IsZero()}
	w.Event = first.event(p.Instance, w.end, now)
	switch {
	case w.end:
	case first.onPod():
		w.Event.Note = p.podNote(first, now)
	default:
		w.Event.Note = document.Text(first.note, maxNote)
	}
	if first.written && !w.end {
		w.Event.Series = &kube.Series{Count: min(first.count+1, math.MaxInt32), LastObservedTime: kube.MicroTime{Time: now}}
	}
	return w
}

// before orders what is due: first what has not failed, because what fails may do so for good; nodes before pods; the oldest; and
// the pods of one conflict one after the other.
func (p *Planner) before(a time.Time, m *notice, b time.Time, n *notice) bool {
	failedM, failedN := p.failed(m), p.failed(n)
	switch {
	case failedM != failedN:
		return failedM < failedN
	case m.onPod() != n.onPod():
		return n.onPod()
	case !a.Equal(b):
		return a.Before(b)
	}
	return m.name < n.name
}

// unsettled reports whether more is known of an open conflict in a moment: its Event waits, because it cannot be changed.
func (n *notice) unsettled(now time.Time) bool {
	return !n.written && n.ended.IsZero() && (now.Before(n.named) || n.coming && now.Sub(n.heard) < factsTime)
}

// due is since when something is to be written.
func (n *notice) due(renew time.Duration, now time.Time) (time.Time, bool) {
	switch {
	case !n.written:
		return n.began, true
	case n.closed:
	case !n.ended.IsZero():
		return n.ended, n.onPod()
	case now.Sub(n.renewed) >= renew:
		return n.renewed.Add(renew), true
	}
	return time.Time{}, false
}

// Done takes the result of a write, and reports whether the Event is there now.
func (p *Planner) Done(w *Write, err error, now time.Time) bool {
	n := w.of
	switch {
	case err == nil:
	case w.Event.Series == nil && kube.Is(err, http.StatusConflict):
		// It is there, perhaps by another writer: nothing was written, so another pod has its turn. Of a node, it may be of an
		// earlier time.
		p.turn = time.Time{}
		if !n.onPod() {
			n.written, n.renewed, n.count = true, time.Time{}, max(1, n.count)
			return true
		}
	case w.Event.Series != nil && kube.Is(err, http.StatusNotFound): // Kubernetes was faster
		n.written, n.count = false, 0
		return false
	case kube.Refused(err): // perhaps in this namespace only, by a quota
		p.pause(n, now)
		return false
	case w.Event.Series != nil && kube.Final(err): // others change it, or have made it too large
		n.renewed = now
		return false
	case kube.Final(err): // for example in a namespace that is being deleted
		n.written, n.closed = true, true
		return false
	default:
		p.fail(n, err, now)
		return false
	}
	p.server, n.held = wait{}, time.Time{}
	delete(p.waits, n.namespace())
	if w.end {
		n.closed = true
	} else {
		n.written, n.renewed, n.count = true, now, n.count+1
	}
	return true
}

// Stats returns figures as of the last call of Next.
func (p *Planner) Stats() Stats {
	s := p.stats
	s.Open = len(p.state.conflicts)
	return s
}
