// Package probe decides which addresses a node probes in its own pods, when and how often, and sends the ARP probes and neighbour
// solicitations. It owns the guards that keep a probe from hurting a pod, the budget, and the pending probes of addresses that a silent
// pod has configured.
//
// It does not read answers; they come back through the observer. It knows nothing about other nodes
// and conflicts.
package probe

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/schedule"
)

const (
	// The probes of one interface are limited, so that a pod with many addresses leaves most of the node's budget to others. The limits are
	// lower than the observer's limits for answers (bpf/include/config.h): an answer that is not recorded would count as silence.
	interfaceRate  = 180 // per second
	interfaceBurst = 360
)

// The reasons for which probes are dropped, delayed or not remembered, as they are counted.
const (
	DroppedAddresses = "too many addresses"
	DroppedRate      = "solicitation rate"
	droppedTentative = "memory of a pod's own probes full"
)

// Sender sends one probe and does not block. [unix.ENETDOWN], [unix.ENXIO] and [unix.ENODEV]
// mean that the interface is down or gone.
type Sender interface {
	Send(Target) error
}

// Bindings is what the prober reads from the binding table.
type Bindings interface {
	// Holds reports whether the holder has a binding of the key that counts.
	Holds(key detector.Key, id detector.HolderID) bool
	// SuppressedUntil returns until when announcements of the holder are suppressed, zero if they
	// are not.
	SuppressedUntil(key detector.Key, id detector.HolderID) time.Time
}

// Options configures a [Prober]. All fields but ScanFor and Budget must be set.
type Options struct {
	Log      *slog.Logger
	Sender   Sender
	Bindings Bindings
	// Source is what the sources of all probes begin with, see [Source].
	Source [3]byte
	// Budget must be set before the first probe, and may be replaced.
	Budget *Budget
	// Solicits reports whether probes may be sent in a network.
	Solicits func(network string) bool
	// Rescan requests a new scan of the netns behind an interface.
	Rescan func(generation uint32)
	// ScanFor has the kernel of a pod scanned that nothing answers for ([links.Interface.Mute]): if it uses the address, that
	// is observed like an answer. It is nil if that must not count; then such addresses are not probed.
	ScanFor func(ref detector.Interface, ip netip.Addr, vlan bpf.VLAN, now time.Time)
}

// Interface is what the prober needs to know about an interface.
type Interface struct {
	Ref    detector.Interface
	Holder detector.HolderID
	// Link must not be modified; a changed interface has a new Link.
	Link *links.Interface
	// Lost is when the last reference to the netns disappeared, zero while there is one.
	Lost time.Time
}

// Prober sends the probes of a node. It is not safe for concurrent use.
type Prober struct {
	Options
	interfaces map[detector.Interface]*state
	turns      schedule.Schedule[*state] // the interfaces with pending probes
	served     uint64                    // how many turns there were
	paused     time.Time                 // pending probes wait until then for the node's budget
	reserved   reserved
	asked      asked
	sent       map[detector.Purpose]uint64
	dropped    map[string]uint64
}

// state is the state of one interface.
type state struct {
	Interface
	schedule.Place
	// tentative has the addresses that the pod itself is probing, with the time.
	tentative map[address]time.Time
	pending   map[address]*pending
	due       schedule.Schedule[*pending]
	// turn is when the next pending probe may be sent, and never before notBefore. served is the number
	// of the last turn.
	turn, notBefore time.Time
	served          uint64
	limit           bucket // of all probes on the interface
}

// address is an address behind an interface in one VLAN.
type address struct {
	ip   netip.Addr
	vlan bpf.VLAN
}

// New returns a Prober.
func New(opts Options) *Prober {
	return &Prober{
		Options:    opts,
		interfaces: make(map[detector.Interface]*state),
		reserved:   make(reserved),
		asked:      asked{prefix: opts.Source, all: make(map[[6]byte]ask)},
		sent:       make(map[detector.Purpose]uint64),
		dropped:    map[string]uint64{DroppedAddresses: 0, DroppedRate: 0, droppedTentative: 0},
	}
}

// Sent counts the probes that were sent, by purpose.
func (p *Prober) Sent() map[detector.Purpose]uint64 { return maps.Clone(p.sent) }

// Dropped counts the probes that were dropped or delayed, by reason.
func (p *Prober) Dropped() map[string]uint64 { return maps.Clone(p.dropped) }

