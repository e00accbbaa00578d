// Package judge says whether agents told the truth about duplicate addresses.
//
// It is fed with looks (which namespace had which addresses, by the kernel) and with what
// each agent said, and finds what was missed, late, invented, wrong, dropped or went on
// for too long. It owns the tolerances. It must not know what was planned, nor do any
// I/O or read a clock: all times are durations since the beginning.
//
// A look takes a moment and there is nothing between two looks, so when an address came
// or went is known within bounds. Where both answers could be right, it finds nothing.
package judge

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Holder is a namespace on a node. Netns is "host" for the node itself.
type Holder struct{ Node, Netns string }

func (h Holder) String() string { return h.Node + "/" + h.Netns }

func (h Holder) host() bool { return h.Netns == "host" }

// Snapshot is what one namespace had at some time between From and To.
type Snapshot struct {
	Holder   Holder
	From, To time.Duration
	// Has are the addresses that it answers for. Maybe are those that it may or may not
	// answer for: duplicate address detection runs, or it is being taken down.
	Has, Maybe []netip.Addr
}

// Conflict is a conflict as an agent tells of it.
type Conflict struct {
	ID        string
	IP        netip.Addr
	Confirmed bool // else suspected
	Holders   []Holder
}

// Event is a step of a conflict that an agent told of. Kind is as in the API.
type Event struct {
	Node     string
	At       time.Duration
	Kind     string
	Conflict Conflict
}

// Open are all open conflicts of an agent, at some time between From and To.
type Open struct {
	Node      string
	From, To  time.Duration
	Conflicts []Conflict
}

// Judge collects what happens and finds what is wrong with it. Its methods are for one
// goroutine.
type Judge struct {
	limits    Limits
	addresses map[netip.Addr]*address
	lastSeen  map[Holder]time.Duration // when the last one began
	nodes     map[string]*node
	stalls    []span
	pending   []message
	known     time.Duration // all that was there before this has been looked at
	findings  []Finding
	tally     Tally
}

// node is what is known of one agent.
type node struct {
	outages  []span                   // the last one may go on: until is never
	suspects map[string]time.Duration // since when it has a suspicion, by id
	reported map[string]bool          // findings about conflicts, by kind and id
	// confirmed are the holders that it last named in an event, or when it was first seen
	// to tell of a conflict without one, by id. Those of a former agent are in former.
	confirmed, previous map[string][]Holder
	polled              time.Duration // when it was last asked and answered
}

// span is a stretch of time.
type span struct{ from, until time.Duration }

// never is the end of what goes on.
const never = time.Duration(1<<63 - 1)

// message waits until the looks have caught up with it.
type message struct {
	at    time.Duration
	event *Event
	open  *Open
}

// New makes a judge with these tolerances.
func New(limits Limits) *Judge {
	return &Judge{
		limits:    limits,
		addresses: make(map[netip.Addr]*address),
		lastSeen:  make(map[Holder]time.Duration),
		nodes:     make(map[string]*node),
	}
}

func (j *Judge) node(name string) *node {
	n := j.nodes[name]
	if n == nil {
		n = &node{suspects: make(map[string]time.Duration), reported: make(map[string]bool)}
		n.confirmed, n.previous = make(map[string][]Holder), make(map[string][]Holder)
		j.nodes[name] = n
	}
	return n
}

// Down tells that the agent of a node is about to end; it has no obligations until Up.
func (j *Judge) Down(name string, at time.Duration) {
	n := j.node(name)
	n.outages = append(n.outages, span{at, never})
	// The next agent begins anew with what it says.
	clear(n.suspects)
	maps.Copy(n.previous, n.confirmed)
	clear(n.confirmed)
	for _, a := range j.addresses {
		for _, p := range a.pairs {
			if d := p.at[name]; d != nil {
				*d = obligation{since: at}
			}
		}
	}
}

// Up tells that the next agent of a node is ready.
func (j *Judge) Up(name string, at time.Duration) {
	n := j.node(name)
	n.outages[len(n.outages)-1].until = at
}

// Stalled tells that this process got no time to look: agents may have got none either.
func (j *Judge) Stalled(from, until time.Duration) {
	j.stalls = append(j.stalls, span{from, until})
	j.tally.Stalled += until - from
}

// AddEvent tells of an event.
func (j *Judge) AddEvent(e Event) { j.pending = append(j.pending, message{at: e.At, event: &e}) }

