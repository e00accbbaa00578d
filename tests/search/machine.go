package search

import (
	"fmt"
	"strings"
	"time"

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
	froze, thawed     time.Duration // when it was suspended last, and until when
	waiting           []func()      // until it is not frozen any more
	pods              []*pod
	netns             uint64 // of the last pod
	agent             *agent // nil while none runs
	file              []byte // its state
	liar              *liar  // nil if it is honest
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
	m.frozen, m.froze, m.thawed = true, m.w.now, m.w.now+lasts
	m.w.truth.frozen(m, lasts)
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

// verbs are what events do.
var verbs = map[string]func(w *world, m *machine, e Event){
	"pod":    func(_ *world, m *machine, e Event) { m.begin(e) },
	"drop":   ofPod(func(p *pod, _ Event) { p.drop() }),
	"take":   ofPod(func(p *pod, _ Event) { p.take() }),
	"mute":   ofPod(func(p *pod, e Event) { p.muted = p.m.w.now + e.duration(1); p.m.w.truth.muted(p) }),
	"vanish": ofPod(func(p *pod, _ Event) { p.vanish() }),
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
			if e.arg(1) == "boot" {
				m.boot = other.boot
			}
			if m.liar == nil {
				w.truth.fault(nil, time.Second+cluster.NamesakesAfter+anew) // until then it may be a later boot of the other one
			}
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
		m.w.truth.fault(m, lasts)
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
	m.froze, m.thawed = 0, 0
	m.anew()
	m.w.truth.fault(m, lasts)
	life := m.life
	m.w.after(lasts, func() {
		m.off = false
		if m.life == life {
			m.start(false)
		}
	})
}