// Follow adds or updates an interface.
func (p *Prober) Follow(i Interface) {
	s := p.interfaces[i.Ref]
	if s == nil {
		s = &state{
			tentative: make(map[address]time.Time),
			pending:   make(map[address]*pending),
			limit:     newBucket(interfaceRate, interfaceBurst),
		}
		p.interfaces[i.Ref] = s
	}
	if s.Link != nil && (s.Holder != i.Holder || unobserved(s.Link.State) && !unobserved(i.Link.State) || i.Link.Up && !s.Link.Up) {
		for _, probe := range s.pending { // the pod did not get the earlier probes, or could not answer
			p.drop(s, probe)
		}
	}
	s.Interface = i
}

// unobserved reports whether answers on an interface are not seen.
func unobserved(s links.State) bool { return s == links.Waiting || s == links.Failed }

// Expect sets the addresses that a pod has configured on an interface, and those that have just left
// a pod without other addresses. Those without a binding are probed: the answer of a silent pod makes
// its binding, not its configuration.
func (p *Prober) Expect(ref detector.Interface, configured, left iter.Seq2[detector.Key, bpf.VLAN], now time.Time) {
	s := p.interfaces[ref]
	if s == nil {
		return
	}
	present := make(map[address]bool)
	for key, vlan := range configured {
		present[address{key.IP, vlan}] = true
		p.add(s, key, vlan, now)
	}
	for a, probe := range s.pending {
		if !present[a] && !probe.removed {
			p.drop(s, probe)
		}
	}
	for key, vlan := range left {
		if len(s.pending) >= maxRemoved {
			p.dropped[DroppedAddresses]++
		} else if probe := p.add(s, key, vlan, now); probe != nil {
			probe.removed = true
		}
	}
}

// Forget drops an interface that is gone.
func (p *Prober) Forget(ref detector.Interface) {
	if s := p.interfaces[ref]; s != nil {
		p.turns.Remove(s)
		delete(p.interfaces, ref)
	}
}

// Reprobe probes a configured address whose binding has ended: frames may have been lost, or the pod
// was frozen, and may stay silent. While announcements of the holder are suppressed, it waits.
func (p *Prober) Reprobe(ref detector.Interface, key detector.Key, vlan bpf.VLAN, now time.Time) {
	if s := p.interfaces[ref]; s != nil {
		if until := p.Bindings.SuppressedUntil(key, s.Holder); until.After(now) {
			now = until
		}
		p.add(s, key, vlan, now)
	}
}

// Observed ends the pending probe of an address that was announced on an interface, and the guard of
// an address that the pod was probing itself. An announcement of a suppressed holder ends no pending
// probe. to is the MAC that an answer was sent to.
func (p *Prober) Observed(ref detector.Interface, vlan bpf.VLAN, s *detector.Sighting, to [6]byte) {
	i := p.interfaces[ref]
	if i == nil {
		return
	}
	if s.Answer {
		p.time(i, s, to)
	}
	if s.Evidence != detector.Announced && s.Evidence != detector.Configured {
		return
	}
	a := address{s.Key.IP, vlan}
	if !s.At.Before(i.tentative[a]) { // a packet may have waited for a scan
		delete(i.tentative, a)
	}
	if i.pending[a] != nil && (s.Answer || !p.Bindings.SuppressedUntil(s.Key, i.Holder).After(s.At)) {
		p.drop(i, i.pending[a])
	}
}

// time finds out whose question an answer is for and, if it is ours, how long it took. One that was sent to a source of ours and not in time is
// an announcement: so a slow holder is slow for every node, and its answer to one does not pass for a prompt one to another. So is one to a source
// that is not known: somebody has made that up, or it is from long ago.
func (p *Prober) time(i *state, s *detector.Sighting, to [6]byte) {
	_, sent, ours := p.Asked(to)
	took := max(0, s.At.Sub(sent))
	if p.debug() {
		p.logReply(i, s, took)
	}
	switch {
	case s.Evidence == detector.Configured || !s.Evidence.Counts():
	case !ours:
		s.Overheard = true
	case sent.IsZero():
		s.Answer = false
	case took > detector.AnswerTime:
		s.Answer, s.Late = false, took
	}
}

// logReply logs an answer. If nothing says how long it took, another asked.
func (p *Prober) logReply(i *state, s *detector.Sighting, took time.Duration) {
	attributes := []any{
		"ip", s.Key.IP, "network", s.Key.Network, "interface", i.Link.Name, "pod", s.Holder.Pod.String(), "mac", s.Holder.MAC, "evidence", s.Evidence,
	}
	if took <= askedFor {
		attributes = append(attributes, "took", took)
	}
	what := "reply received"
	if s.Evidence == detector.Configured {
		what = "the kernel has the address"
	}
	p.Log.Debug(what, attributes...)
}

