package search

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// settle is for the end of a plan, when everything runs and nothing happens, forget from then until nothing is known any more.
	settle, forget = 3 * time.Minute, 13 * time.Minute
)

// Result is what came of a plan.
type Result struct {
	// Broken are the laws that were broken; the world ends with the first.
	Broken []string
	// Passed is the virtual time.
	Passed time.Duration
	// Confirmed counts the conflicts that were confirmed, at all nodes together. Print is that of all steps of conflicts, packets and
	// stories: the same for the same course of events.
	Confirmed int
	Print     uint64
}

// String is one line.
func (r Result) String() string {
	if r.Broken != nil {
		return r.Broken[0]
	}
	return fmt.Sprintf("%v, %d confirmed, %016x", r.Passed.Round(time.Second), r.Confirmed, r.Print)
}

// Play plays a plan, and then lets the world settle. trace, which may be nil, gets the steps of conflicts and, when a law is broken, what
// agents know.
func Play(p Plan, trace func(format string, args ...any)) Result {
	w := newWorld(p, trace)
	end := p.length()
	w.run(end)
	for _, m := range w.machines {
		if m.agent == nil && !m.frozen {
			m.start(false)
		}
	}
	settle := settle
	if slices.ContainsFunc(p.Events, func(e Event) bool { return e.Verb == "namesake" }) {
		settle *= 2 // a node is away for good
	}
	w.at(end+settle-time.Second, func() { // all that was found is still there
		for _, m := range w.machines {
			w.truth.again(m)
		}
	})
	w.run(end + settle)
	w.truth.stories(w.truth.note)
	w.truth.agree()
	for _, m := range w.machines {
		if m.liar != nil {
			m.stop(false) // what it has said must be forgotten
		}
		for _, p := range m.pods {
			p.end()
		}
	}
	w.run(end + settle + forget)
	w.truth.agree()
	w.truth.stories(w.truth.note)
	w.truth.forgotten()
	return Result{Broken: w.truth.broken, Passed: w.now, Confirmed: w.truth.confirmations, Print: w.truth.print.Sum64()}
}

// newWorld returns a world in which nothing has happened yet.
func newWorld(p Plan, trace func(format string, args ...any)) *world {
	w := &world{trace: trace, plan: p, random: rand.New(rand.NewPCG(p.Seed, 1))}
	w.network.w, w.members.w = w, w
	w.truth = truth{
		w: w, print: fnv.New64a(), laws: true, calmAt: make(map[*machine]time.Duration), known: make(map[*machine]*memory),
		suspected: make(map[suspicionOf]int), changed: make(map[detector.Key]time.Duration),
		listed: make(map[suspicionOf][]detector.HolderID),
	}
	w.members.pairs = make(map[[2]*agent]*pair)
	w.members.look()
	for n := range p.Nodes {
		m := newMachine(w, fmt.Sprint("n", n+1), cluster.Agent)
		if slices.ContainsFunc(p.Events, func(e Event) bool { return lies[e.Verb] != nil && e.Who == m.label }) {
			m.liar = &liar{machine: m, seq: 1 << 62, heard: make(map[*agent]uint64)}
		}
		m.start(false)
	}
	if p.Reporter {
		newMachine(w, "reporter", cluster.Reporter).start(false)
	}
	for _, e := range p.Events {
		w.at(e.At, func() {
			switch m := w.machine(e.Who); {
			case lies[e.Verb] != nil && m != nil:
				lies[e.Verb](m.liar, e)
			case lies[e.Verb] == nil && (m != nil || e.Who == "-"):
				verbs[e.Verb](w, m, e)
			}
		})
	}
	if w.liars() > 0 {
		w.truth.bounded()
	}
	return w
}

// agree checks that the reporter knows what the agents know.
func (t *truth) agree() {
	reporter := t.w.machine("reporter")
	if reporter == nil || reporter.agent == nil || len(t.broken) > 0 {
		return
	}
	open, judged := make(map[string]bool), make(map[string]bool)
	for _, a := range t.w.agents() {
		for _, c := range a.Detector.Conflicts(false) {
			if c.State == detector.Confirmed && a.m.liar == nil {
				open[c.Key.IP.String()] = true
			}
		}
	}
	for _, j := range reporter.agent.planner.Judgements(reporter.clock()) {
		if judged[j.IP] = true; t.w.liars() > 0 && !open[j.IP] { // perhaps a liar has said so
			delete(judged, j.IP)
		}
	}
	if !maps.Equal(open, judged) {
		t.broke("reporter", "agents have conflicts of %v, the reporter of %v", slices.Sorted(maps.Keys(open)), slices.Sorted(maps.Keys(judged)))
	}
}

// forgotten checks that nothing is left when all pods are gone for long.
func (t *truth) forgotten() {
	for _, a := range t.w.agents() {
		if len(t.broken) > 0 || a.m.role != cluster.Agent {
			continue
		}
		counts, status := a.Detector.Counts(), a.gossip.Status()
		left := []string{}
		for what, n := range map[string]int{
			"addresses": counts.Keys, "bindings of others": counts.Remote, "leases": status.Leases, "leases of others": status.Kept, "unacknowledged leases": status.Unacked,
		} {
			if n != 0 {
				left = append(left, fmt.Sprint(n, " ", what))
			}
		}
		if len(left) > 0 {
			t.broke("forgotten", "%s still has %s", a.m.label, strings.Join(left, ", "))
		}
	}
}

// nextVersion adds to a packet what a next version may send: a field in each message, and one more kind of message.
func nextVersion(payload []byte) []byte {
	var packet map[uint64][]map[uint64]cbor.RawMessage
	if err := cbor.Unmarshal(payload, &packet); err != nil {
		panic(err)
	}
	more := cbor.RawMessage{0x61, 'x'}
	for _, list := range packet {
		for _, m := range list {
			m[200] = more
		}
	}
	packet[64] = []map[uint64]cbor.RawMessage{{1: more}}
	sorted, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	changed, err := sorted.Marshal(packet)
	if err != nil {
		panic(err)
	}
	return changed
}
