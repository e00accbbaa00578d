package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// model is the cluster as it is at one time of the plan.
type model struct {
	rng     *rand.Rand
	cluster Cluster
	now     time.Duration
	steps   []*Step
	pods    []*pod // those alive
	started int
	// free are the addresses without a holder, held the numbers of holders of the others, and left the
	// step after which an address had no holder.
	free  []netip.Addr
	held  map[netip.Addr]int
	left  map[netip.Addr]int
	later []change
	// name is that of the current story; stories counts them.
	name    string
	stories int
	// restartAt is when an agent is to be restarted next.
	restartAt, restartedAt time.Duration
	restarts, lastRestart  int
	// mirrors is how many pods send frames back, now or later.
	mirrors int
	// reflects are the nodes with a guest that sends probes back, until when.
	reflects map[int]time.Duration
}

// pod is a pod in the model.
type pod struct {
	*Pod
	has []netip.Addr
	// busy is until when a story uses the pod.
	busy time.Duration
	// first and last are its first and its last step.
	first, last int
	ended       bool
	// disguised: its interface has another name.
	disguised bool
}

// change is what a step does to the model when its time comes.
type change struct {
	at time.Duration
	do func()
}

const (
	// quick is the time in which the first pods start.
	quick = 6 * time.Second
	// pause is the mean time between two stories.
	pause = 550 * time.Millisecond
	// margin is how long no other story uses a pod after one.
	margin = 300 * time.Millisecond
)

func (m *model) play(length time.Duration) {
	for i := range m.cluster.Pods {
		m.at(quick * time.Duration(i) / time.Duration(m.cluster.Pods))
		m.begin("start")
		m.start(m.now, m.anyNode(), m.newAddrs())
	}
	m.restartAt = m.between(10*time.Second, 25*time.Second)
	for m.now < length {
		m.at(m.now + time.Duration(m.rng.ExpFloat64()*float64(pause)))
		m.story()
	}
}

// begin begins a story.
func (m *model) begin(name string) {
	m.stories++
	m.name = fmt.Sprintf("%s %d", name, m.stories)
}

