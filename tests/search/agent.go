package search

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/cmd/reporter/events"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
	"github.com/dupip/dupip/gossip"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/internal/schedule"
)

// agent is one run of an agent, or of a reporter, which only takes reports.
type agent struct {
	m        *machine
	w        *world
	member   members.Member
	handler  members.Handler // of its gossip
	gossip   *gossip.Gossip
	detector *detector.Detector
	exchange *exchange.Exchange
	prober   *probe.Prober

	inputs  []func(now time.Time)
	stalled time.Duration // until then it gets no time
	resumed bool          // the machine was suspended
	wake    *task
	running bool
	ready   bool
	saveAt  time.Time
	planner *events.Planner // of a reporter
}

var quiet = slog.New(slog.DiscardHandler)

// start starts an agent, without the state of the former one if it is to be fresh.
func (m *machine) start(fresh bool) {
	if m.agent != nil || m.frozen || m.off {
		return
	}
	m.life++
	if fresh {
		m.file = nil
	}
	w := m.w
	a := &agent{m: m, w: w}
	a.member = members.Member{Member: cluster.Member{Name: m.name, Boot: m.boot, Epoch: int64(m.life), Role: m.role, Address: m.at}}
	a.member.ID = wire.MemberIDOf(m.name, m.boot, a.member.Epoch)
	var err error
	a.gossip, err = gossip.New(gossip.Options{
		Members: members.Options{Log: quiet, Node: m.name, Boot: m.boot, Epoch: a.member.Epoch, Role: m.role},
		Open: func(o members.Options) (gossip.Network, error) {
			a.handler = o.Handler
			return (*endpoint)(a), nil
		},
		Now: m.clock, Random: func(most time.Duration) time.Duration { return w.between(0, most) },
	})
	if err != nil {
		panic(err) // the options are ours
	}
	limits := new(config.Config).Limits()
	a.detector = detector.New(detector.Options{Node: m.id()})
	a.prober = probe.New(probe.Options{
		Log: quiet, Sender: (*sender)(a), Bindings: a.detector, Budget: probe.NewBudget(limits.VerifyPerSecond, limits.RefreshPerSecond),
		Solicits: func(string) bool { return true }, Rescan: func(uint32) {},
	})
	a.exchange = exchange.New(exchange.Options{Node: m.id(), Detector: a.detector, Cluster: a.gossip})
	a.exchange.Configure(func(string) bool { return true }, m.clock())
	m.agent = a
	w.truth.starts(a, fresh)
	w.members.starts(a)
	if m.role == cluster.Agent {
		a.restore()
		m.after(w.between(100*time.Millisecond, 1500*time.Millisecond), func() { a.begin() })
	} else {
		a.planner = events.New(m.name, "dupip", events.DefaultRenew, everywhere)
		a.plan()
	}
	a.run()
}

// everywhere: all networks span the cluster.
var everywhere = merge.Rules{ClusterWide: func(string) bool { return true }, Shared: func(netip.Addr) bool { return false }}

// plan tells a reporter from time to time who is there.
func (a *agent) plan() {
	a.m.after(10*time.Second, func() {
		if a.m.agent == a {
			a.planner.Members(a.gossip.Members(), a.m.clock())
			a.plan()
		}
	})
}

// restore restores what the former agent has saved.
func (a *agent) restore() {
	if a.m.file == nil {
		return
	}
	now := a.m.clock()
	s, invalid, err := state.Decode(a.m.file, a.options(), now)
	if err != nil || len(invalid) > 0 {
		a.w.truth.broke("state", "the state cannot be read: %v %v", err, invalid)
		return
	}
	effects, dropped := a.detector.Restore(s.Snapshot, now)
	if dropped > 0 {
		a.w.truth.broke("state", "%d conflicts of the state cannot be restored", dropped)
	}
	a.exchange.Apply(effects, now)
}

func (a *agent) options() state.Options { return state.Options{Node: a.m.name, BootID: a.m.boot} }

// begin observes the pods that are there.
func (a *agent) begin() {
	if a.m.agent != a {
		return
	}
	a.input(func(now time.Time) {
		for _, p := range a.m.pods {
			if !p.gone {
				a.follow(p)
			}
		}
		a.ready = true
		a.exchange.Ready(now)
		a.w.truth.ready(a)
	})
}

// stop ends the agent, in order or not.
func (m *machine) stop(orderly bool) {
	a := m.agent
	if a == nil || m.frozen {
		return
	}
	m.life++
	if orderly && m.role == cluster.Agent {
		a.save()
	}
	m.agent = nil
	m.w.truth.stops(a, orderly)
	m.w.members.stops(a, orderly)
}

// input is something that the agent handles in its next turn.
func (a *agent) input(do func(now time.Time)) {
	a.inputs = append(a.inputs, do)
	a.wakeAt(a.w.now + a.w.between(20*time.Microsecond, time.Millisecond))
}

// see is a packet of a pod that the observer reports.
func (a *agent) see(p *pod, evidence detector.Evidence, answer bool) {
	if !a.ready {
		return // the interface is not observed yet
	}
	s := detector.Sighting{Key: p.key, Holder: p.holder(), Evidence: evidence, Answer: answer, At: a.m.clock()}
	a.input(func(now time.Time) {
		if !p.gone {
			a.prober.Observed(p.iface, bpf.VLAN{}, &s)
			a.exchange.Observe(s, now)
		}
	})
}

