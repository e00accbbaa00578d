package search

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/core"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/pods"
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
	m       *machine
	w       *world
	member  members.Member
	handler members.Handler // of its gossip
	gossip  *gossip.Gossip
	*core.Core
	scanning map[*pod]bool
	named    map[uint64]bool // the runtime has told, or will

	inputs  []func()
	stalled time.Duration // until then it gets no time
	resumed bool          // the machine was suspended
	wake    *task
	running bool
	ready   bool
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
	a := &agent{m: m, w: w, scanning: make(map[*pod]bool), named: make(map[uint64]bool)}
	a.member = members.Member{Member: cluster.Member{Name: m.name, Boot: m.boot, Epoch: int64(m.life), Role: m.role, Address: m.at}}
	if m.liar != nil {
		a.member.Epoch += 1 << 20 // it may have another one's name and boot, and be a later agent there
	}
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
	a.Core = core.New(core.Options{
		Log: quiet, Cluster: a.gossip, Now: m.clock, ScansMute: true,
		Observe: observe.Options{
			Host: detector.HolderID{Node: m.id(), Netns: 1}, TimeOf: began.Add,
			Pod: a.name, ByHostEnd: func(string) (pods.Change, bool) { return pods.Change{}, false },
			Leads:    func(*links.Interface, netip.Addr) bool { return false },
			Counters: func(int) (bpf.Counters, error) { return bpf.Counters{}, nil },
			Rescan:   a.rescan,
		},
		Probe:  probe.Options{Sender: (*sender)(a), Source: [3]byte{2, 0xd0}, Rescan: a.rescan},
		Forget: a.forget, HostAddresses: func() ([]links.HostAddress, error) { return nil, nil }, Settled: func(uint32) {},
		Event: a.event, Ready: func() { w.truth.ready(a) }, Save: a.save,
	})
	m.agent = a
	w.truth.starts(a, fresh)
	if m.role == cluster.Agent {
		a.restore()
		m.after(w.between(100*time.Millisecond, 1500*time.Millisecond), func() { a.begin() })
	} else {
		a.Configure(new(config.Config))
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

// restore restores what the former agent has saved, and configures the agent.
func (a *agent) restore() {
	var s state.State
	if a.m.file != nil {
		var invalid []error
		var err error
		if s, invalid, err = state.Decode(a.m.file, a.options(), a.m.clock()); err != nil || len(invalid) > 0 {
			a.w.truth.broke("state", "the state cannot be read: %v %v", err, invalid)
			return
		}
	}
	a.Table.Origins.Restore(s.Interfaces)
	a.Configure(new(config.Config))
	if dropped := a.Restore(s.Snapshot); dropped > 0 {
		a.w.truth.broke("state", "%d conflicts of the state cannot be restored", dropped)
	}
}

func (a *agent) options() state.Options { return state.Options{Node: a.m.name, BootID: a.m.boot} }

// begin observes the pods that are there.
func (a *agent) begin() {
	if a.m.agent != a {
		return
	}
	a.input(func() {
		a.ready = true
		for _, p := range a.m.pods {
			if !p.gone {
				a.discover(p)
			}
		}
		a.Update(links.Event{Kind: links.HostAddresses})
	})
}

// discover finds a pod that was there before the agent, which takes its time on a busy machine.
func (a *agent) discover(p *pod) {
	a.scanning[p] = true
	least, most := time.Duration(0), 2*time.Second
	if a.w.chance(0.25) { // it has 5 s before it must know what it holds
		least, most = 3*time.Second, 4800*time.Millisecond
	}
	a.m.after(a.w.between(least, most), func() {
		delete(a.scanning, p)
		if a.m.agent == a && !p.gone {
			link := p.link(true)
			a.input(func() { a.Update(links.Event{Kind: links.Changed, Interface: link}) })
		}
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
		a.SaveNow()
	}
	m.agent = nil
	m.w.truth.stops(a, orderly)
	m.w.members.stops(a, orderly)
}

// input is something that the agent handles in its next turn.
func (a *agent) input(do func()) {
	a.inputs = append(a.inputs, do)
	a.wakeAt(a.w.now + a.w.between(20*time.Microsecond, time.Millisecond))
}

// record is a packet of a pod, as the observer records it.
func (a *agent) record(p *pod, kind bpf.Kind, to [6]byte) {
	if !a.ready {
		return // its interface is not observed yet
	}
	r := bpf.Record{
		Address: bpf.Address{Ifindex: p.iface.Ifindex, Generation: p.iface.Generation, IP: p.key.IP}, Time: a.m.clock().Sub(began), Kind: kind,
		MAC: [6]byte{2, 0, 0, 0, byte(p.netns >> 8), byte(p.netns)}, To: to,
	}
	a.input(func() { a.Record(r) })
}

// scan scans the netns of a pod, which takes a moment.
func (a *agent) scan(p *pod) {
	if !a.ready || p.gone || a.scanning[p] {
		return
	}
	a.scanning[p] = true
	a.m.after(a.w.between(0, 5*time.Millisecond), func() {
		delete(a.scanning, p)
		link := p.link(false)
		a.m.after(a.w.between(time.Millisecond, 40*time.Millisecond), func() {
			if a.m.agent == a && !p.gone {
				a.input(func() { a.Update(links.Event{Kind: links.Changed, Interface: link}) })
			}
		})
	})
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

// run has the agent do all that is due.
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
			do()
		}
		a.Turn()
		for len(a.gossip.Messages()) > 0 {
			a.receive(<-a.gossip.Messages(), now)
			a.Turn()
		}
		for n := 0; !a.Next().IsZero() && !a.Next().After(now); n++ {
			if n == 2 || a.Detector.Counts().Overdue > 0 {
				a.w.truth.broke("overdue", "%s: something is still due when all is done", a.m.label)
				return
			}
			a.Tick()
			a.Turn()
		}
		next = a.gossip.Turn(a.resumed, now)
		a.resumed = false
		busy = len(a.inputs) > 0 || len(a.gossip.Messages()) > 0
	}
	next = schedule.Earlier(next, a.Next())
	a.wakeAt(a.w.now + max(next.Sub(now), 10*time.Microsecond))
}

