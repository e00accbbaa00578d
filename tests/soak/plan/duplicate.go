package plan

import (
	"net/netip"
	"slices"
	"time"
)

// duplicate is a duplicate that lasts long enough to be found, ends in one of several ways, and sometimes
// returns.
func (m *model) duplicate() {
	older := m.idle(nil)
	if older == nil {
		return
	}
	switch n := m.rng.IntN(100); {
	case n < 15:
		m.hostDuplicate(older)
	case n < 40:
		m.addedDuplicate(older)
	default:
		m.startedDuplicate(older)
	}
}

// lasts draws how long a duplicate lasts.
func (m *model) lasts() time.Duration { return m.between(5*time.Second, 30*time.Second) }

// hostDuplicate gives a pod an address of any node.
func (m *model) hostDuplicate(p *pod) {
	all := m.cluster.Host[m.anyNode()]
	ip := all[m.rng.IntN(len(all))]
	if m.held[ip] > 0 {
		return // a pod has it already
	}
	m.begin("duplicate of a node's address")
	m.add(p, m.now, ip)
	m.steps[len(m.steps)-1].Host = true
	m.remove(p, m.now+m.lasts(), ip)
}

// addedDuplicate gives a running pod another one's addresses.
func (m *model) addedDuplicate(older *pod) {
	q := m.idle(func(q *pod) bool { return !share(older, q) })
	if q == nil {
		return
	}
	m.begin("added duplicate")
	ips := slices.Clone(older.has)
	if m.chance(50) {
		ips = ips[:1]
	}
	first := older.last
	m.add(q, m.now, ips...)
	m.waitFor(first)
	end := m.now + m.lasts()
	m.end(older, q, end, ips)
	if !m.again() || len(m.holders(older, q, ips)) != 1 {
		return
	}
	keeper := m.holders(older, q, ips)[0]
	at := end + m.comeback()
	back := m.newcomer(keeper, ips, at)
	m.stop(back, at+m.between(5*time.Second, 12*time.Second))
}

// startedDuplicate starts one or two pods with another one's addresses.
func (m *model) startedDuplicate(older *pod) {
	m.begin("duplicate")
	if older.Silent {
		m.name = "silent " + m.name
	}
	ips := slices.Clone(older.has)
	q := m.newcomer(older, ips, m.now)
	end := m.now + m.lasts()
	if m.chance(20) {
		m.name += ", triple"
		third := m.newcomer(older, ips, m.now+m.upTo(5*time.Second))
		m.stop(third, m.between(m.now+6*time.Second, end+8*time.Second))
	}
	if m.chance(15) && end > m.now+12*time.Second {
		// The duplicate continues with another holder.
		at := m.between(m.now+5*time.Second, end-6*time.Second)
		id := m.stop(q, at)
		q = m.startLike(Pod{Routed: q.Routed, Silent: q.Silent}, at+m.upTo(time.Second), m.otherNode(q.Node), ips, id)
	}
	m.end(older, q, end, ips)
	if !m.again() {
		return
	}
	who := m.holders(older, q, ips)
	if len(who) != 1 {
		return
	}
	at := end + m.comeback()
	back := m.newcomer(who[0], ips, at)
	m.stop(back, at+m.between(5*time.Second, 12*time.Second))
}

// manyHolders starts several pods with one's addresses and ends all but one of them one by one.
func (m *model) manyHolders() {
	older := m.idle(nil)
	if older == nil {
		return
	}
	m.begin("many holders")
	ips := slices.Clone(older.has)
	all := []*pod{older}
	for range 3 + m.rng.IntN(3) {
		all = append(all, m.newcomer(older, ips, m.now+m.upTo(3*time.Second)))
	}
	m.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	at := m.now + m.lasts()
	for _, p := range all[1:] {
		m.stop(p, at)
		at += m.upTo(4 * time.Second)
	}
	all[0].busy = max(all[0].busy, at+margin)
}

// again draws whether a duplicate returns, and comeback when: before its end is certain, or after.
func (m *model) again() bool { return m.chance(30) }

func (m *model) comeback() time.Duration { return m.between(200*time.Millisecond, 8*time.Second) }

// end ends a duplicate: one of the two pods ends, moves, or loses the addresses.
func (m *model) end(older, q *pod, at time.Duration, ips []netip.Addr) {
	who := older
	if m.chance(60) {
		who = q
	}
	// The other one must be there when the duplicate returns.
	other := older
	if who == older {
		other = q
	}
	other.busy = max(other.busy, at+margin)
	n := m.rng.IntN(3)
	if n == 0 && len(who.has) == len(ips) {
		n = 1 // it would be left with none
	}
	switch n {
	case 0:
		m.remove(who, at, ips...)
	case 1:
		m.stop(who, at)
	default:
		// It is evicted, and its successor gets another address.
		id := m.stop(who, at)
		if next := m.newAddrs(); len(next) > 0 {
			m.startLike(Pod{Routed: who.Routed}, at+m.upTo(time.Second), m.otherNode(who.Node), next, id)
		}
	}
}

// holders are those of the two pods that have the addresses.
func (m *model) holders(older, q *pod, ips []netip.Addr) (left []*pod) {
	for _, p := range []*pod{older, q} {
		if slices.Contains(p.has, ips[0]) {
			left = append(left, p)
		}
	}
	return left
}
