// Package core joins the parts that make conflicts of what is observed: the table of interfaces, the prober, the detector and the exchange
// with other nodes. It has no goroutine and no clock of its own, so that a search can play many nodes in virtual time.
package core

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/agent/wire"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/schedule"
)

// Options are those of [New]. All but Cluster are required.
type Options struct {
	Log *slog.Logger
	// Observe and Probe are those of the parts. New sets their Log and what they need of each other.
	Observe observe.Options
	Probe   probe.Options
	// ScansMute has pods scanned that nothing answers for, see [probe.Options].
	ScansMute bool
	// MinOverlap is how long two holders must have an address together, NodeOverlap two nodes.
	MinOverlap, NodeOverlap time.Duration
	// Cluster sends to other nodes; nil if there are none.
	Cluster exchange.Cluster
	// Now is the present time.
	Now func() time.Time
	// Forget makes the observer report addresses again.
	Forget func([]bpf.Address) error
	// HostAddresses lists the node's own addresses.
	HostAddresses func() ([]links.HostAddress, error)
	// Ask asks for an address on the segment behind a device of the node. The answers come by [Core.Heard]. nil: nothing is heard there.
	Ask func(device string, ip netip.Addr) error
	// Settled tells the watcher that a pod is set up whose interface waits for that.
	Settled func(generation uint32)
	// Unnamed asks for the names of pods, because one without is verified; nil if nobody knows any.
	Unnamed func()
	// Event is called with each change of a conflict, before the probes that it requires, Ready once all interfaces are known that were
	// there at the start.
	Event func(detector.Event)
	Ready func()
	// Save saves the state.
	Save func()
}

// Core has the parts of one agent. Each may be asked at any time; what a call to one of them requires is done by [Core.Turn]. Not safe for
// concurrent use.
type Core struct {
	Options
	Table    *observe.Table
	Detector *detector.Detector
	Exchange *exchange.Exchange
	Prober   *probe.Prober
	// Strangers are those who were heard with addresses of this node, or of pods of it, on the segment that joins the nodes.
	Strangers wire.Strangers

	forgetting forgetting
	scanning   scanning
	host       hostProbes
	saveAt     time.Time // zero: everything is saved
	savePace   schedule.Pace
}

// New returns a Core that waits for [Core.Configure].
func New(opts Options) *Core {
	node := opts.Observe.Host.Node
	c := &Core{Options: opts, forgetting: forgetting{log: opts.Log, forget: opts.Forget}, scanning: make(scanning)}
	c.Detector = detector.New(detector.Options{Node: node, MinOverlap: opts.MinOverlap, NodeOverlap: opts.NodeOverlap, Budget: budget{c}})
	p := opts.Probe
	p.Log, p.Bindings = opts.Log, c.Detector
	p.Solicits = func(network string) bool { return c.Table.Config().Solicits(network) }
	c.Prober = probe.New(p)
	o := opts.Observe
	o.Log, o.Now = opts.Log, opts.Now
	o.Asked, o.Bindings = c.Prober.Asked, c.Detector.Bindings
	o.Forget = func(r bpf.Record) { c.forgetting.add(r.Address) }
	c.Table = observe.New(o)
	if opts.ScansMute {
		c.Prober.ScanFor = c.Table.ScanFor
	}
	c.Exchange = exchange.New(exchange.Options{Node: node, Detector: c.Detector, Cluster: opts.Cluster, Address: opts.Observe.GossipAddress})
	return c
}

// budget is the prober's, which is made after the detector.
type budget struct{ *Core }

// Reserve implements [detector.Budget].
func (b budget) Reserve(list []detector.Probe, again, now time.Time, yields bool) (until time.Time, all bool) {
	return b.Prober.Reserve(list, again, now, yields)
}

// Turn carries out what the calls since the last one require.
func (c *Core) Turn() {
	for {
		c.Exchange.Publish()
		switch a := c.Exchange.Next(c.Now()).(type) {
		case detector.Event:
			c.event(a)
		case exchange.Probe:
			c.probe(a)
		case exchange.Ended:
			c.ended(a)
		case nil:
			if !c.answerHost() {
				c.forgetting.run()
				return
			}
		}
	}
}

// Next returns when [Core.Tick] has something to do, zero for never.
func (c *Core) Next() time.Time {
	next := c.Table.Next()
	for _, at := range []time.Time{c.Exchange.NextTick(), c.Prober.Next(), c.host.due(), c.saveAt} {
		next = schedule.Earlier(next, at)
	}
	return next
}

