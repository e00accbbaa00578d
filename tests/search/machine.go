package search

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// machine is a node: its pods, its disk, and its agent while that runs.
type machine struct {
	w     *world
	label string // by which plans name it
	name  string // the node's name
	boot  string
	boots int
	role  cluster.Role
	at    string // where it receives gossip
	// Its clock is ahead of the world's by offset, and stood still for so long while it was suspended.
	offset, suspended time.Duration
	frozen, off       bool
	waiting           []func() // until it is not frozen any more
	pods              []*pod
	netns             uint64 // of the last pod
	agent             *agent // nil while none runs
	file              []byte // its state
	life              int    // counts starts and ends of agents and machine: a task of an earlier one is void
}

func newMachine(w *world, label string, role cluster.Role) *machine {
	n := len(w.machines) + 1
	m := &machine{
		w: w, label: label, name: label, role: role, at: fmt.Sprintf("10.9.0.%d:7951", n), offset: w.between(-time.Hour, time.Hour),
	}
	m.anew()
	w.machines = append(w.machines, m)
	return m
}

// anew gives the machine its next boot id.
func (m *machine) anew() {
	m.boots++
	m.boot = fmt.Sprintf("%s-boot-%d", m.label, m.boots)
}

func (m *machine) id() string { return cluster.NodeID(m.name, m.boot) }

// clock is the time on the machine. As the kernel's CLOCK_MONOTONIC it stands still in a suspended machine.
func (m *machine) clock() time.Time { return began.Add(m.w.now + m.offset - m.suspended) }

// after has something happen on the machine after a time: later if it is frozen then, and not if it was booted anew.
func (m *machine) after(wait time.Duration, do func()) {
	boot := m.boot
	m.w.after(wait, func() {
		switch {
		case m.boot != boot:
		case m.frozen:
			m.waiting = append(m.waiting, do)
		default:
			do()
		}
	})
}

// freeze suspends the machine for a while.
func (m *machine) freeze(lasts time.Duration) {
	if m.frozen {
		return
	}
	m.frozen = true
	m.w.truth.disturb(m, lasts+time.Second)
	boot := m.boot
	m.w.after(lasts, func() {
		if m.boot != boot {
			return
		}
		m.frozen = false
		m.suspended += lasts
		waiting := m.waiting
		m.waiting = nil
		for _, do := range waiting {
			do()
		}
		if m.agent != nil {
			m.agent.resumed = true
			m.agent.run()
		}
	})
}

// pod is one netns with one interface.
type pod struct {
	m     *machine
	name  string
	key   detector.Key
	netns uint64
	iface detector.Interface
	// slow is how much later it answers. quiet: it says nothing by itself.
	slow  time.Duration
	quiet bool
	given detector.Given
	has   bool          // it has its address
	since time.Duration // that is so
	muted time.Duration // until when it answers nothing
	gone  bool          // with its interface
	dark  bool          // it is gone, and nobody knows
}

func (m *machine) pod(name string) *pod {
	for _, p := range m.pods {
		if p.name == name && !p.gone {
			return p
		}
	}
	return nil
}

// begin makes a pod with an address.
func (m *machine) begin(e Event) {
	ip, err := netip.ParseAddr(e.arg(1))
	if err != nil || m.off || m.pod(e.arg(0)) != nil {
		return
	}
	m.netns++
	p := &pod{
		m: m, name: e.arg(0), key: detector.Key{Network: "default", IP: ip}, netns: m.netns<<8 | uint64(m.boots),
		iface: detector.Interface{Ifindex: uint32(m.netns) + 10, Generation: uint32(m.netns)},
		quiet: e.option("quiet") != "",
	}
	p.slow, _ = time.ParseDuration(e.option("slow"))
	p.given = map[string]detector.Given{"yes": detector.GivenYes, "no": detector.GivenNo}[e.option("given")]
	m.pods = append(m.pods, p)
	p.take()
}

// holder describes the pod as its node's agent sees it.
func (p *pod) holder() detector.Holder {
	return detector.Holder{
		ID: detector.HolderID{Node: p.m.id(), Netns: p.netns}, Interface: p.iface, InterfaceName: fmt.Sprint("veth", p.iface.Ifindex),
		MAC: detector.MAC{2, 0, 0, 0, byte(p.netns >> 8), byte(p.netns)}, NetnsName: p.m.label + "-" + p.name,
		Pod: detector.Pod{Namespace: "search", Name: p.m.label + "-" + p.name, UID: fmt.Sprint(p.m.boot, p.netns)}, Given: p.given,
	}
}

// take gives the pod its address.
func (p *pod) take() {
	if p.has || p.gone || p.dark {
		return
	}
	p.has, p.since = true, p.m.w.now
	p.m.w.truth.begins(p)
	since := p.since
	// The agent hears of the link and of the address a little later, and before what the pod sends.
	p.m.after(p.m.w.between(time.Millisecond, 60*time.Millisecond), func() {
		if a := p.m.agent; a != nil && p.has && p.since == since {
			a.input(func(time.Time) { a.follow(p) })
			if !p.quiet {
				a.see(p, detector.Announced, false)
			}
		}
	})
	if !p.quiet {
		p.chatter(since)
	}
}

