package scale

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip"
	"github.com/dupip/dupip/tests/scale/simnet"
)

// An agent is the product's own between packets and sockets: a real detector, agent/exchange, agent/probe with
// the real budget, real gossip. Its pods exist in name only: as long as they live, they answer every
// probe at once. The agent sees as many of these answers as the observer records.
type agent struct {
	id       string // NodeID
	gossip   *gossip.Gossip
	endpoint *simnet.Endpoint
	member   *simulatedMember // nil with real memberlists
	detector *detector.Detector
	exchange *exchange.Exchange
	prober   *probe.Prober
	watch    func(node string, e detector.Event)
	count    count
	met      atomic.Int64 // members that have answered

	operations chan func()
	stop       context.CancelFunc
	down       <-chan struct{}
	stopped    sync.WaitGroup

	own  []detector.Key // of the node itself
	vips []detector.Key // the same on its uplink
	// segment is where others answer for these, questions what the agent may ask there.
	segment   *segment
	questions *rate.Limiter
	pods      map[detector.Key]map[detector.HolderID]*detector.Holder
	// answers are the answers that the observer records, of each probed interface.
	answers map[detector.Interface]*rate.Limiter
}

// sender sends no frames: probe has the answers.
type sender struct{}

func (sender) Send(probe.Target) error { return nil }

// count has what an agent did to verify holders since its reset.
type count struct{ probes, refused, requests, questions, unasked atomic.Int64 }

func (c *count) reset() {
	c.probes.Store(0)
	c.refused.Store(0)
	c.requests.Store(0)
}

// newAgent makes the agent of a node that is about to begin.
func newAgent(id string, endpoint *simnet.Endpoint, watch func(node string, e detector.Event)) *agent {
	limits := new(config.Config).Limits()
	a := &agent{
		id: id, endpoint: endpoint, watch: watch,
		operations: make(chan func(), 16),
		pods:       make(map[detector.Key]map[detector.HolderID]*detector.Holder),
		answers:    make(map[detector.Interface]*rate.Limiter),
		questions:  rate.NewLimiter(questionsPerSecond, questionsBurst),
	}
	a.detector = detector.New(detector.Options{Node: id, MaxPerInterface: maxPerInterface, Budget: budget{a}})
	a.prober = probe.New(probe.Options{
		Log: slog.New(slog.DiscardHandler), Sender: sender{}, Bindings: a.detector,
		Budget:   probe.NewBudget(limits.VerifyPerSecond, limits.RefreshPerSecond),
		Solicits: func(string) bool { return true }, Rescan: func(uint32) {},
	})
	a.exchange = exchange.New(exchange.Options{Node: id, Detector: a.detector})
	a.exchange.Configure(func(string) bool { return true }, time.Now())
	a.exchange.Ready(time.Now())
	return a
}

// budget is the prober's, which is made after the detector.
type budget struct{ *agent }

// Reserve implements [detector.Budget].
func (b budget) Reserve(list []detector.Probe, again, now time.Time, yields bool) (until time.Time, all bool) {
	return b.prober.Reserve(list, again, now, yields)
}

// run has the agent take part until ctx ends.
func (a *agent) run(ctx context.Context) {
	a.stopped.Go(func() {
		if err := a.gossip.Run(ctx); err != nil {
			panic(fmt.Sprintf("%s: %v", a.id, err))
		}
	})
	a.stopped.Go(func() {
		timer, lists := time.NewTimer(time.Hour), time.NewTicker(30*time.Second) // as agent/links lists addresses
		defer timer.Stop()
		defer lists.Stop()
		a.listOwn()
		for {
			a.exchange.Publish()
			a.act()
			timer.Stop()
			if at := a.exchange.NextTick(); !at.IsZero() {
				timer.Reset(time.Until(at))
			}
			select {
			case <-ctx.Done():
				return
			case m := <-a.gossip.Messages():
				if query, ok := m.(cluster.Query); ok {
					query.Answer <- []byte{0} // of nothing
				} else {
					a.exchange.Receive(m, time.Now())
				}
			case f := <-a.operations:
				f()
			case <-lists.C:
				a.listOwn()
			case <-timer.C:
				a.exchange.Tick(time.Now())
			}
		}
	})
}