// AddPoll tells of the open conflicts of an agent.
func (j *Judge) AddPoll(o Open) {
	o.To = max(o.From, o.To)
	j.pending = append(j.pending, message{at: o.To, open: &o})
}

// AddSnapshot tells of a look. Looks into one namespace come in order.
func (j *Judge) AddSnapshot(l Snapshot) {
	for _, ip := range slices.Concat(l.Has, l.Maybe) {
		if j.addresses[ip] == nil {
			j.addresses[ip] = &address{ip: ip, now: make(map[Holder]*presence)}
		}
	}
	for ip, a := range j.addresses {
		switch {
		case slices.Contains(l.Has, ip):
			j.present(a, l, true)
		case slices.Contains(l.Maybe, ip):
			j.present(a, l, false)
		default:
			a.absent(l)
		}
	}
	j.lastSeen[l.Holder] = l.From
}

// Advance judges what was said before now; every namespace was looked at since. It
// returns the new findings.
func (j *Judge) Advance(now time.Duration) []Finding {
	j.known = now
	slices.SortStableFunc(j.pending, func(a, b message) int { return cmp.Compare(a.at, b.at) })
	rest := j.pending[:0]
	for _, s := range j.pending {
		switch {
		case s.at >= now:
			rest = append(rest, s)
		case s.event != nil:
			j.checkEvent(s.event)
		default:
			j.checkPoll(s.open)
		}
	}
	j.pending = rest
	for _, a := range j.addresses {
		j.count(a)
		a.forget(now - memory)
	}
	maps.DeleteFunc(j.lastSeen, func(_ Holder, at time.Duration) bool { return at < now-memory })
	j.stalls = slices.DeleteFunc(j.stalls, func(s span) bool { return s.until < now-memory })
	found := j.findings
	j.findings = nil
	return found
}

// checkEvent judges what an agent newly claims.
func (j *Judge) checkEvent(e *Event) {
	c := e.Conflict
	if !c.Confirmed || e.Kind != "confirmed" && e.Kind != "changed" {
		return
	}
	a, n := j.addresses[c.IP], j.node(e.Node)
	says := confirmation{node: e.Node, conflict: c, from: e.At, to: e.At}
	before, known := n.confirmed[c.ID]
	switch {
	case e.Kind == "confirmed":
		j.checkConfirmation(a, says)
	case known:
		if what := j.wrong(a, says, before); what != "" {
			j.find(Wrong, e.Node, c, e.At, what)
		}
	}
	if e.Kind == "confirmed" || known {
		n.confirmed[c.ID] = c.Holders
	}
	if a != nil {
		j.mark(a, e.Node, c, e.At)
	}
}

// mark notes which overlaps an agent tells of.
func (j *Judge) mark(a *address, name string, c Conflict, at time.Duration) {
	for _, p := range a.pairs {
		if !p.of(name) || !p.namedIn(c) {
			continue
		}
		if from, until := p.possible(); at < from || at > until {
			continue
		}
		// What a former agent said does not count for its successor.
		if d := p.obligation(name); at >= d.since && (d.found == 0 || at < d.found) {
			d.found = at
		}
	}
}

// find makes a finding, once for a conflict.
func (j *Judge) find(kind Kind, name string, c Conflict, at time.Duration, text string) {
	key := string(kind) + " " + c.ID
	if j.node(name).reported[key] {
		return
	}
	j.node(name).reported[key] = true
	j.report(Finding{Kind: kind, Node: name, IP: c.IP, At: at, Holders: c.Holders, Text: c.ID + ": " + text})
}

func (j *Judge) report(f Finding) {
	j.findings = append(j.findings, f)
	if j.tally.Findings == nil {
		j.tally.Findings = make(map[Kind]int)
	}
	j.tally.Findings[f.Kind]++
}

// StalledFor is for how long nobody could look between two times.
func (j *Judge) StalledFor(from, until time.Duration) (sum time.Duration) {
	for _, s := range j.stalls {
		sum += max(0, min(until, s.until)-max(from, s.from))
	}
	return sum
}

// away says whether the agent of a node is down at a time, and else since when it is
// there and has had time to learn; zero if it always was.
func (j *Judge) away(name string, at time.Duration) (down bool, since time.Duration) {
	n := j.nodes[name]
	if n == nil {
		return false, 0
	}
	for _, o := range n.outages {
		switch {
		case o.from > at:
		case o.until > at:
			return true, 0
		default:
			since = o.until + j.limits.Restart
		}
	}
	return false, since
}