// chatter has a pod send data from time to time. The observer passes one packet in 30 s.
func (p *pod) chatter(since time.Duration) {
	p.m.after(p.m.w.between(30*time.Second, 90*time.Second), func() {
		if !p.has || p.since != since {
			return
		}
		if p.m.agent != nil {
			p.m.agent.see(p, detector.Data, false)
		}
		p.chatter(since)
	})
}

// lose takes the address from the pod.
func (p *pod) lose(told bool) {
	if p.has {
		p.has = false
		p.m.w.truth.ends(p, told)
	}
}

// drop takes the address from the pod, which its kernel says.
func (p *pod) drop() {
	p.lose(true)
	p.m.after(p.m.w.between(time.Millisecond, 30*time.Millisecond), func() {
		if a := p.m.agent; a != nil && !p.has {
			a.input(func(now time.Time) {
				a.exchange.Apply(a.detector.Withdraw(p.key, p.holder().ID, "address removed from the pod", now), now)
				a.follow(p)
			})
		}
	})
}

// end ends the pod with its interface.
func (p *pod) end() {
	if p.gone {
		return
	}
	p.lose(!p.dark)
	p.gone = true
	p.m.after(p.m.w.between(time.Millisecond, 300*time.Millisecond), func() {
		if a := p.m.agent; a != nil {
			a.input(func(now time.Time) {
				a.exchange.Apply(a.detector.WithdrawInterface(p.iface, "its interface is gone", now), now)
				a.prober.Forget(p.iface)
			})
		}
	})
}

// asked is a probe that arrives at the pod.
func (p *pod) asked(key detector.Key) {
	w := p.m.w
	if key != p.key || !p.has || w.now < p.muted {
		return
	}
	since := p.since
	p.m.after(p.slow+w.between(20*time.Microsecond, 2*time.Millisecond), func() {
		if p.has && p.since == since && w.now >= p.muted && p.m.agent != nil {
			p.m.agent.see(p, detector.Announced, true)
		}
	})
}

// verbs are what events do.
var verbs = map[string]func(w *world, m *machine, e Event){
	"pod":    func(_ *world, m *machine, e Event) { m.begin(e) },
	"drop":   ofPod(func(p *pod, _ Event) { p.drop() }),
	"take":   ofPod(func(p *pod, _ Event) { p.take() }),
	"mute":   ofPod(func(p *pod, e Event) { p.muted = p.m.w.now + e.duration(1); p.m.w.truth.muted(p) }),
	"vanish": ofPod(func(p *pod, _ Event) { p.dark = true; p.lose(false) }),
	"end":    ofPod(func(p *pod, _ Event) { p.end() }),
	"stall":  func(_ *world, m *machine, e Event) { m.stall(e.duration(0)) },
	"freeze": func(_ *world, m *machine, e Event) { m.freeze(e.duration(0)) },
	"kill":   func(_ *world, m *machine, _ Event) { m.stop(false) },
	"stop":   func(_ *world, m *machine, _ Event) { m.stop(true) },
	"start":  func(_ *world, m *machine, e Event) { m.start(e.arg(0) == "fresh") },
	"reboot": func(_ *world, m *machine, e Event) { m.reboot(e.duration(0)) },
	"namesake": func(w *world, m *machine, e Event) {
		if other := w.machine(e.arg(0)); other != nil {
			m.stop(false)
			m.name, m.file = other.name, nil
			delete(w.truth.known, m)
			m.reboot(time.Second)
		}
	},
	"loss": func(w *world, _ *machine, e Event) { w.network.weather(&w.network.loss, e) },
	"copy": func(w *world, _ *machine, e Event) { w.network.weather(&w.network.copies, e) },
	"late": func(w *world, _ *machine, e Event) { w.network.weather(&w.network.late, e) },
	"deaf": func(w *world, m *machine, e Event) {
		w.network.cut([]string{m.label}, strings.Split(e.arg(0), ","), e.duration(1), false)
	},
	"cut": func(w *world, m *machine, e Event) {
		w.network.cut([]string{m.label}, strings.Split(e.arg(0), ","), e.duration(1), true)
	},
}

func ofPod(do func(*pod, Event)) func(*world, *machine, Event) {
	return func(_ *world, m *machine, e Event) {
		if p := m.pod(e.arg(0)); p != nil && !m.frozen {
			do(p, e)
		}
	}
}

// stall gives the agent no time for a while.
func (m *machine) stall(lasts time.Duration) {
	if a := m.agent; a != nil {
		m.w.truth.disturb(m, lasts)
		a.stalled = max(a.stalled, m.w.now+lasts)
		a.wakeAt(a.stalled)
	}
}

// reboot ends everything on the machine, which begins anew after a while.
func (m *machine) reboot(lasts time.Duration) {
	m.frozen = false
	m.stop(false)
	for _, p := range m.pods {
		p.lose(true)
		p.gone = true
	}
	m.pods, m.netns, m.waiting, m.off = nil, 0, nil, true
	m.anew()
	m.w.truth.disturb(m, lasts)
	life := m.life
	m.w.after(lasts, func() {
		m.off = false
		if m.life == life {
			m.start(false)
		}
	})
}
