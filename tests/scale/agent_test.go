package scale

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip"
)

const (
	maxTold    = 256
	pairsEvery = time.Second
)

// An agent joins a real detector to real gossip as package agent does, for pods that
// exist in name only: they answer every question at once as long as they live.
type agent struct {
	id       string // NodeID
	gossip   *gossip.Gossip
	seat     *seat // nil with real memberlists
	detector *detector.Detector
	watch    func(node string, e detector.Event)

	operations chan func()
	stop       context.CancelFunc
	down       <-chan struct{}
	stopped    sync.WaitGroup

	pods map[detector.Key]map[detector.HolderID]*pod
	// told has the numbers of addresses shared with other nodes as told to all; nil if
	// nobody is told.
	told    map[string]int
	pairsAt time.Time // when to count again
	// effects waits for its turn while others are carried out.
	effects []detector.Effects
	busy    bool
}

// pod is a holder of one address on this node.
type pod struct {
	holder detector.Holder
	silent bool // answers no more
}

// run has the agent take part until ctx ends.
func (a *agent) run(ctx context.Context) {
	a.stopped.Go(func() {
		if err := a.gossip.Run(ctx); err != nil {
			panic(fmt.Sprintf("%s: %v", a.id, err))
		}
	})
	a.stopped.Go(func() {
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case m := <-a.gossip.Messages():
				a.message(m)
			case f := <-a.operations:
				f()
			case <-timer.C:
				a.apply(a.detector.Tick(time.Now()))
				if !a.pairsAt.IsZero() && !a.pairsAt.After(time.Now()) {
					a.pairsAt = time.Time{}
					a.countPairs()
				}
			}
			a.lease()
			next := a.detector.Next()
			if next.IsZero() || !a.pairsAt.IsZero() && a.pairsAt.Before(next) {
				next = a.pairsAt
			}
			if next.IsZero() {
				timer.Stop()
			} else {
				timer.Reset(time.Until(next))
			}
		}
	})
}

// do has the loop do something, unless the agent is down.
func (a *agent) do(f func()) {
	select {
	case a.operations <- f:
	case <-a.down:
	}
}

// start gives an address to a pod of this node, which says so.
func (a *agent) start(key detector.Key, netns uint64) {
	a.do(func() {
		p := &pod{holder: detector.Holder{
			ID:            detector.HolderID{Node: a.id, Netns: netns},
			Interface:     detector.Interface{Ifindex: uint32(netns), Generation: uint32(netns)},
			InterfaceName: fmt.Sprintf("veth%d", netns),
			MAC:           detector.MAC{2, 0, byte(netns >> 24), byte(netns >> 16), byte(netns >> 8), byte(netns)},
			NetnsName:     fmt.Sprintf("netns-%d", netns),
			Pod:           detector.Pod{Namespace: "scale", Name: fmt.Sprintf("pod-%d", netns)},
		}}
		if a.pods[key] == nil {
			a.pods[key] = make(map[detector.HolderID]*pod)
		}
		a.pods[key][p.holder.ID] = p
		a.see(key, p, false)
	})
}

// end takes all pods with an address from this node.
func (a *agent) end(key detector.Key) {
	a.do(func() {
		for _, p := range a.pods[key] {
			a.apply(a.detector.WithdrawInterface(p.holder.Interface, "the pod is gone", time.Now()))
		}
		delete(a.pods, key)
	})
}

// see tells the detector of a packet of a pod.
func (a *agent) see(key detector.Key, p *pod, answer bool) {
	now := time.Now()
	a.apply(a.detector.Observe(detector.Sighting{
		Key: key, Holder: p.holder, Evidence: detector.Announced, Answer: answer, At: now,
	}, now))
}

// message takes in what other nodes tell or ask.
func (a *agent) message(m cluster.Message) {
	now := time.Now()
	switch m := m.(type) {
	case cluster.Rival:
		a.meet(m.Key, m.Claims, now)
	case cluster.Question:
		a.meet(m.Key, m.Claims, now)
		a.answer(m)
	case cluster.Testimony:
		a.testimony(m, now)
	case cluster.Query:
		a.gossip.Reply(m.ID, cluster.Document{})
	}
}

// meet lets the detector know of holders on other nodes.
func (a *agent) meet(key detector.Key, claims []cluster.Claim, now time.Time) {
	for _, c := range claims {
		if c.Holder.ID.Node != a.id {
			a.apply(a.detector.Observe(sightingOf(key, c, false, c.LastSeen), now))
		}
	}
}

func sightingOf(key detector.Key, c cluster.Claim, answer bool, at time.Time) detector.Sighting {
	return detector.Sighting{
		Key: key, Holder: c.Holder, Evidence: c.Evidence, Answer: answer, At: at,
		FirstSeen: c.FirstSeen, Episodes: c.Episodes,
	}
}

