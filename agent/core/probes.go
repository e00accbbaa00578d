package core

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/wire"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/schedule"
)

const (
	// After a list of the node's own addresses that took t, the next one starts hostListPause * t later, but not later than
	// maxHostListPause: a list of 4,096 takes 7 ms, and a pod can announce hundreds of them.
	hostListPause    = 9
	maxHostListPause = 250 * time.Millisecond
)

// hostProbes has the probes of the node itself. A list of its addresses that was made later answers all that wait. The budget of the prober
// limits how many that are.
type hostProbes struct {
	waiting []exchange.Probe
	next    time.Time // no list before
}

// due returns when to list the addresses, zero for never.
func (h *hostProbes) due() time.Time {
	if len(h.waiting) == 0 {
		return time.Time{}
	}
	return h.next
}

// probeHost verifies an address of the node itself, see hostProbes.
func (c *Core) probeHost(a exchange.Probe) {
	now := c.Now()
	if refusal := c.Prober.Allow(a.Probe, a.ForOther, now); refusal != (detector.ProbeRefusal{}) {
		c.Exchange.Probed(a, refusal, now)
		return
	}
	c.host.waiting = append(c.host.waiting, a)
}

// ask asks for an address of this node on the segment that it is on. Where that is not possible nothing is heard.
func (c *Core) ask(a exchange.Probe, now time.Time) detector.ProbeRefusal {
	if refusal := c.Prober.Allow(a.Probe, a.ForOther, now); refusal != (detector.ProbeRefusal{}) {
		return refusal
	}
	if c.Ask != nil {
		err := c.Ask(c.Table.Own.DeviceOf(a.Key.Network), a.Key.IP)
		if errors.Is(err, wire.ErrTooMany) {
			return detector.ProbeRefusal{Reason: err.Error(), Until: now.Add(time.Second)}
		}
		c.Log.Debug("asked on a segment", "ip", a.Key.IP, "network", a.Key.Network, "hear", a.Hear, "error", err)
	}
	return detector.ProbeRefusal{}
}

// Heard takes an answer or an announcement that came in from the segment behind a device.
func (c *Core) Heard(device string, ip netip.Addr, mac detector.MAC, at time.Time) {
	for _, key := range c.Table.Own.OnSegment(device, ip) {
		c.Exchange.Heard(key, mac, at)
	}
	if segment, _ := c.Table.Own.Segment(); device != segment.Device {
		return
	}
	c.Strangers.Count(ip, mac, at)
	holders := c.onSegment(ip)
	if len(holders) > 0 && !slices.ContainsFunc(holders, func(b detector.Binding) bool { return b.Holder.MAC == mac }) {
		c.Strangers.Hear(ip, mac, at)
	}
}

// onSegment returns the holders on this node that have an address on the segment that joins the nodes: the node itself, or pods there.
func (c *Core) onSegment(ip netip.Addr) (found []detector.Binding) {
	segment, ok := c.Table.Own.Segment()
	if !ok {
		return nil
	}
	for _, key := range c.Table.Own.OnSegment(segment.Device, ip) {
		holders, _ := c.Detector.LocalHolders(key)
		for _, b := range holders {
			if c.isOnSegment(&b, segment) {
				found = append(found, b)
			}
		}
	}
	return found
}

func (c *Core) isOnSegment(b *detector.Binding, segment links.HostAddress) bool {
	if b.Holder.ID == c.Table.Host {
		return b.Holder.Place == detector.PlaceUplink
	}
	return c.Table.Own.IsOnSegment(b.Key, segment)
}

// LookForStrangers returns who else was heard with addresses that this node, or a pod of it, has on the segment that joins the nodes. It asks again for
// those of the node itself: who took one may be heard once only; and for the one at which it receives gossip if it has lost all other nodes. Of pods'
// addresses the node may have neighbour entries, which the answers would change.
func (c *Core) LookForStrangers(lost bool) []wire.Stranger {
	segment, ok := c.Table.Own.Segment()
	if !ok {
		return nil
	}
	ask := func(ip netip.Addr) bool {
		isNode := slices.ContainsFunc(c.onSegment(ip), func(b detector.Binding) bool { return b.Holder.ID == c.Table.Host })
		return isNode && c.Ask != nil && c.Table.Config().Asks() && c.Ask(segment.Device, ip) == nil
	}
	if lost {
		ask(segment.IP)
	}
	return c.Strangers.Look(c.Now(), func(ip netip.Addr) (since time.Time, ok bool) {
		for _, b := range c.onSegment(ip) {
			since, ok = schedule.Later(since, b.FirstSeen), true
		}
		return since, ok
	}, ask)
}

// OnSegment returns the addresses that this node and pods of it have on the segment that joins the nodes, sorted.
func (c *Core) OnSegment() (ips []netip.Addr) {
	segment, ok := c.Table.Own.Segment()
	if !ok {
		return nil
	}
	for _, b := range c.Detector.Bindings(func(b *detector.Binding) bool {
		return b.Holder.ID.Node == c.Table.Host.Node && b.Evidence.Counts() && c.isOnSegment(b, segment)
	}) {
		ips = append(ips, b.Key.IP)
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(ips)
}

// answerHost lists the node's own addresses if probes wait for that, and reports whether it did.
func (c *Core) answerHost() bool {
	waiting, now := c.host.waiting, c.Now()
	if len(waiting) == 0 || now.Before(c.host.next) {
		return false
	}
	c.host.waiting = nil
	var refusal detector.ProbeRefusal
	list, err := c.HostAddresses()
	if err != nil {
		refusal = detector.ProbeRefusal{Reason: err.Error(), Until: now.Add(time.Second)}
	}
	for _, a := range waiting {
		c.Exchange.Probed(a, refusal, now)
		if o, ok := c.Table.Own.Find(list, a.Key, c.Now()); ok {
			c.observed(&o, c.Now())
		}
	}
	done := c.Now()
	c.host.next = done.Add(min(hostListPause*done.Sub(now), maxHostListPause))
	return true
}

// scanTime is how long a probe waits for a scan. Then the exchange has probed again.
const scanTime = 5 * time.Second

// scanning has the probes in whose place a pod's kernel is scanned ([links.Interface.Mute]). They count as sent when a scan
// has come that began later: the watcher may be late, and that must not look like silence.
type scanning map[detector.Interface][]scan

type scan struct {
	exchange.Probe
	requested time.Time
}

func (s scanning) add(a exchange.Probe, now time.Time) {
	waiting := slices.DeleteFunc(s[a.Interface], func(o scan) bool { return now.Sub(o.requested) > scanTime })
	s[a.Interface] = append(waiting, scan{a, now})
}

// take returns the probes of an interface that were requested before a scan of its netns began, and removes them.
func (s scanning) take(ref detector.Interface, taken time.Time) (all []exchange.Probe) {
	s[ref] = slices.DeleteFunc(s[ref], func(o scan) bool {
		done := o.requested.Before(taken)
		if done {
			all = append(all, o.Probe)
		}
		return done
	})
	if len(s[ref]) == 0 {
		delete(s, ref)
	}
	return all
}
