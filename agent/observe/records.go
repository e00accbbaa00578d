package observe

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/bounds"
)

const (
	// earlyFor is how long records wait for an event about their interface: longer than the search for a
	// netns takes.
	earlyFor = 15 * time.Second
	// maxEarly limits the interfaces whose records wait for that: new ones, which no pod can make.
	maxEarly = 512
	// maxQueue limits the records of one interface that wait for that, or for a scan of its netns. All
	// together they take at most 9 MB.
	maxQueue = 256
)

// The reasons for which records are dropped, as in the status and the metrics.
const (
	droppedEarly = "early"
	droppedGone  = "interface gone"
	droppedVLANs = "too many VLANs"
	droppedScan  = "waiting for a scan"
	droppedView  = "too many addresses, devices or routes of a pod"
)

// Records has those that wait for an event about their interface, and counts those that make no observation. It must not know what they are
// evidence of.
type Records struct {
	opts       *Options
	interfaces interfaces
	early      map[detector.Interface][]bpf.Record
	dropped    map[string]uint64
}

// Record handles one record. It reports false if there is no observation, or not yet.
func (t *Table) Record(r bpf.Record) (Observation, bool) {
	ref := detector.Interface{Ifindex: r.Ifindex, Generation: r.Generation}
	if i := t.interfaces[ref]; i != nil {
		if t.Mirrors.hear(i, &r); r.Kind == bpf.Delivered {
			return Observation{}, false
		}
		return t.classify(i, r)
	}
	// A pod that floods must not displace the records of others.
	if waiting, known := t.Records.early[ref]; len(waiting) < maxQueue && (known || len(t.Records.early) < maxEarly) {
		t.Records.early[ref] = append(waiting, r)
	} else {
		t.Records.drop(r, droppedEarly)
	}
	return Observation{}, false
}

func (w *Records) drop(r bpf.Record, reason string) {
	w.dropped[reason]++
	w.opts.Forget(r)
	w.logDrop(&r, reason)
}

// logDrop logs why a record makes no observation.
func (w *Records) logDrop(r *bpf.Record, reason string) {
	if !w.opts.Log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	name := ""
	if i := w.interfaces[detector.Interface{Ifindex: r.Ifindex, Generation: r.Generation}]; i != nil {
		name = i.Name
	}
	w.opts.Log.Debug("record dropped", "ip", r.IP, "kind", r.Kind, "interface", name, "ifindex", r.Ifindex, "vlan", r.VLAN.Outer,
		"innerVLAN", r.VLAN.Inner, "mac", detector.MAC(r.MAC), "reason", reason)
}

// classify finds what a record is evidence of.
func (t *Table) classify(i *Interface, r bpf.Record) (Observation, bool) {
	at := t.TimeOf(r.Time)
	o := Observation{
		Kind: Seen, Interface: i.Ref, VLAN: r.VLAN, To: r.To,
		Sighting: detector.Sighting{Key: detector.Key{IP: r.IP}, At: at},
	}
	if r.Kind == bpf.Tentative {
		if _, _, ours := t.Asked(r.MAC); !ours {
			o.Kind = Tentative
			return o, true
		}
		t.Mirrors.cameBack(i, r.MAC, at)
		t.Records.logDrop(&r, "it is a probe of this agent")
		return o, false
	}
	s := &o.Sighting
	s.Key = i.Key(r.IP, r.VLAN)
	if !i.addVLAN(s.Key.Network, r.VLAN) {
		t.Records.dropped[droppedVLANs]++
		t.Records.logDrop(&r, droppedVLANs)
		return o, false
	}
	// An answer does not prove that the pod has the address: Linux answers on each interface for all
	// its addresses and for those that it proxies, and a mirror sends the answers of others back. So
	// the list of addresses decides.
	listed := i.Seen && i.View.HoldsAddress(r.IP, r.VLAN.Outer, r.VLAN.Inner)
	if i.Seen && !listed && !i.View.Taken.After(at) {
		// The address may have been added since the last scan, or a route removed.
		if len(i.awaiting.records) < maxQueue {
			i.awaiting.records = append(i.awaiting.records, r)
			t.Rescan(i.Generation)
		} else {
			t.Records.drop(r, droppedScan)
		}
		return o, false
	}
	s.Holder, s.FoundAtStart = i.holder(r.MAC, s.Key), i.foundAtStart(r.IP, r.VLAN)
	s.Evidence = detector.Data
	if r.Kind != bpf.Data {
		// A gratuitous packet answers no probe of ours.
		s.Evidence, s.Answer = detector.Announced, r.Kind == bpf.Answer
	}
	if s.Listed = listed || i.Seen && i.View.Holds(r.IP, r.VLAN.Outer, r.VLAN.Inner); s.Listed {
		return o, true
	}
	if i.claims(r, at, t.interfaces) {
		s.Evidence = detector.Claimed
		return o, true
	}
	if i.Seen && i.View.Covers(r.VLAN.Outer, r.VLAN.Inner) {
		s.Evidence = detector.Forwarded
		return o, true
	}
	switch t.Mirrors.judge(i, &r, at) {
	case repeated:
		s.Evidence, s.Answer = detector.Forwarded, false // its own answer may follow
	case unclear:
		s.Answer = false
	}
	return o, true
}

