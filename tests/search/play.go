package search

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// settle is for the end of a plan, when everything runs and nothing happens, forget from then until nothing is known any more.
	settle, forget = 2 * time.Minute, 13 * time.Minute
)

// Result is what came of a plan.
type Result struct {
	// Broken are the laws that were broken; the world ends with the first.
	Broken []string
	// Passed is the virtual time.
	Passed time.Duration
	// Confirmed counts the conflicts that were confirmed, at all nodes together. Print is the same for the same course of events.
	Confirmed int
	Print     uint64
}

// Play plays a plan, and then lets the world settle.
func Play(p Plan) Result {
	w := &world{plan: p, random: rand.New(rand.NewPCG(p.Seed, 1))}
	w.network.w, w.members.w = w, w
	w.truth = truth{
		w: w, calmAt: make(map[*machine]time.Duration), known: make(map[*machine]*memory),
		suspected: make(map[suspicionOf]int), changed: make(map[detector.Key]time.Duration),
		listed: make(map[suspicionOf][]detector.HolderID),
	}
	for n := range p.Nodes {
		newMachine(w, fmt.Sprint("n", n+1), cluster.Agent).start(false)
	}
	if p.Reporter {
		newMachine(w, "reporter", cluster.Reporter).start(false)
	}
	for _, e := range p.Events {
		w.at(e.At, func() {
			if m := w.machine(e.Who); m != nil || e.Who == "-" {
				verbs[e.Verb](w, m, e)
			}
		})
	}
	end := p.length()
	w.run(end)
	for _, m := range w.machines {
		if m.agent == nil && !m.frozen {
			m.start(false)
		}
	}
	w.run(end + settle)
	w.truth.agree()
	for _, m := range w.machines {
		for _, p := range m.pods {
			p.end()
		}
	}
	w.run(end + settle + forget)
	w.truth.forgotten()
	return Result{Broken: w.truth.broken, Passed: w.now, Confirmed: w.truth.confirmations, Print: w.truth.print}
}

// agree checks that the reporter knows what the agents know.
func (t *truth) agree() {
	reporter := t.w.machine("reporter")
	if reporter == nil || reporter.agent == nil || len(t.broken) > 0 {
		return
	}
	for _, a := range t.w.agents() {
		if a.m == reporter {
			continue
		}
		said := reporter.agent.reported[a.m.id()]
		for _, c := range a.detector.Conflicts(false) {
			if r, ok := said[c.Key]; c.State == detector.Confirmed && (!ok || r.State != c.State || len(r.Holders) != len(c.Holders)) {
				t.break_("reporter", "%s lists %s of %s with %d holders, the reporter knows %d: %s", a.m.label, c.ID, c.Key.IP, len(c.Holders), len(r.Holders), r.State)
			}
		}
		for key, r := range said {
			if r.State == detector.Confirmed && a.confirmed(key) == nil {
				t.break_("reporter", "%s does not list %s of %s, the reporter does", a.m.label, r.ID, key.IP)
			}
		}
	}
}

// forgotten checks that nothing is left when all pods are gone for long.
func (t *truth) forgotten() {
	for _, a := range t.w.agents() {
		if len(t.broken) > 0 || a.m.role != cluster.Agent {
			continue
		}
		counts, status := a.detector.Counts(), a.gossip.Status()
		left := []string{}
		for what, n := range map[string]int{
			"addresses": counts.Keys, "bindings of others": counts.Remote, "leases": status.Leases, "leases of others": status.Kept, "unacknowledged leases": status.Unacked,
		} {
			if n != 0 {
				left = append(left, fmt.Sprint(n, " ", what))
			}
		}
		if len(left) > 0 {
			t.break_("forgotten", "%s still has %s", a.m.label, strings.Join(left, ", "))
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