// receive takes a message of another node.
func (a *agent) receive(m cluster.Message, now time.Time) {
	report, ok := m.(cluster.Report)
	if !ok {
		a.Exchange.Receive(m, now)
		return
	}
	c, err := document.DecodeReport(report.Conflict, report.Node, now)
	if err != nil {
		a.w.truth.broke("report", "a report of %s is refused: %v", report.Node, err)
		return
	}
	a.planner.Conflict(report, c, now)
}

// event is a step of a conflict.
func (a *agent) event(e detector.Event) {
	a.w.truth.event(a, e)
	if e.Conflict.State != detector.Suspected && a.w.plan.Reporter && !e.Conflict.IsDrill() {
		doc := document.NewConflict(e.Conflict)
		a.gossip.ReportConflict(e.Conflict.Key, e.Conflict.State == detector.Confirmed, doc.EncodeReport)
	}
}

// forget has the observer report the next packet of a pod.
func (a *agent) forget(all []bpf.Address) error {
	for _, address := range all {
		for _, p := range a.m.pods {
			if since := p.since; p.iface == (detector.Interface{Ifindex: address.Ifindex, Generation: address.Generation}) && !p.quiet {
				a.m.after(a.w.between(0, 2*time.Second), func() { p.sends(bpf.Data, since, [6]byte{}) })
			}
		}
	}
	return nil
}

// name returns the pod in a netns, or asks the runtime, which takes its time.
func (a *agent) name(cookie uint64) (pods.Change, bool) {
	i := slices.IndexFunc(a.m.pods, func(p *pod) bool { return p.netns == cookie })
	if i < 0 {
		return pods.Change{}, false
	}
	name := a.m.pods[i].known()
	if told, asked := a.named[cookie]; told || asked {
		return name, told
	}
	a.named[cookie] = false
	a.m.after(a.w.between(0, 3*time.Second), func() {
		if a.named[cookie] = true; a.m.agent == a {
			a.input(func() { a.Name(name) })
		}
	})
	return pods.Change{}, false
}

// rescan has the netns behind an interface scanned again.
func (a *agent) rescan(generation uint32) {
	for _, p := range a.m.pods {
		if p.iface.Generation == generation {
			a.scan(p)
		}
	}
}

// save writes the state.
func (a *agent) save() {
	a.m.file = state.Encode(state.State{Snapshot: a.Detector.Snapshot(), Interfaces: a.Table.Origins.Saved(a.Table.Ready())}, a.options(), a.m.clock())
	a.w.truth.saved(a)
}

// sender has the agent's probes arrive at its pods.
type sender agent

// Send implements [probe.Sender].
func (s *sender) Send(to probe.Target) error {
	for _, p := range s.m.pods {
		if int(p.iface.Ifindex) == to.Ifindex && !p.gone {
			s.m.after(s.w.between(20*time.Microsecond, 300*time.Microsecond), func() { p.asked(detector.Key{Network: "default", IP: to.IP}, to.Source) })
		}
	}
	return nil
}