// Dropped counts the records that were dropped, by reason.
func (w *Records) Dropped() map[string]uint64 { return maps.Clone(w.dropped) }

// Pending counts the records that wait for an event about their interface.
func (w *Records) Pending() int {
	n := 0
	for _, waiting := range w.early {
		n += len(waiting)
	}
	for _, i := range w.interfaces {
		n += len(i.awaiting.records)
	}
	return n
}

// expiry is when the first of the early records of an interface has waited too long. There may never be an
// event: the interface may already be gone.
func (w *Records) expiry(early []bpf.Record) time.Time {
	return w.opts.TimeOf(early[0].Time).Add(earlyFor)
}

// expire drops early records that are too old.
func (w *Records) expire(now time.Time) {
	for ref, waiting := range w.early {
		for len(waiting) > 0 && !w.expiry(waiting).After(now) {
			w.drop(waiting[0], droppedGone)
			waiting = waiting[1:]
		}
		w.early[ref] = waiting
		if len(waiting) == 0 {
			delete(w.early, ref)
		}
	}
}

// Next returns when [Table.Tick] has something to do.
func (t *Table) Next() time.Time {
	next := t.Refusals.next
	for _, waiting := range t.Records.early {
		if at := t.Records.expiry(waiting); at.Before(next) {
			next = at
		}
	}
	return next
}

// Tick drops early records that are too old, and reads the counters of all interfaces if that is due.
func (t *Table) Tick(now time.Time) {
	t.Records.expire(now)
	t.Mirrors.expire(now)
	if t.Refusals.due(now) && t.Own.listedBefore {
		t.Origins.logUnknownRoles(now)
	}
}

// maxScanRequests limits the addresses that are scanned for behind one interface, to as many as are listed.
const maxScanRequests = 1024

var tooManyRequests = bounds.New("too many addresses to scan for")

// request has a scan look for an address.
func (w *awaiting) request(key scanKey, now time.Time) {
	if r, known := w.requests[key]; known {
		w.requests[key] = requested{r.first, now}
	} else if len(w.requests) < maxScanRequests {
		w.requests[key] = requested{now, now}
	} else {
		tooManyRequests.Exceeded(1)
	}
}

// found returns the addresses that were scanned for and are there.
func (i *Interface) found() (all []Observation) {
	for l, r := range i.awaiting.requests {
		taken := i.View.Taken
		if !i.Seen || !taken.After(r.first) {
			continue
		}
		if i.awaiting.requests[l] = (requested{r.last, r.last}); taken.After(r.last) {
			delete(i.awaiting.requests, l)
		}
		key := i.Key(l.ip, l.vlan)
		if !i.View.Uses(l.ip, l.vlan.Outer, l.vlan.Inner) || !i.addVLAN(key.Network, l.vlan) {
			continue
		}
		var mac [6]byte // of the pod's device, zero if it is another than the one that is known
		if i.Kind != "" {
			copy(mac[:], i.MAC)
		}
		holder := i.holder(mac, key)
		all = append(all, Observation{Kind: Seen, Interface: i.Ref, VLAN: l.vlan, Sighting: detector.Sighting{
			Key: key, Holder: holder, Evidence: detector.Configured, Answer: true, At: i.View.Taken, FoundAtStart: i.foundAtStart(l.ip, l.vlan),
		}})
	}
	return all
}