// at advances the model to a time and makes the changes that are due.
func (m *model) at(now time.Duration) {
	for {
		next := -1
		for i, c := range m.later {
			if c.at <= now && (next < 0 || c.at < m.later[next].at) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		c := m.later[next]
		m.later = slices.Delete(m.later, next, next+1)
		m.now = max(m.now, c.at)
		c.do()
	}
	m.now = now
}

func (m *model) when(at time.Duration, do func()) { m.later = append(m.later, change{at, do}) }

// step adds a step and returns its number. The steps of a pod are done in order.
func (m *model) step(s Step, p *pod) int {
	s.ID = len(m.steps)
	if p != nil {
		s.Pod = p.Pod
		if p.last >= 0 {
			s.After = append(s.After, p.last)
		}
		p.last = s.ID
		p.busy = max(p.busy, s.Due+margin)
	}
	s.Why = m.name
	m.steps = append(m.steps, &s)
	return s.ID
}

// start makes a pod at a time, not before the steps in after are done.
func (m *model) start(at time.Duration, node int, ips []netip.Addr, after ...int) *pod {
	return m.startLike(Pod{Routed: m.chance(50), Silent: m.chance(20), MAC: m.cloneable()}, at, node, ips, after...)
}

func (m *model) startLike(like Pod, at time.Duration, node int, ips []netip.Addr, after ...int) *pod {
	m.started++
	like.Number, like.Node, like.IPs = m.started, node, slices.Clone(ips)
	p := &pod{Pod: &like, last: -1}
	for _, ip := range ips {
		if m.held[ip] == 0 {
			if id, known := m.left[ip]; known {
				after = append(after, id)
			}
		}
		m.take(p, ip)
	}
	m.pods = append(m.pods, p)
	p.first = m.step(Step{Due: at, Kind: PodStart, IPs: p.IPs, After: after}, p)
	if !p.Silent && p.Guest == "" && m.chance(50) {
		m.step(Step{Due: at + m.upTo(250*time.Millisecond), Kind: Send, IPs: p.IPs}, p)
	}
	return p
}

// stop ends a pod at a time.
func (m *model) stop(p *pod, at time.Duration) int {
	id := m.step(Step{Due: at, Kind: PodEnd, IPs: slices.Clone(p.has), Vanish: m.chance(15)}, p)
	p.busy = 1 << 62
	for _, ip := range slices.Clone(p.has) {
		m.release(p, ip, at, id)
	}
	m.when(at, func() {
		p.ended = true
		m.pods = slices.DeleteFunc(m.pods, func(q *pod) bool { return q == p })
	})
	return id
}

// add gives a running pod addresses.
func (m *model) add(p *pod, at time.Duration, ips ...netip.Addr) int {
	var after []int
	for _, ip := range ips {
		if id, known := m.left[ip]; known && m.held[ip] == 0 {
			after = append(after, id)
		}
		m.take(p, ip)
	}
	return m.step(Step{Due: at, Kind: Add, IPs: ips, After: after}, p)
}

// remove takes addresses from a running pod.
func (m *model) remove(p *pod, at time.Duration, ips ...netip.Addr) int {
	id := m.step(Step{Due: at, Kind: Remove, IPs: ips}, p)
	for _, ip := range ips {
		m.release(p, ip, at, id)
	}
	return id
}

func (m *model) take(p *pod, ip netip.Addr) {
	p.has = append(p.has, ip)
	m.held[ip]++
	m.free = slices.DeleteFunc(m.free, func(f netip.Addr) bool { return f == ip })
}

// release removes an address from a pod at a time; without another holder it is free again.
func (m *model) release(p *pod, ip netip.Addr, at time.Duration, id int) {
	p.has = slices.DeleteFunc(p.has, func(h netip.Addr) bool { return h == ip })
	m.when(at, func() {
		m.held[ip]--
		if m.held[ip] == 0 && slices.Contains(m.cluster.Pool, ip) {
			m.free = append(m.free, ip)
			m.left[ip] = id
		}
	})
}

// idle picks a pod that no story uses and that satisfies ok; nil if there is none.
func (m *model) idle(ok func(*pod) bool) *pod {
	var all []*pod
	for _, p := range m.pods {
		if p.busy <= m.now && !p.ended && len(p.has) > 0 && (ok == nil || ok(p)) {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[m.rng.IntN(len(all))]
}

// newAddr draws a free address; most often the one that became free last.
func (m *model) newAddr(ok func(netip.Addr) bool) (netip.Addr, bool) {
	var all []netip.Addr
	for _, ip := range m.free {
		if ok(ip) {
			all = append(all, ip)
		}
	}
	switch {
	case len(all) == 0:
		return netip.Addr{}, false
	case m.chance(60):
		return all[len(all)-1], true
	}
	return all[m.rng.IntN(len(all))], true
}

// newAddrs draws the addresses of a new pod: IPv4, IPv6, or both.
func (m *model) newAddrs() (ips []netip.Addr) {
	families := [][]func(netip.Addr) bool{
		{netip.Addr.Is4, netip.Addr.Is6}, {netip.Addr.Is4, netip.Addr.Is6}, {netip.Addr.Is4}, {netip.Addr.Is6},
	}[m.rng.IntN(4)]
	for _, family := range families {
		if ip, ok := m.newAddr(family); ok {
			ips = append(ips, ip)
		}
	}
	return ips
}

func (m *model) anyNode() int { return m.rng.IntN(len(m.cluster.Host)) }

// otherNode draws a node that is not this one.
func (m *model) otherNode(node int) int {
	return (node + 1 + m.rng.IntN(len(m.cluster.Host)-1)) % len(m.cluster.Host)
}

func (m *model) chance(percent int) bool { return m.rng.IntN(100) < percent }

func (m *model) upTo(d time.Duration) time.Duration { return time.Duration(m.rng.Int64N(int64(d))) }

func (m *model) between(from, to time.Duration) time.Duration { return from + m.upTo(to-from) }