// Tick does what is due.
func (c *Core) Tick() {
	now := c.Now()
	c.Exchange.Tick(now)
	c.Table.Tick(now)
	c.Prober.Run(now)
	if !c.saveAt.IsZero() && !c.saveAt.After(now) {
		c.SaveNow()
	}
}

// Record takes what the observer has seen.
func (c *Core) Record(r bpf.Record) {
	if o, ok := c.Table.Record(r); ok {
		c.observed(&o, c.Now())
	}
}

// observed passes an observation to the other parts.
func (c *Core) observed(o *observe.Observation, now time.Time) {
	s := &o.Sighting
	switch o.Kind {
	case observe.Seen:
		c.Prober.Observed(o.Interface, o.VLAN, s, o.To)
		if reason := c.Exchange.Observe(*s, now); reason != "" && c.Log.Enabled(context.Background(), slog.LevelDebug) {
			c.Log.Debug("record dropped", "ip", s.Key.IP, "network", s.Key.Network, "interface", s.Holder.InterfaceName,
				"mac", s.Holder.MAC, "reason", reason)
		}
	case observe.Tentative:
		c.Prober.Tentative(o.Interface, s.Key.IP, o.VLAN, s.At)
	case observe.Withdrawn:
		c.SaveWithin(SaveInterval) // the state has who had the address
		c.Exchange.Apply(c.Detector.Withdraw(s.Key, s.Holder.ID, o.Reason, now), now)
	case observe.Gone:
		c.SaveWithin(SaveInterval)
		c.Exchange.Apply(c.Detector.WithdrawInterface(o.Interface, o.Reason, now), now)
	}
}

func (c *Core) observe(all []observe.Observation, now time.Time) {
	for i := range all {
		c.observed(&all[i], now)
	}
}

// Update takes an event of the watcher.
func (c *Core) Update(event links.Event) {
	now, wasReady := c.Now(), c.Table.Ready()
	i, all := c.Table.Update(event, now)
	if i != nil {
		c.SaveWithin(SaveInterval)
		c.settle(i)
		c.Prober.Follow(probe.Interface{Ref: i.Ref, Holder: i.Holder, Link: i.Interface, Lost: i.Lost})
		for _, a := range c.scanning.take(i.Ref, i.View.Taken) { // before what the scan has found
			c.Exchange.Probed(a, detector.ProbeRefusal{}, i.View.Taken)
		}
	}
	c.observe(all, now)
	switch {
	case i != nil:
		c.expect(i, now)
	case event.Kind == links.Removed:
		ref := detector.Interface{Ifindex: uint32(event.Interface.Index), Generation: event.Interface.Generation}
		c.Prober.Forget(ref)
		delete(c.scanning, ref)
	}
	if !wasReady && c.Table.Ready() {
		c.Exchange.Ready(now)
		c.Ready()
	}
	c.Prober.Run(now)
}

// expect passes the addresses that a pod should answer for to the prober.
func (c *Core) expect(i *observe.Interface, now time.Time) {
	c.Prober.Expect(i.Ref, i.Configured(), i.Left(), now)
}

// settle tells the watcher when a pod is set up whose interface waits for that: CNI has its result once all plugins are done.
func (c *Core) settle(i *observe.Interface) {
	if i.State == links.Waiting && i.Pod.Result.Names(i.Name) {
		c.Settled(i.Generation)
	}
}

// Name sets the name of a pod.
func (c *Core) Name(change pods.Change) {
	now := c.Now()
	named, all := c.Table.Name(change, now)
	c.observe(all, now)
	for _, i := range named {
		c.settle(i)
		c.expect(i, now)
		c.Exchange.Apply(c.Detector.Describe(i.Holder, func(key detector.Key, h *detector.Holder) {
			h.Pod, h.CreatedAt, h.Sandbox = i.Pod.Pod, i.Pod.CreatedAt, i.Pod.Sandbox
			h.Given = i.Given(key.IP)
		}, now), now)
	}
	c.SaveWithin(SaveInterval) // the state has the names of the holders
}