// act carries out what the exchange wants done.
func (a *agent) act() {
	for next := a.exchange.Next(time.Now()); next != nil; next = a.exchange.Next(time.Now()) {
		switch action := next.(type) {
		case detector.Event:
			a.watch(a.id, action)
		case exchange.Probe:
			a.probe(action)
		}
	}
}

// probe probes a pod of this node within the limits.
func (a *agent) probe(p exchange.Probe) {
	now := time.Now()
	if p.Holder == a.host() {
		refusal := a.prober.Allow(p.Probe, p.ForOther, now)
		if refusal == (detector.ProbeRefusal{}) && p.Hear != (detector.MAC{}) {
			a.ask(p, now)
			return
		}
		if a.exchange.Probed(p, refusal, now); refusal == (detector.ProbeRefusal{}) {
			a.seeOwn(p.Key)
		}
		return
	}
	refusal := a.prober.Probe(p.Probe, bpf.VLAN{}, p.ForOther, now)
	a.exchange.Probed(p, refusal, now)
	if refusal != (detector.ProbeRefusal{}) {
		a.count.refused.Add(1)
		return
	}
	a.count.probes.Add(1)
	if holder := a.pods[p.Key][p.Holder]; holder != nil && a.answers[p.Interface].AllowN(now, 1) {
		a.see(p.Key, holder, true)
	}
}

// requests counts the probe requests of an agent.
type requests struct {
	exchange.Cluster
	*count
}

// RequestProbe implements [exchange.Cluster].
func (r requests) RequestProbe(p detector.Probe, own []cluster.Binding) {
	r.requests.Add(1)
	r.Cluster.RequestProbe(p, own)
}

// network is that of one agent. While the node is suspended, nobody gets its status: gossip would wait for it
// with a lock, and virtual time with them.
type network struct {
	gossip.Network
	endpoint *simnet.Endpoint
}

func (n network) Status() cluster.Status {
	n.endpoint.Awake()
	return n.Network.Status()
}

// suspend suspends the node. When it resumes, the packets of its pods come first: they have waited.
func (a *agent) suspend() (resume func()) {
	wake := make(chan struct{})
	a.endpoint.Suspend()
	a.do(func() {
		<-wake
		for key, holders := range a.pods {
			for _, holder := range holders {
				a.see(key, holder, false)
			}
		}
	})
	return func() {
		a.endpoint.Resume()
		close(wake)
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
		if a.answers[holder.Interface] == nil {
			a.answers[holder.Interface] = rate.NewLimiter(200, 400) // as bpf/include/config.h
			a.prober.Follow(probe.Interface{
				Ref: holder.Interface, Holder: holder.ID, Link: &links.Interface{Index: int(holder.Interface.Ifindex), State: links.Attached, Up: true},
			})
		}
		a.see(key, holder, false)
	})
}

// end takes all pods with an address from this node.
func (a *agent) end(key detector.Key) {
	a.do(func() {
		for _, holder := range a.pods[key] {
			now := time.Now()
			a.exchange.Apply(a.detector.WithdrawInterface(holder.Interface, "the pod is gone", now), now)
			a.prober.Forget(holder.Interface)
			delete(a.answers, holder.Interface)
		}
		delete(a.pods, key)
	})
}

// host is the node itself as a holder.
func (a *agent) host() detector.HolderID { return detector.HolderID{Node: a.id, Netns: 1 << 60} }

// listOwn lists the node's own addresses.
func (a *agent) listOwn() {
	for _, key := range slices.Concat(a.own, a.vips) {
		a.seeOwn(key)
	}
}

// seeOwn is an address of the node itself, on a list.
func (a *agent) seeOwn(key detector.Key) {
	holder := detector.Holder{ID: a.host(), Interface: detector.Interface{Ifindex: 2}, InterfaceName: "eth0", MAC: detector.MAC{2, 1}, NetnsName: "host"}
	if slices.Contains(a.vips, key) {
		holder.Place, holder.MAC = detector.PlaceUplink, a.mac()
	}
	a.exchange.Observe(detector.Sighting{Key: key, Holder: holder, Evidence: detector.Host, Answer: true, At: time.Now()}, time.Now())
}

// see is a packet of a pod.
func (a *agent) see(key detector.Key, holder *detector.Holder, answer bool) {
	now := time.Now()
	a.exchange.Observe(detector.Sighting{
		Key: key, Holder: *holder, Evidence: detector.Announced, Answer: answer, At: now,
	}, now)
}
