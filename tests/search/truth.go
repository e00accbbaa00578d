package search

import (
	"fmt"
	"hash"
	"maps"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// truth knows what is so, and what must hold.
type truth struct {
	w      *world
	broken []string
	lives  []*life
	calm   time.Duration              // from when nothing disturbs the cluster
	calmAt map[*machine]time.Duration // and a machine
	// fine is from when there are no faults but agents that end and begin.
	fine  time.Duration
	known map[*machine]*memory
	// suspected counts suspicions since the last change of an address.
	suspected map[suspicionOf]int
	changed   map[detector.Key]time.Duration
	listed    map[suspicionOf][]detector.HolderID // the holders of a confirmed conflict

	judged                    int  // how often
	laws                      bool // must hold
	confirmations, suspicions int
	print                     hash.Hash64 // of all that happened
}

type suspicionOf struct {
	a   *agent
	key detector.Key
}

// life is one time in which a pod has its address without a break.
type life struct {
	*pod
	node  string // its NodeID
	from  time.Duration
	to    time.Duration // 0 while it lasts
	told  bool          // its end was said
	clear time.Duration // until then it may not be believed, because it was silent
}

// memory is what the agents of one machine have said, as far as the state has it.
type memory struct {
	ids, savedIDs   map[string]bool       // of confirmed conflicts
	open, savedOpen map[detector.Key]bool // confirmed, and not resolved
	started, left   time.Duration         // when the agent began and, in order, ended last
	restored        bool                  // with a state
	boot            string
}

// broke notes that a law is broken. A world ends then.
func (t *truth) broke(law, format string, args ...any) {
	if !t.laws {
		return
	}
	if len(t.broken) == 0 && t.w.trace != nil {
		t.stories(t.w.trace)
	}
	t.broken = append(t.broken, fmt.Sprintf("%s: %s: ", seconds(t.w.now.Round(time.Millisecond)), law)+fmt.Sprintf(format, args...))
}

// stories traces what all agents know of all addresses.
func (t *truth) stories(trace func(format string, args ...any)) {
	for _, a := range t.w.agents() {
		for _, key := range slices.SortedFunc(maps.Keys(t.changed), detector.Key.Compare) {
			for _, s := range a.Detector.Explain(key.IP) {
				trace("%s: %s: %s", a.m.label, key.IP, s.Verdict)
				for _, n := range s.Notes {
					trace("  %8.3f %s %s: %s", n.At.Sub(began.Add(a.m.offset-a.m.suspended)).Seconds(), n.Kind, n.Holder, n.Text)
				}
			}
		}
	}
}

// note adds to the print.
func (t *truth) note(format string, args ...any) { fmt.Fprintf(t.print, format+"\n", args...) }

// disturb notes a fault that lasts so long, of one machine or of all.
func (t *truth) disturb(m *machine, lasts time.Duration) {
	if m != nil && (m.role == cluster.Reporter || m.liar != nil) {
		return // agents need no reporter, and nothing that a liar does is an excuse
	}
	t.calm = max(t.calm, t.w.now+lasts)
	if m != nil {
		t.calmAt[m] = max(t.calmAt[m], t.w.now+lasts)
	}
}

// fault notes a fault that is more than the end or the begin of an agent.
func (t *truth) fault(m *machine, lasts time.Duration) {
	if m == nil || m.liar == nil {
		t.fine = max(t.fine, t.w.now+lasts)
	}
	t.disturb(m, lasts)
}

// unsettled notes that somebody may be wrong about an agent.
func (t *truth) unsettled(other *agent, known bool) {
	if other.m.agent == other || known {
		t.disturb(nil, 0)
	}
}

// frozen notes that a machine is suspended for so long, in which its agent learns nothing.
func (t *truth) frozen(m *machine, lasts time.Duration) {
	t.fault(m, lasts+time.Second)
	for _, l := range t.lives {
		if l.m == m && l.clear > t.w.now {
			l.clear += lasts
		}
	}
}

func (t *truth) muted(p *pod) {
	for _, l := range t.lives {
		if l.pod == p && l.to == 0 {
			l.clear = max(l.clear, p.muted+penaltyTime)
		}
	}
	t.changed[p.key] = t.w.now
}

func (t *truth) begins(p *pod) {
	if p.m.liar != nil {
		return // nothing need hold of it
	}
	l := &life{pod: p, node: p.m.id(), from: t.w.now}
	for _, before := range t.lives {
		if before.pod == p {
			l.clear = max(l.clear, before.clear)
		}
	}
	t.lives = append(t.lives, l)
	t.changed[p.key] = t.w.now
	for _, other := range t.lives {
		if other.key == p.key && other.to == 0 && other != l && other.pod != p {
			t.mustFind(l, other)
		}
	}
}

func (t *truth) ends(p *pod, told bool) {
	if p.m.liar != nil {
		return
	}
	t.changed[p.key] = t.w.now
	for _, l := range t.lives {
		if l.pod == p && l.to == 0 {
			l.to, l.told = t.w.now, told
		}
	}
	if len(t.holders(p.key)) < 2 {
		t.mustEnd(p.key, t.w.now)
	}
}

// holders are those that have an address now.
func (t *truth) holders(key detector.Key) (list []*life) {
	for _, l := range t.lives {
		if l.key == key && l.to == 0 {
			list = append(list, l)
		}
	}
	return list
}

func (t *truth) starts(a *agent, fresh bool) {
	t.disturb(a.m, time.Second)
	k := t.known[a.m]
	if k == nil || fresh {
		k = &memory{ids: map[string]bool{}, savedIDs: map[string]bool{}, open: map[detector.Key]bool{}, savedOpen: map[detector.Key]bool{}}
		t.known[a.m] = k
	}
	k.ids, k.open = maps.Clone(k.savedIDs), maps.Clone(k.savedOpen)
	if k.boot != a.m.boot { // the state becomes history
		k.boot = a.m.boot
		clear(k.open)
		clear(k.savedOpen)
	}
	k.started, k.restored = t.w.now, a.m.file != nil
}

func (t *truth) ready(a *agent) {
	t.disturb(a.m, 5*time.Second) // its startupTime
	t.again(a.m)
}

func (t *truth) saved(a *agent) {
	k := t.known[a.m]
	k.savedIDs, k.savedOpen = maps.Clone(k.ids), maps.Clone(k.open)
}

func (t *truth) stops(a *agent, orderly bool) {
	t.disturb(a.m, 0)
	if orderly && a.m.role == cluster.Agent {
		if t.known[a.m].left = t.w.now; a.m.liar == nil { // what was before with a liar is not looked at, and would be an excuse
			t.mustLeave(a)
		}
	}
}

func (l *life) is(id detector.HolderID) bool { return l.node == id.Node && l.netns == id.Netns }

func (l *life) until(now time.Duration) time.Duration {
	if l.to != 0 {
		return l.to
	}
	return now
}

func (l *life) String() string { return l.m.label + "/" + l.name }

func lists(c *detector.Conflict, l *life) bool {
	return slices.ContainsFunc(c.Holders, func(b detector.Binding) bool { return l.is(b.Holder.ID) && !b.Gone })
}

// confirmed is the open conflict of an address at an agent, if it is confirmed.
func (a *agent) confirmed(key detector.Key) *detector.Conflict {
	for _, c := range a.Detector.Conflicts(false) {
		if c.Key == key && c.State == detector.Confirmed {
			return &c
		}
	}
	return nil
}