// probe probes a holder of this node.
func (c *Core) probe(a exchange.Probe) {
	switch {
	case a.Hear != (detector.MAC{}):
		c.Exchange.Probed(a, c.ask(a, c.Now()), c.Now())
		return
	case a.Holder == c.Table.Host:
		c.probeHost(a)
		return
	}
	refusal, now := detector.ProbeRefusal{Reason: "the interface is gone"}, c.Now()
	if i := c.Table.Interface(a.Interface); i != nil {
		if i.Pod.Pod == (detector.Pod{}) && a.Purpose == detector.Verify && c.Unnamed != nil {
			c.Unnamed()
		}
		refusal.Reason = "the interface has left the network"
		if vlan, ok := i.VLAN(a.Key); ok {
			refusal = c.Prober.Probe(a.Probe, vlan, a.ForOther, now)
			if refusal == (detector.ProbeRefusal{}) && i.Mute() != "" {
				c.scanning.add(a, now)
				return
			}
		}
	}
	c.Exchange.Probed(a, refusal, now)
}

// event saves a change of a conflict, later, and reports it.
func (c *Core) event(e detector.Event) {
	if e.Conflict.State == detector.Suspected {
		c.SaveWithin(SaveInterval)
	} else {
		c.SaveWithin(SaveDelay)
	}
	c.Event(e)
}

// Configure applies a configuration, at the start and after each reload.
func (c *Core) Configure(conf *config.Config) {
	limits, now := conf.Limits(), c.Now()
	c.Detector.SetLimits(limits.Bindings, limits.BindingsPerInterface, limits.History)
	c.Prober.Budget = probe.NewBudget(limits.VerifyPerSecond, limits.RefreshPerSecond)
	c.Exchange.Apply(c.Detector.SetShared(func(key detector.Key) bool { return conf.Shared(key.IP) }, now), now)
	c.observe(c.Table.Configure(conf, now), now)
	c.Exchange.Configure(func(network string) bool { return conf.Scope(network) == config.Cluster }, now)
	for i := range c.Table.All() {
		c.expect(i, now)
	}
	c.Prober.Run(now)
}

// Restore restores the conflicts of an earlier agent; the open ones are verified again. dropped is how many are unusable.
func (c *Core) Restore(snapshot detector.Snapshot) (dropped int) {
	now := c.Now()
	effects, dropped := c.Detector.Restore(snapshot, now)
	c.Exchange.Apply(effects, now)
	c.SaveWithin(SaveDelay) // finds out early whether the directory can be written
	return dropped
}

// The delays before changes are saved. Suspicions and names have the longer one: most suspicions end
// sooner, and losing them does little harm.
const (
	SaveDelay    = time.Second
	SaveInterval = 10 * time.Second
)

// SaveWithin saves the state after wait at the latest, or later if it takes long to gather it.
func (c *Core) SaveWithin(wait time.Duration) {
	c.saveAt = schedule.Earlier(c.saveAt, c.savePace.Next(c.Now().Add(wait)))
}

// SaveNow saves the state.
func (c *Core) SaveNow() {
	began := c.Now()
	c.saveAt = time.Time{}
	c.Save()
	c.savePace.Done(began, c.Now())
}

// forgetting has the addresses that the observer must forget, because another part has dropped what it
// knew of them. Otherwise the observer would not report them again for up to 30 s.
type forgetting struct {
	log    *slog.Logger
	forget func([]bpf.Address) error // [bpf.Observer.Forget]
	list   []bpf.Address
	failed bool
}

func (f *forgetting) add(address bpf.Address) { f.list = append(f.list, address) }

// run makes the observer forget the addresses of one turn.
func (f *forgetting) run() {
	if len(f.list) == 0 {
		return
	}
	err := f.forget(f.list)
	f.list = nil
	if failed := err != nil && !errors.Is(err, os.ErrClosed); failed != f.failed {
		if f.failed = failed; failed {
			f.log.Warn("removing addresses that have gone from the BPF map failed; if they come back, they are seen up to 30 s late", "error", err)
		}
	}
}

// ended makes the observer forget bindings that have ended, so that their next packets make records, and
// probes the addresses that are still configured in their pods.
func (c *Core) ended(all exchange.Ended) {
	for _, e := range all {
		if i := c.Table.Interface(e.Interface); i != nil { // else the observer has forgotten it with the interface
			for _, vlan := range i.VLANs(e.Key.Network) {
				c.forgetting.add(bpf.Address{Ifindex: e.Interface.Ifindex, Generation: e.Interface.Generation, IP: e.Key.IP, VLAN: vlan})
			}
		}
		for i := range c.Table.All() { // it may have been known through one of the pod's interfaces only
			if i.Holder != e.Holder {
				continue
			}
			if vlan, ok := i.Configures(e.Key); ok {
				c.Prober.Reprobe(i.Ref, e.Key, vlan, c.Now())
			}
		}
	}
}
