package plan

import (
	"net"
	"net/netip"
	"slices"
	"time"
)

// Guest is how a stack in user space treats the probes of agents.
type Guest string

// What guests do beside answering: they send probes back before or after that, all frames, or nothing.
const (
	ReflectsBefore Guest = "before"
	ReflectsAfter  Guest = "after"
	SendsBack      Guest = "mirror"
	Plain          Guest = "plain"
)

// maxMirrors: mirrors on one bridge send all broadcasts to and fro.
const maxMirrors = 2

// ends ends a pod that no other story may use.
func (m *model) ends(p *pod, at time.Duration, mirror bool) {
	m.stop(p, at)
	if mirror {
		m.mirrors++
		m.when(at, func() { m.mirrors-- })
	}
}

// mirror has a pod send back each frame that it gets. Most take another pod's addresses afterwards.
func (m *model) mirror() {
	older := m.idle(nil)
	p := m.idle(func(p *pod) bool { return !share(older, p) })
	if p == nil || m.mirrors == maxMirrors {
		return
	}
	m.begin("mirror")
	m.step(Step{Due: m.now, Kind: Mirror}, p)
	if m.chance(20) {
		m.ends(p, m.now+m.lastsLong(), true)
		return
	}
	m.name += ", duplicate"
	m.takes(p, older, m.now+m.upTo(5*time.Second), slices.Clone(older.has), m.lastsLong(), true)
}

// lastsLong draws how long a duplicate of a liar lasts: there are few, and each should have to be found.
func (m *model) lastsLong() time.Duration { return m.between(12*time.Second, 40*time.Second) }

// takes gives a pod addresses of another one for a while, and ends it.
func (m *model) takes(p, older *pod, at time.Duration, ips []netip.Addr, lasts time.Duration, mirror bool) {
	first := older.last
	m.add(p, at, ips...)
	m.waitFor(first)
	end := at + lasts
	older.busy = max(older.busy, end+margin)
	if m.chance(50) {
		m.remove(p, end, ips...)
		end += m.upTo(5 * time.Second)
	}
	m.ends(p, end, mirror)
}

// guest starts a pod whose addresses its kernel does not know, as a virtual machine's: another pod's, or some that another pod takes.
func (m *model) guest() {
	how := []Guest{ReflectsBefore, ReflectsAfter, SendsBack, Plain}[m.rng.IntN(4)]
	mirror := how == SendsBack
	older := m.idle(nil)
	if older == nil || mirror && m.mirrors == maxMirrors {
		return
	}
	node, end := m.anyNode(), m.now+m.lastsLong()
	if how == ReflectsBefore || how == ReflectsAfter {
		if m.now < m.reflects[node] {
			how = Plain // two would send each probe to and fro, without end
		} else {
			m.reflects[node] = end + 10*time.Second
		}
	}
	like := Pod{Guest: how}
	if m.chance(30) {
		like.MAC = net.HardwareAddr{0x52, 0x54, 0, byte(m.rng.IntN(256)), byte(m.rng.IntN(256)), byte(m.rng.IntN(256))}
	}
	if m.chance(60) {
		m.begin("duplicate by a guest")
		p := m.startLike(like, m.now, node, slices.Clone(older.has), older.last)
		older.busy = max(older.busy, end+margin)
		m.ends(p, end, mirror)
		return
	}
	ips := m.newAddrs()
	if len(ips) == 0 {
		return
	}
	m.begin("duplicate of a guest")
	p := m.startLike(like, m.now, node, ips)
	q := m.newcomer(p, ips, m.now+m.upTo(5*time.Second))
	m.stop(q, end)
	m.ends(p, end+m.upTo(5*time.Second), mirror)
}

// deaf has a pod drop the probes of agents, and then take another one's addresses. It needs neighbours that ask.
func (m *model) deaf() {
	older := m.idle(nil)
	p := m.idle(func(p *pod) bool { return !p.Routed && !share(older, p) })
	if p == nil {
		return
	}
	m.begin("deaf duplicate")
	m.step(Step{Due: m.now, Kind: Deafen}, p)
	at, ips, lasts := m.now+m.upTo(time.Second), slices.Clone(older.has), m.between(20*time.Second, time.Minute)
	if m.chance(25) {
		m.name += ", triple"
		m.stop(m.newcomer(older, ips, at+m.upTo(5*time.Second)), at+m.between(6*time.Second, lasts))
	}
	m.takes(p, older, at, ips, lasts, false)
}

// silence has a pod answer nobody, and have another one's IPv4 address: no conflict, whatever it sends.
func (m *model) silence() {
	older := m.idle(func(p *pod) bool { return slices.ContainsFunc(p.has, netip.Addr.Is4) })
	p := m.idle(func(p *pod) bool { return !share(older, p) })
	if p == nil {
		return
	}
	how := NoARP
	if m.chance(50) {
		how = Ignore
	}
	m.begin("silence")
	m.step(Step{Due: m.now, Kind: Hush, Where: how}, p)
	ip := older.has[slices.IndexFunc(older.has, netip.Addr.Is4)]
	at := m.now + m.upTo(time.Second)
	first, lasts := older.last, m.lasts()
	m.add(p, at, ip)
	m.waitFor(first)
	sends := at
	for range 1 + m.rng.IntN(4) {
		kind := Send
		if m.chance(40) {
			kind = Forge // it announces it, too
		}
		m.step(Step{Due: sends, Kind: kind, IPs: []netip.Addr{ip}}, p)
		sends += m.upTo(lasts / 4)
	}
	older.busy = max(older.busy, at+lasts+margin)
	m.ends(p, at+lasts, false)
}