// follow observes a pod's interface, and the address that it has.
func (a *agent) follow(p *pod) {
	a.prober.Follow(probe.Interface{
		Ref: p.iface, Holder: p.holder().ID, Link: &links.Interface{Index: int(p.iface.Ifindex), State: links.Attached, Up: true},
	})
	a.prober.Expect(p.iface, p.configured, func(func(detector.Key, bpf.VLAN) bool) {}, a.m.clock())
}

// configured is the address of a pod, if its kernel has it.
func (p *pod) configured(yield func(detector.Key, bpf.VLAN) bool) {
	if p.has {
		yield(p.key, bpf.VLAN{})
	}
}

// wakeAt has the agent run at a time or before.
func (a *agent) wakeAt(at time.Duration) {
	if a.wake != nil && !a.wake.dropped && a.wake.at <= at && a.wake.at >= a.w.now {
		return
	}
	if a.wake != nil {
		a.wake.dropped = true
	}
	a.wake = a.w.at(at, func() { a.wake = nil; a.run() })
}

// run has the agent do all that is due, in the order in which agent.loop does it.
func (a *agent) run() {
	if a.m.agent != a || a.m.frozen || a.running {
		return
	}
	if a.w.now < a.stalled {
		a.wakeAt(a.stalled)
		return
	}
	a.running = true
	defer func() { a.running = false }()
	now := a.m.clock()
	var next time.Time
	for busy := true; busy; {
		inputs := a.inputs
		a.inputs = nil
		for _, do := range inputs {
			do(now)
		}
		a.act(now)
		for more := true; more; {
			select {
			case m := <-a.gossip.Messages():
				a.receive(m, now)
				a.act(now)
			default:
				more = false
			}
		}
		for n := 0; a.isDue(now); n++ {
			if n == 8 || a.detector.Counts().Overdue > 0 {
				a.w.truth.broke("overdue", "%s: something is still due when all is done", a.m.label)
				return
			}
			a.exchange.Tick(now)
			a.prober.Run(now)
			if !a.saveAt.IsZero() && !a.saveAt.After(now) {
				a.save()
			}
			a.act(now)
		}
		next = a.gossip.Turn(a.resumed, now)
		a.resumed = false
		busy = len(a.inputs) > 0 || len(a.gossip.Messages()) > 0
	}
	next = schedule.Earlier(next, a.due())
	a.wakeAt(a.w.now + max(next.Sub(now), 10*time.Microsecond))
}

func (a *agent) due() time.Time {
	return schedule.Earlier(schedule.Earlier(a.exchange.NextTick(), a.prober.Next()), a.saveAt)
}

func (a *agent) isDue(now time.Time) bool {
	at := a.due()
	return !at.IsZero() && !at.After(now)
}

// receive takes a message of another node.
func (a *agent) receive(m cluster.Message, now time.Time) {
	report, ok := m.(cluster.Report)
	if !ok {
		a.exchange.Receive(m, now)
		return
	}
	c, err := document.DecodeReport(report.Conflict, report.Node, now)
	if err != nil {
		a.w.truth.broke("report", "a report of %s is refused: %v", report.Node, err)
		return
	}
	a.planner.Conflict(report, c, now)
}

// act carries out what the exchange wants done.
func (a *agent) act(now time.Time) {
	a.exchange.Publish()
	for next := a.exchange.Next(now); next != nil; next = a.exchange.Next(now) {
		switch action := next.(type) {
		case detector.Event:
			a.event(action, now)
		case exchange.Probe:
			a.exchange.Probed(action, a.prober.Probe(action.Probe, bpf.VLAN{}, action.ForOther, now), now)
		case exchange.Ended:
			for _, e := range action {
				a.ended(e, now)
			}
		}
		a.exchange.Publish()
	}
}

// event is a step of a conflict.
func (a *agent) event(e detector.Event, now time.Time) {
	a.w.truth.event(a, e)
	wait := time.Second
	if e.Conflict.State == detector.Suspected {
		wait = 10 * time.Second
	} else if a.w.plan.Reporter && !e.Conflict.IsDrill() {
		doc := document.NewConflict(e.Conflict)
		a.gossip.ReportConflict(e.Conflict.Key, e.Conflict.State == detector.Confirmed, doc.EncodeReport)
	}
	a.saveAt = schedule.Earlier(a.saveAt, now.Add(wait))
}

// ended is a binding that has ended: the observer reports the pod's next packet.
func (a *agent) ended(e detector.Ended, now time.Time) {
	for _, p := range a.m.pods {
		if p.gone || p.iface != e.Interface || !p.has {
			continue
		}
		a.prober.Reprobe(p.iface, p.key, bpf.VLAN{}, now)
		if since := p.since; !p.quiet {
			a.m.after(a.w.between(0, 2*time.Second), func() {
				if p.has && p.since == since && a.m.agent == a {
					a.see(p, detector.Data, false)
				}
			})
		}
	}
}

// save writes the state.
func (a *agent) save() {
	a.saveAt = time.Time{}
	a.m.file = state.Encode(state.State{Snapshot: a.detector.Snapshot()}, a.options(), a.m.clock())
	a.w.truth.saved(a)
}

// sender has the agent's probes arrive at its pods.
type sender agent

// Send implements [probe.Sender].
func (s *sender) Send(to probe.Target) error {
	for _, p := range s.m.pods {
		if int(p.iface.Ifindex) == to.Ifindex && !p.gone {
			s.m.after(s.w.between(20*time.Microsecond, 300*time.Microsecond), func() { p.asked(detector.Key{Network: "default", IP: to.IP}) })
		}
	}
	return nil
}
