package detector

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// probe makes a holder, or its node, answer.
func (w *world) probe(s Probe) {
	w.probed = append(w.probed, sentProbe{w.since(w.now), s})
	a := w.byID(s.Holder)
	if s.Holder.Node != w.d.table.opts.Node {
		w.probeNode(s, a)
		return
	}
	switch {
	case a.lost:
		return
	case a.guard != "" && (a.until.IsZero() || w.now.Before(a.until)):
		w.apply(w.d.Probed(s, Result{Refused, a.guard, a.until}, w.now))
		return
	}
	if w.limit != nil && !w.limit() {
		w.apply(w.d.Probed(s, Result{Refused, "the rate", w.now.Add(100 * time.Millisecond)}, w.now))
		return
	}
	w.send(s, a)
}

// send sends a probe to a local holder.
func (w *world) send(s Probe, a *actor) {
	w.d.Probed(s, Result{Outcome: Sent}, w.now)
	after := delay + a.slow
	ans := a.sighting(s.Key.IP, a.evidence(), w.now.Add(after))
	ans.Answer = true
	switch {
	case a.mute || w.lose != nil && w.lose():
		return
	case a.proxies && !a.has[s.Key.IP]:
		ans.Evidence = Forwarded
	case !a.has[s.Key.IP]:
		return
	}
	w.after(after, a.id, func() { w.observe(ans) })
}

// probeNode sends a probe request to the node of a remote holder and reports its reply. A node that has the
// address verifies this node's holders at the same time.
func (w *world) probeNode(s Probe, a *actor) {
	w.t.Helper()
	if s.Purpose != Verify || s.Interface != (Interface{}) {
		w.t.Errorf("probed %+v of another node", s)
	}
	ans := a.sighting(s.Key.IP, a.evidence(), w.now.Add(delay))
	ans.Answer = true
	if w.probeRemote == nil && !a.lost && a.has[s.Key.IP] {
		w.after(delay, a.id, func() { w.request(s.Key) })
	}
	switch {
	case w.probeRemote != nil:
		w.probeRemote(s)
	case a.lost:
		w.after(lostAfter, a.id, func() { w.apply(w.d.Probed(s, Result{Outcome: Unreachable}, w.now)) })
	case a.guard != "" && (a.until.IsZero() || w.now.Before(a.until)):
		w.after(delay, a.id, func() { w.apply(w.d.Probed(s, Result{Refused, a.guard, a.until}, w.now)) })
	case a.dead:
		w.after(delay, a.id, func() { w.apply(w.d.Withdraw(s.Key, s.Holder, "its node does not know it", w.now)) })
	case a.has[s.Key.IP] && !a.mute:
		w.after(delay, a.id, func() { w.observe(ans) })
	case a.proxies && !a.mute:
		w.after(delay, a.id, func() { w.apply(w.d.Probed(s, Result{Outcome: Forwards}, w.now)) })
	default:
		w.after(silentAfter, a.id, func() { w.apply(w.d.Probed(s, Result{Outcome: Unanswered}, w.now)) })
	}
}

// request is a probe request of another node for the local holders of an address.
func (w *world) request(key Key) {
	holders, _ := w.d.LocalHolders(key)
	for _, b := range holders {
		if a := w.byID(b.Holder.ID); !a.lost && a.guard == "" {
			s := Probe{Key: key, Holder: a.id, Interface: a.iface, Purpose: Verify}
			w.probed = append(w.probed, sentProbe{w.since(w.now), s})
			w.send(s, a)
		}
	}
}

// gone ends an interface here, or another node's holder.
func (w *world) gone(a *actor) {
	w.t.Helper()
	w.pending = slices.DeleteFunc(w.pending, func(r report) bool { return r.from == a.id })
	if a.id.Node == w.d.table.opts.Node {
		clear(a.has)
		w.apply(w.d.WithdrawInterface(a.iface, "interface is gone", w.now))
		return
	}
	a.dead = true
	for _, ip := range slices.SortedFunc(maps.Keys(a.has), netip.Addr.Compare) {
		delete(a.has, ip)
		w.apply(w.d.Withdraw(Key{"default", ip}, a.id, "interface is gone", w.now))
	}
}

// after lets something happen later.
func (w *world) after(d time.Duration, from HolderID, do func()) {
	r := report{w.now.Add(d), from, do}
	i, _ := slices.BinarySearchFunc(w.pending, r, func(a, b report) int {
		return cmp.Or(a.at.Compare(b.at), -1) // behind those of the same time
	})
	w.pending = slices.Insert(w.pending, i, r)
}
