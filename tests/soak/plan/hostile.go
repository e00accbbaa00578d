package plan

import (
	"net/netip"
	"slices"
	"time"
)

// Where a step hides an address, as pods can that want to be taken for others.
const (
	// OnBridge: on a bridge of the pod's own; the pod announces it on its first interface.
	OnBridge = "bridge"
	// InRoute: in a local route, without an address; the pod announces it.
	InRoute = "route"
	// How a pod answers nobody: its device has no ARP, or its kernel ignores requests.
	NoARP  = "device without ARP"
	Ignore = "kernel that ignores ARP"
)

// disguise has a pod rename its interface, or move it into a netns of its own under another name. It can do that once.
func (m *model) disguise() {
	p := m.idle(func(p *pod) bool { return !p.disguised })
	if p == nil {
		return
	}
	p.disguised = true
	kind := Rename
	if m.chance(50) {
		kind = Nest
	}
	m.begin(string(kind))
	m.step(Step{Due: m.now, Kind: kind}, p)
}

// forge has a pod send from other pods' addresses, and announce them, without having them.
func (m *model) forge() {
	p := m.idle(nil)
	victim := m.idle(func(q *pod) bool { return !share(p, q) })
	if p == nil || victim == nil {
		return
	}
	m.begin("forgery")
	at := m.now
	for range 1 + m.rng.IntN(4) {
		m.step(Step{Due: at, Kind: Forge, IPs: slices.Clone(victim.has)}, p)
		at += m.upTo(2 * time.Second)
	}
}

// hiddenDuplicate gives a pod another one's IPv4 address where its interface does not have it. An agent knows that only from
// the announcement, so none is restarted meanwhile.
func (m *model) hiddenDuplicate() {
	older := m.idle(func(p *pod) bool { return slices.ContainsFunc(p.has, netip.Addr.Is4) })
	q := m.idle(func(q *pod) bool { return !share(older, q) })
	end := m.now + m.lasts()
	const settled = 10 * time.Second
	if older == nil || q == nil || m.now < m.restartedAt+settled || end > m.restartAt {
		return
	}
	where := OnBridge
	if m.chance(50) {
		where = InRoute
	}
	m.begin("duplicate on a " + where)
	ip := older.has[slices.IndexFunc(older.has, netip.Addr.Is4)]
	first := older.last
	m.add(q, m.now, ip)
	m.steps[len(m.steps)-1].Where = where
	m.waitFor(first)
	if where == InRoute {
		m.stop(q, end) // no event tells an agent that a route ends, only the next rounds of probes
	} else {
		m.remove(q, end, ip)
		m.steps[len(m.steps)-1].Where = where
	}
	older.busy = max(older.busy, end+margin)
}

// share reports whether two pods are one or have an address in common.
func share(p, q *pod) bool {
	return p == nil || p == q || slices.ContainsFunc(q.has, func(ip netip.Addr) bool { return slices.Contains(p.has, ip) })
}
