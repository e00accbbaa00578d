package plan

import (
	"net"
	"net/netip"
	"slices"
	"time"
)

// story is a few related steps. It does nothing if it finds no pod.
type story struct {
	weight int
	play   func(*model)
}

// stories are all stories; the weights are about percent.
var stories = []story{
	{14, (*model).podStarts},
	{10, (*model).podEnds},
	{14, (*model).move},
	{6, (*model).handOver},
	{2, (*model).sandbox},
	{8, (*model).spare},
	{6, (*model).change},
	{3, (*model).vip},
	{8, (*model).podSends},
	{22, (*model).duplicate},
	{5, (*model).brief},
	{4, (*model).disguise},
	{4, (*model).forge},
	{6, (*model).hiddenDuplicate},
	{1, (*model).manyHolders},
	{2, (*model).mirror},
	{2, (*model).guest},
	{3, (*model).deaf},
	{3, (*model).silence},
}

// story plays the next one.
func (m *model) story() {
	switch {
	case m.now >= m.restartAt:
		m.restart()
	case len(m.pods) < m.cluster.Pods-5:
		m.podStarts()
	}
	sum := 0
	for _, s := range stories {
		sum += s.weight
	}
	n := m.rng.IntN(sum)
	for _, s := range stories {
		if n -= s.weight; n < 0 {
			s.play(m)
			return
		}
	}
}

func (m *model) podStarts() {
	if len(m.pods) >= m.cluster.Pods+8 {
		m.podEnds()
		return
	}
	if ips := m.newAddrs(); len(ips) > 0 {
		m.begin("start of a pod")
		m.start(m.now, m.anyNode(), ips)
	}
}

func (m *model) podEnds() {
	if len(m.pods) <= m.cluster.Pods-8 {
		m.podStarts()
		return
	}
	if p := m.idle(nil); p != nil {
		m.begin("end of a pod")
		m.stop(p, m.now)
	}
}

// move ends a pod and starts its successor with its addresses on another node, as a StatefulSet does, at
// once or a little later.
func (m *model) move() {
	p := m.idle(nil)
	if p == nil {
		return
	}
	m.begin("move")
	ips := slices.Clone(p.has)
	gap := time.Duration(0)
	if m.chance(60) {
		gap = m.upTo(2 * time.Second)
	}
	id := m.stop(p, m.now)
	m.startLike(Pod{Routed: p.Routed, Silent: p.Silent}, m.now+gap, m.otherNode(p.Node), ips, id)
}

// handOver is a move in which the two overlap for a moment, well under --min-overlap.
func (m *model) handOver() {
	p := m.idle(nil)
	if p == nil {
		return
	}
	m.begin("hand-over")
	ips, node := slices.Clone(p.has), p.Node
	if m.chance(70) {
		node = m.otherNode(node)
	}
	next := m.startLike(Pod{Routed: p.Routed, Silent: p.Silent}, m.now, node, ips, p.last)
	m.stop(p, m.now+m.between(50*time.Millisecond, 400*time.Millisecond))
	m.waitFor(next.first)
}

// waitFor makes the last step wait for another one, too.
func (m *model) waitFor(id int) {
	s := m.steps[len(m.steps)-1]
	s.After = append(s.After, id)
}

// sandbox re-creates one ten times: the same addresses, another netns each time.
func (m *model) sandbox() {
	p := m.idle(nil)
	if p == nil {
		return
	}
	m.begin("sandbox")
	ips, at := slices.Clone(p.has), m.now
	for range 10 {
		id := m.stop(p, at)
		at += m.upTo(200 * time.Millisecond)
		p = m.startLike(Pod{Routed: p.Routed, Silent: p.Silent}, at, p.Node, ips, id)
		at += m.between(300*time.Millisecond, 1200*time.Millisecond)
	}
}

// spare gives a running pod another address for a while.
func (m *model) spare() {
	p := m.idle(nil)
	ip, ok := m.newAddr(netip.Addr.IsValid)
	if p == nil || !ok {
		return
	}
	m.begin("spare address")
	m.add(p, m.now, ip)
	m.remove(p, m.now+m.between(500*time.Millisecond, 15*time.Second), ip)
}

// change gives a pod another address; a second pod takes the old one.
func (m *model) change() {
	p := m.idle(nil)
	if p == nil {
		return
	}
	old := p.has[m.rng.IntN(len(p.has))]
	q := m.idle(func(q *pod) bool { return q != p })
	next, ok := m.newAddr(func(ip netip.Addr) bool { return ip.Is4() == old.Is4() })
	if q == nil || !ok {
		return
	}
	m.begin("change")
	id := m.remove(p, m.now, old)
	m.add(p, m.now, next)
	at := m.now
	if m.chance(70) {
		at += m.upTo(2 * time.Second)
	}
	m.add(q, at, old)
	m.waitFor(id)
	if m.chance(50) {
		m.remove(q, at+m.between(2*time.Second, 10*time.Second), old)
	}
}

// vip moves an address to and fro between two pods, as keepalived does.
func (m *model) vip() {
	p := m.idle(nil)
	q := m.idle(func(q *pod) bool { return q != p })
	ip, ok := m.newAddr(netip.Addr.IsValid)
	if p == nil || q == nil || !ok {
		return
	}
	m.begin("VIP")
	m.add(p, m.now, ip)
	at := m.now
	for range 2 + m.rng.IntN(5) {
		at += m.between(300*time.Millisecond, 3*time.Second)
		id := m.remove(p, at, ip)
		p, q = q, p
		m.add(p, at, ip)
		m.waitFor(id)
	}
	m.remove(p, at+m.upTo(3*time.Second), ip)
}

func (m *model) podSends() {
	if p := m.idle(func(p *pod) bool { return !p.Silent }); p != nil {
		m.begin("send")
		m.step(Step{Due: m.now, Kind: Send, IPs: slices.Clone(p.has)}, p)
	}
}

// restart restarts an agent. The next restart leaves time to find conflicts.
func (m *model) restart() {
	m.restartAt, m.restartedAt = m.now+m.between(30*time.Second, 75*time.Second), m.now
	m.begin("restart")
	s := Step{Due: m.now, Kind: Restart, Node: m.anyNode(), Kill: m.chance(50), Down: m.upTo(4 * time.Second)}
	if m.restarts > 0 {
		s.After = []int{m.lastRestart}
	}
	m.lastRestart = m.step(s, nil)
	m.restarts++
}

// brief is a duplicate that ends before it must be found.
func (m *model) brief() {
	p := m.idle(nil)
	if p == nil {
		return
	}
	m.begin("brief duplicate")
	q := m.newcomer(p, slices.Clone(p.has), m.now)
	m.stop(q, m.now+m.between(500*time.Millisecond, 3*time.Second))
}

// newcomer starts a pod with addresses that another one has, sometimes with the same MAC, like a cloned
// virtual machine.
func (m *model) newcomer(p *pod, ips []netip.Addr, at time.Duration) *pod {
	node := p.Node
	if m.chance(70) {
		node = m.otherNode(node)
	}
	like := Pod{Routed: m.chance(50), Silent: m.chance(20)}
	if m.chance(30) {
		like.MAC = p.MAC
	}
	return m.startLike(like, at, node, ips, p.last)
}

// cloneable gives a pod a MAC address that others may have, too.
func (m *model) cloneable() net.HardwareAddr {
	if m.chance(70) {
		return nil
	}
	return net.HardwareAddr{0x0a, 0x58, 0, byte(m.rng.IntN(256)), byte(m.rng.IntN(256)), byte(m.rng.IntN(256))}
}
