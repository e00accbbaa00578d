package detector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// A network joins the detectors of several nodes by the messages that they need: leases to one keeper, its
// conflict notices, probe requests and replies. Messages are late, lost or overtake each other, and each
// node has its own clock.
type network struct {
	t      *testing.T
	now    time.Time // the true time, which no node's clock has
	worlds []*world
	queue  []delivery
	random *rand.Rand
	loss   float64
	cut    map[string]bool // nodes that nothing reaches or leaves

	keeper map[Key]map[HolderID]*keptLease
	seq    map[leaseID]int // the last change of each, and as the keeper knows it
	kept   map[leaseID]int
}

type keptLease struct {
	Change
	firstSeen time.Time // the true time
}

type delivery struct {
	at time.Time
	do func()
}

// newNetwork makes nodes n1, n2 and so on.
func newNetwork(t *testing.T, nodes int, seed uint64, loss float64) *network {
	n := &network{
		t: t, random: rand.New(rand.NewPCG(seed, 7)), loss: loss, cut: map[string]bool{},
		keeper: map[Key]map[HolderID]*keptLease{}, seq: map[leaseID]int{}, kept: map[leaseID]int{},
	}
	for i := range nodes {
		w := newWorld(t, Options{Node: fmt.Sprintf("n%d/boot", i+1)})
		n.now = w.now
		w.now = w.now.Add(time.Duration(i) * time.Hour)
		w.start = w.now
		w.probeRemote = func(s Probe) { n.probe(w, s) }
		w.proof = proof{}
		n.worlds = append(n.worlds, w)
	}
	return n
}

func (n *network) in(d time.Duration, do func()) {
	n.queue = append(n.queue, delivery{n.now.Add(d), do})
	slices.SortStableFunc(n.queue, func(a, b delivery) int { return a.at.Compare(b.at) })
}

// send delivers a message after a random time, or loses it. The keeper is not one of the nodes.
func (n *network) send(from, to string, do func()) {
	if n.random.Float64() < n.loss {
		return
	}
	n.in(time.Millisecond+time.Duration(n.random.IntN(40))*time.Millisecond, func() {
		if !n.cut[from] && !n.cut[to] {
			do()
		}
	})
}

func (n *network) world(node string) *world {
	for _, w := range n.worlds {
		if w.d.table.opts.Node == node {
			return w
		}
	}
	n.t.Fatalf("no node %q", node)
	return nil
}

// update turns the changes of a node into leases.
func (n *network) update(w *world) {
	node := w.d.table.opts.Node
	for _, c := range w.d.TakeChanges() {
		w.follow(c)
		who := leaseID{c.Binding.Key, c.Binding.Holder.ID}
		n.seq[who]++
		n.lease(node, who, n.seq[who], &keptLease{c, n.now.Add(c.Binding.FirstSeen.Sub(w.now))})
		for _, other := range c.OtherNodes {
			n.send(node, other, func() {
				o := n.world(other)
				o.apply(o.d.Withdraw(who.key, who.holder, "its node says so", o.now))
			})
		}
	}
	if err := w.checkLeases(); err != nil {
		n.t.Error(err)
	}
}

// lease sends the keeper a change until it arrives.
func (n *network) lease(node string, who leaseID, seq int, l *keptLease) {
	if n.seq[who] > seq || n.kept[who] >= seq {
		return
	}
	n.send(node, "", func() {
		if n.kept[who] > seq {
			return
		}
		n.kept[who] = seq
		if n.keeper[who.key] == nil {
			n.keeper[who.key] = map[HolderID]*keptLease{}
		}
		delete(n.keeper[who.key], who.holder)
		if !l.Ended {
			n.keeper[who.key][who.holder] = l
			n.match(who)
		}
	})
	n.in(250*time.Millisecond+time.Duration(n.random.IntN(750))*time.Millisecond, func() { n.lease(node, who, seq, l) })
}

// match notifies the nodes of all holders of each other. It repeats that a few times, because the notices of
// this network are not acknowledged.
func (n *network) match(who leaseID) {
	for id, other := range n.keeper[who.key] {
		if id.Node == who.holder.Node {
			continue
		}
		for again := range 4 {
			n.in(time.Duration(again)*500*time.Millisecond, func() {
				mine := n.keeper[who.key][who.holder]
				if mine == nil || n.keeper[who.key][id] != other {
					return
				}
				n.send("", id.Node, func() { n.notify(id.Node, mine) })
				n.send("", who.holder.Node, func() { n.notify(who.holder.Node, other) })
			})
		}
	}
}