// Probe sends a probe to an address in a VLAN behind an interface, for the detector or, with forOther,
// for another node.
func (p *Prober) Probe(s detector.Probe, vlan bpf.VLAN, forOther bool, now time.Time) detector.ProbeRefusal {
	r := p.probe(s, vlan, forOther, now)
	if r != (detector.ProbeRefusal{}) && p.debug() {
		p.Log.Debug("probe not sent", "ip", s.Key.IP, "network", s.Key.Network, "ifindex", s.Interface.Ifindex, "purpose", s.Purpose, "reason", r.Reason)
	}
	return r
}

// debug reports whether debug lines are logged. Their attributes cost time also if they are not.
func (p *Prober) debug() bool { return p.Log.Enabled(context.Background(), slog.LevelDebug) }

func (p *Prober) probe(s detector.Probe, vlan bpf.VLAN, forOther bool, now time.Time) detector.ProbeRefusal {
	i := p.interfaces[s.Interface]
	if i == nil {
		return detector.ProbeRefusal{Reason: "the interface is gone"}
	}
	if why := p.off(i, s.Key.Network); why != "" {
		return detector.ProbeRefusal{Reason: why}
	}
	a := address{s.Key.IP, vlan}
	if view := &i.Link.View; i.Link.Mute() != "" && view.Truncated && !view.Uses(a.ip, vlan.Outer, vlan.Inner) {
		return detector.ProbeRefusal{Reason: "its kernel has more addresses than are listed"}
	}
	if r := p.guard(i, a, now); r != (detector.ProbeRefusal{}) {
		return r
	}
	if s.Purpose == detector.Verify {
		if until := p.lostUntil(i, now); !until.IsZero() {
			return detector.ProbeRefusal{Reason: "its netns has neither a name nor a process any more", Until: until}
		}
	}
	if r := p.allow(i, s, forOther, now); r != (detector.ProbeRefusal{}) {
		return r
	}
	switch err := p.send(i, a, s.Purpose, now); {
	case err == nil, errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return detector.ProbeRefusal{} // the device is down or gone: the probe stays unanswered
	default:
		return detector.ProbeRefusal{Reason: err.Error(), Until: now.Add(time.Second)}
	}
}

// off says why nothing is probed behind an interface in a network, empty if it is.
func (p *Prober) off(i *state, network string) string {
	switch mute := i.Link.Mute(); {
	case !p.Solicits(network):
		return "solicitation is off in network " + network
	case mute == "":
	case p.ScanFor == nil:
		return mute + ", and --configured-evidence is off"
	case !i.Link.Seen:
		return mute + ", and its netns cannot be found"
	}
	return ""
}

// allow takes one probe from what is set aside, or else from the limit of an interface and the budget, or refuses it.
func (p *Prober) allow(i *state, s detector.Probe, forOther bool, now time.Time) detector.ProbeRefusal {
	if s.Purpose == detector.Verify && p.reserved.take(target{s.Key, s.Holder}, now) {
		return detector.ProbeRefusal{}
	}
	if i.limit.pass(now); i.limit.level < 1 {
		return p.limited("the interface's rate limit", now)
	}
	r := p.Allow(s, forOther, now)
	if r == (detector.ProbeRefusal{}) {
		i.limit.level--
	}
	return r
}

// Allow takes one probe from what is set aside or from the budget, or refuses it.
func (p *Prober) Allow(s detector.Probe, forOther bool, now time.Time) detector.ProbeRefusal {
	if s.Purpose == detector.Verify && p.reserved.take(target{s.Key, s.Holder}, now) || p.Budget.Allow(s.Purpose, forOther, now) {
		return detector.ProbeRefusal{}
	}
	r := p.limited("the node's rate limit", now)
	r.Budget = true
	return r
}

func (p *Prober) limited(reason string, now time.Time) detector.ProbeRefusal {
	p.dropped[DroppedRate]++
	return detector.ProbeRefusal{Reason: reason, Until: now.Add(100 * time.Millisecond)}
}

func (p *Prober) send(i *state, a address, purpose detector.Purpose, now time.Time) error {
	if i.Link.Mute() != "" {
		p.ScanFor(i.Ref, a.ip, a.vlan, now)
	} else if err := p.Sender.Send(Target{i.Link.Index, a.ip, a.vlan, p.asked.source(i.Holder, now)}); err != nil {
		return err
	}
	p.sent[purpose]++
	if p.debug() {
		what := "probe sent"
		if i.Link.Mute() != "" {
			what = "kernel to be scanned"
		}
		p.Log.Debug(what, "ip", a.ip, "interface", i.Link.Name, "vlan", a.vlan.Outer, "innerVLAN", a.vlan.Inner, "purpose", purpose)
	}
	return nil
}
