// Package judge checks whether agents report duplicate addresses correctly.
//
// It gets snapshots (which namespace had which addresses, from the kernel) and the agents' reports, and
// finds what was missed, late, invented, wrong, dropped or open for too long. It owns the tolerances. It
// does not know the plan, does no I/O and reads no clock: all times are durations since the start.
//
// Between two snapshots nothing is known, so the times at which an address came or went have bounds.
// Where both verdicts are possible, there is no finding.
package judge

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Holder is a namespace on a node. Netns is "host" for the node's own.
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
	// Deaf: it answers others, and leaves the agents' probes unanswered.
	Deaf bool
}

// Conflict is a conflict as an agent reports it.
type Conflict struct {
	ID        string
	IP        netip.Addr
	Confirmed bool // else suspected
	Holders   []Holder
}

// Event is an agent's event about a conflict. Kind is as in the API.
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

// Judge compares snapshots with reports. It is not safe for concurrent use.
type Judge struct {
	limits    Limits
	addresses map[netip.Addr]*address
	lastSeen  map[Holder]time.Duration // when the last one began
	nodes     map[string]*node
	stalls    []span
	pending   []message
	known     time.Duration // snapshots are complete until then
	findings  []Finding
	tally     Tally
}

// node is what is known of one agent.
type node struct {
	outages  []span                   // the last one may go on: until is never
	suspects map[string]time.Duration // since when it has a suspicion, by id
	reported map[string]bool          // findings about conflicts, by kind and id
	// confirmed are the holders in the last event, or in the first poll without one, by conflict id.
	// previous are those of the agent before the restart.
	confirmed, previous map[string][]Holder
	polled              time.Duration // when it last answered a poll
}

// span is a stretch of time.
type span struct{ from, until time.Duration }

// never is the end of a span that has not ended.
const never = time.Duration(1<<63 - 1)

// message is a report that waits for the snapshots until its time.
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

// Down records that the agent of a node is about to end; it has no obligations until Up.
func (j *Judge) Down(name string, at time.Duration) {
	n := j.node(name)
	n.outages = append(n.outages, span{at, never})
	// The next agent reports all its conflicts again.
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

// Up records that the next agent of a node is ready.
func (j *Judge) Up(name string, at time.Duration) {
	n := j.node(name)
	n.outages[len(n.outages)-1].until = at
}

// Stalled records that this process got no CPU time, and so perhaps the agents did not either.
func (j *Judge) Stalled(from, until time.Duration) {
	j.stalls = append(j.stalls, span{from, until})
	j.tally.Stalled += until - from
}

// AddEvent records an event.
func (j *Judge) AddEvent(e Event) { j.pending = append(j.pending, message{at: e.At, event: &e}) }

// AddPoll records the open conflicts of an agent.
func (j *Judge) AddPoll(o Open) {
	o.To = max(o.From, o.To)
	j.pending = append(j.pending, message{at: o.To, open: &o})
}

// AddSnapshot records a snapshot. Those of one namespace must be in order.
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

// Advance checks the reports from before now and returns the new findings. There must be a snapshot of
// every namespace since.
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

// checkEvent checks a new confirmation or new holders.
func (j *Judge) checkEvent(e *Event) {
	c := e.Conflict
	if !c.Confirmed || e.Kind != "confirmed" && e.Kind != "changed" {
		return
	}
	a, n := j.addresses[c.IP], j.node(e.Node)
	report := confirmation{node: e.Node, conflict: c, from: e.At, to: e.At}
	before, known := n.confirmed[c.ID]
	switch {
	case e.Kind == "confirmed":
		j.checkConfirmation(a, report)
	case known:
		if what := j.wrong(a, report, before); what != "" {
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

// mark records which pairs an agent reports.
func (j *Judge) mark(a *address, name string, c Conflict, at time.Duration) {
	for _, p := range a.pairs {
		if !p.of(name) || !p.namedIn(c) {
			continue
		}
		if from, until := p.possible(); at < from || at > until {
			continue
		}
		// A report from before the restart does not count for the next agent.
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

// StalledFor is how long this process was stalled between two times.
func (j *Judge) StalledFor(from, until time.Duration) (sum time.Duration) {
	for _, s := range j.stalls {
		sum += max(0, min(until, s.until)-max(from, s.from))
	}
	return sum
}

// away returns whether the agent of a node is down at a time, and otherwise since when it is up and has
// had time to resync; 0 if it always was.
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