// notify sends a node a conflict notice about holders on other nodes.
func (n *network) notify(node string, leases ...*keptLease) {
	w := n.world(node)
	for _, l := range leases {
		w.observe(Sighting{
			Key: l.Binding.Key, Holder: Holder{ID: l.Binding.Holder.ID, MAC: l.Binding.Holder.MAC},
			Evidence: l.Binding.Evidence, At: w.now, FirstSeen: w.now.Add(l.firstSeen.Sub(n.now)), Occurrences: l.Occurrences,
		})
	}
}

// request is one probe request to another node.
type request struct {
	s        Probe
	from     *world
	sentAt   time.Time // on the sender's clock
	bindings []*keptLease
	received bool
	reply    func() // nil until the holder answered or its time is over
	done     bool   // the sender has the reply, or gave up
}

func (n *network) probe(w *world, s Probe) {
	q := &request{s: s, from: w, sentAt: w.now}
	holders, occurrences := w.d.LocalHolders(s.Key)
	for _, b := range holders {
		q.bindings = append(q.bindings, &keptLease{
			Change{Binding: b, Occurrences: occurrences}, n.now.Add(b.FirstSeen.Sub(w.now)),
		})
	}
	for _, wait := range []time.Duration{0, 150, 450, 1000} {
		n.in(wait*time.Millisecond, func() {
			if !q.done {
				n.send(w.d.table.opts.Node, s.Holder.Node, func() { n.receive(q) })
			}
		})
	}
	n.in(lostAfter, func() {
		if !q.done {
			q.done = true
			w.apply(w.d.Probed(s, Result{Outcome: Unreachable}, w.now))
		}
	})
}

// receive makes a node probe its own holder and reply. A repeated request is answered with the same
// reply.
func (n *network) receive(q *request) {
	if q.received {
		n.reply(q)
		return
	}
	q.received = true
	node := q.s.Holder.Node
	n.notify(node, q.bindings...)
	w := n.world(node)
	var own *Binding
	holders, _ := w.d.LocalHolders(q.s.Key)
	for _, b := range holders {
		if b.Holder.ID == q.s.Holder {
			own = &b
		}
	}
	a, from := w.byID(q.s.Holder), q.from
	switch {
	case own == nil:
		q.reply = func() { from.apply(from.d.Withdraw(q.s.Key, q.s.Holder, "its node does not know it", from.now)) }
		n.reply(q)
	case a.has[q.s.Key.IP] && !a.mute:
		n.in(delay, func() {
			at, occurrences := n.now, 0
			if e := w.d.table.entries[q.s.Key]; e != nil {
				occurrences = e.occurrences
			}
			q.reply = func() {
				s := Sighting{
					Key: q.s.Key, Holder: own.Holder, Evidence: own.Evidence, Answer: true,
					At: schedule.Later(from.now.Add(at.Sub(n.now)), q.sentAt), Occurrences: occurrences,
				}
				from.observe(s)
			}
			n.reply(q)
		})
	default:
		n.in(silentAfter, func() {
			q.reply = func() { from.apply(from.d.Probed(q.s, Result{Outcome: Unanswered}, from.now)) }
			n.reply(q)
		})
	}
}

func (n *network) reply(q *request) {
	if q.reply == nil {
		return
	}
	n.send(q.s.Holder.Node, q.from.d.table.opts.Node, func() {
		if !q.done {
			q.done = true
			q.reply()
		}
	})
}

// run advances the clock of all nodes.
func (n *network) run(d time.Duration) {
	n.t.Helper()
	end := n.now.Add(d)
	for range 1_000_000 {
		next, do := end, func() {}
		for _, w := range n.worlds {
			if due := w.due(); !due.IsZero() && due.Sub(w.now) < next.Sub(n.now) {
				next, do = n.now.Add(due.Sub(w.now)), w.step
			}
		}
		if len(n.queue) > 0 && n.queue[0].at.Before(next) {
			next = n.queue[0].at
			do = func() {
				first := n.queue[0]
				n.queue = n.queue[1:]
				first.do()
			}
		}
		passed := max(next.Sub(n.now), 0)
		n.now = n.now.Add(passed)
		for _, w := range n.worlds {
			w.now = w.now.Add(passed)
		}
		do()
		for _, w := range n.worlds {
			n.update(w)
		}
		if !n.now.Before(end) {
			return
		}
	}
	n.t.Fatal("time does not pass")
}

// do plays one line of a script on node i, counted from 1.
func (n *network) do(i int, line string) {
	n.t.Helper()
	n.worlds[i-1].do("0s " + line)
	n.update(n.worlds[i-1])
}
