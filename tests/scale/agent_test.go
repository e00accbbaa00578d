package scale

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/peer"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip"
)

// An agent is the product's own between packets and sockets: a real detector, agent/peer with
// the real probe budget, real gossip. Its pods exist in name only: as long as they live, they
// answer every probe at once.
type agent struct {
	id       string // NodeID
	gossip   *gossip.Gossip
	member   *simulatedMember // nil with real memberlists
	detector *detector.Detector
	peer     *peer.Peer
	budget   *probe.Budget
	watch    func(node string, e detector.Event)

	operations chan func()
	stop       context.CancelFunc
	down       <-chan struct{}
	stopped    sync.WaitGroup

	pods map[detector.Key]map[detector.HolderID]*detector.Holder
}

// newAgent makes the agent of a node that is about to begin.
func newAgent(id string, watch func(node string, e detector.Event)) *agent {
	limits := new(config.Config).Limits()
	a := &agent{
		id: id, watch: watch,
		detector:   detector.New(detector.Options{Node: id}),
		budget:     probe.NewBudget(limits.VerifyPerSecond, limits.RefreshPerSecond),
		operations: make(chan func(), 16),
		pods:       make(map[detector.Key]map[detector.HolderID]*detector.Holder),
	}
	a.peer = peer.New(peer.Options{Node: id, Detector: a.detector})
	a.peer.Configure(func(string) bool { return true }, time.Now())
	a.peer.Ready(time.Now())
	return a
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
			a.peer.Publish()
			a.act()
			timer.Stop()
			if at := a.peer.NextTick(); !at.IsZero() {
				timer.Reset(time.Until(at))
			}
			select {
			case <-ctx.Done():
				return
			case m := <-a.gossip.Messages():
				if query, ok := m.(cluster.Query); ok {
					a.gossip.Reply(query.ID, cluster.Document{})
				} else {
					a.peer.Receive(m, time.Now())
				}
			case f := <-a.operations:
				f()
			case <-timer.C:
				a.peer.Tick(time.Now())
			}
		}
	})
}

// act carries out what the peer wants done.
func (a *agent) act() {
	for next := a.peer.Next(time.Now()); next != nil; next = a.peer.Next(time.Now()) {
		switch action := next.(type) {
		case detector.Event:
			a.watch(a.id, action)
		case peer.Probe:
			a.probe(action)
		default:
			peer.Send(action, a.gossip)
		}
	}
}

// probe probes a pod of this node within the budget.
func (a *agent) probe(p peer.Probe) {
	now := time.Now()
	if !a.budget.Allow(p.Purpose, p.ForOther, now) {
		a.peer.Probed(p, peer.Refusal{Reason: "rate limit", Until: now.Add(100 * time.Millisecond), Budget: true}, now)
		return
	}
	a.peer.Probed(p, peer.Refusal{}, now)
	if holder := a.pods[p.Key][p.Holder]; holder != nil {
		a.see(p.Key, holder, true)
	}
}

// do has the loop do something, unless the agent is down.
func (a *agent) do(f func()) {
	select {
	case a.operations <- f:
	case <-a.down:
	}
}

// start gives an address to a pod of this node, which announces it.
func (a *agent) start(key detector.Key, netns uint64) {
	a.do(func() {
		holder := &detector.Holder{
			ID:            detector.HolderID{Node: a.id, Netns: netns},
			Interface:     detector.Interface{Ifindex: uint32(netns), Generation: uint32(netns)},
			InterfaceName: fmt.Sprintf("veth%d", netns),
			MAC:           detector.MAC{2, 0, byte(netns >> 24), byte(netns >> 16), byte(netns >> 8), byte(netns)},
			NetnsName:     fmt.Sprintf("netns-%d", netns),
			Pod:           detector.Pod{Namespace: "scale", Name: fmt.Sprintf("pod-%d", netns)},
		}
		if a.pods[key] == nil {
			a.pods[key] = make(map[detector.HolderID]*detector.Holder)
		}
		a.pods[key][holder.ID] = holder
		a.see(key, holder, false)
	})
}

// end takes all pods with an address from this node.
func (a *agent) end(key detector.Key) {
	a.do(func() {
		for _, holder := range a.pods[key] {
			now := time.Now()
			a.peer.Apply(a.detector.WithdrawInterface(holder.Interface, "the pod is gone", now), now)
		}
		delete(a.pods, key)
	})
}

// see is a packet of a pod.
func (a *agent) see(key detector.Key, holder *detector.Holder, answer bool) {
	now := time.Now()
	a.peer.Observe(detector.Sighting{
		Key: key, Holder: *holder, Evidence: detector.Announced, Answer: answer, At: now,
	}, now)
}