// answer asks a pod for another node.
func (a *agent) answer(q cluster.Question) {
	p := a.pods[q.Key][q.Holder]
	if p != nil && !p.silent {
		a.see(q.Key, p, true)
	}
	t := cluster.Testimony{
		Solicitation: detector.Solicitation{Key: q.Key, Holder: q.Holder}, Outcome: cluster.Gone,
	}
	for _, c := range a.claims(q.Key) {
		if p == nil || c.Holder.ID != q.Holder {
			continue
		}
		t.Outcome, t.Claim = cluster.Unanswered, c
		if !p.silent {
			t.Outcome, t.At = cluster.Answered, time.Now()
		}
	}
	a.gossip.Testify(q.ID, t)
}

// testimony hands the answer of another node to the detector.
func (a *agent) testimony(t cluster.Testimony, now time.Time) {
	s := t.Solicitation
	if t.Claim.Holder.ID == s.Holder {
		a.detector.Describe(s.Holder, func(h *detector.Holder) { *h = t.Claim.Holder })
	}
	switch t.Outcome {
	case cluster.Answered:
		a.apply(a.detector.Observe(sightingOf(s.Key, t.Claim, true, t.At), now))
	case cluster.Unanswered, cluster.Forwards:
		a.apply(a.detector.Unanswered(s, t.Outcome == cluster.Forwards, now))
	case cluster.Gone:
		a.apply(a.detector.Withdraw(s.Key, s.Holder, "its node says that it is gone", now))
	case cluster.Refused:
		a.apply(a.detector.NotSolicited(s, t.Reason, t.RetryAt, now))
	case cluster.Unreachable:
		a.apply(a.detector.Unreachable(s, "", now))
	}
}

// apply carries out what the detector wants, one after the other.
func (a *agent) apply(fx detector.Effects) {
	if len(fx.Solicit) == 0 && len(fx.Events) == 0 {
		return
	}
	a.effects = append(a.effects, fx)
	if a.busy {
		return
	}
	a.busy = true
	for len(a.effects) > 0 {
		next := a.effects[0]
		a.effects = a.effects[1:]
		for _, e := range next.Events {
			a.watch(a.id, e)
			if a.pairsAt.IsZero() && a.told != nil {
				a.pairsAt = time.Now().Add(pairsEvery)
			}
		}
		for _, s := range next.Solicit {
			a.solicit(s)
		}
	}
	a.busy = false
}

// solicit asks a pod of this node, or the node of another.
func (a *agent) solicit(s detector.Solicitation) {
	if s.Holder.Node != a.id {
		a.gossip.Ask(s, a.claims(s.Key))
		return
	}
	a.detector.Solicited(s, time.Now())
	if p := a.pods[s.Key][s.Holder]; p != nil && !p.silent {
		a.see(s.Key, p, true)
	}
}

// claims are what this node's own holders say of an address.
func (a *agent) claims(key detector.Key) []cluster.Claim {
	episodes := a.detector.Episodes(key)
	var own []cluster.Claim
	for _, b := range a.detector.Claims(key) {
		own = append(own, claimOf(b, episodes))
	}
	return own
}

func claimOf(b detector.Binding, episodes int) cluster.Claim {
	return cluster.Claim{
		Holder: b.Holder, Evidence: b.Evidence, FirstSeen: b.FirstSeen, LastSeen: b.LastSeen, Episodes: episodes,
	}
}

// lease tells the keepers what has changed here.
func (a *agent) lease() {
	for _, c := range a.detector.TakeChanges() {
		b := c.Binding
		if c.Ended {
			a.gossip.Withdraw(b.Key, b.Holder.ID, c.Rivals)
		} else {
			a.gossip.Lease(cluster.Lease{Key: b.Key, Claim: claimOf(b, c.Episodes)})
		}
	}
}

// countPairs tells all nodes how many addresses this one shares with others. Of two nodes
// the lesser one tells.
func (a *agent) countPairs() {
	present := make(map[string]cluster.Pair)
	for _, c := range a.detector.Conflicts(false) {
		if c.State != detector.Confirmed {
			continue
		}
		others := make(map[string]bool)
		for _, h := range c.Holders {
			others[h.Holder.ID.Node] = true
		}
		for other := range others {
			pair, known := present[other]
			if other <= a.id || !known && len(present) == maxTold {
				continue
			}
			if !known {
				pair = cluster.Pair{A: a.id, B: other, Since: c.ConfirmedAt}
			}
			pair.Addresses++
			if len(pair.Examples) < 3 {
				pair.Examples = append(pair.Examples, c.Key)
			}
			present[other] = pair
		}
	}
	for other := range a.told {
		if _, still := present[other]; !still {
			a.gossip.Pair(cluster.Pair{A: a.id, B: other})
		}
	}
	for other, pair := range present {
		if a.told[other] != pair.Addresses {
			a.gossip.Pair(pair)
		}
	}
	clear(a.told)
	for other, pair := range present {
		a.told[other] = pair.Addresses
	}
}
