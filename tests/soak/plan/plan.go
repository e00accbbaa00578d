// Package plan draws the steps of a soak from a seed: pods start, end and move, addresses change hands,
// pods share an address, and agents restart.
//
// It owns a model of the cluster at each time of the plan. It is pure and does not know whether a step
// was done, or when. The same seed gives the same plan.
package plan

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Kind is what a step does.
type Kind string

// The kinds of steps.
const (
	PodStart Kind = "start"
	PodEnd   Kind = "end"
	Add      Kind = "add"     // an address, in a running pod
	Remove   Kind = "remove"  // the opposite
	Send     Kind = "send"    // a packet from each of the pod's addresses
	Restart  Kind = "restart" // of an agent
	// What a pod does to be taken for another: it renames its interface, moves it into a netns of its own, or sends from
	// and announces addresses that it does not have.
	Rename Kind = "rename"
	Nest   Kind = "nest"
	Forge  Kind = "forge"
	// What it does to the probes of agents: it sends all frames back, drops probes only, or answers nobody.
	Mirror Kind = "mirror"
	Deafen Kind = "deafen"
	Hush   Kind = "hush"
)

// Step is one thing to do.
type Step struct {
	ID  int
	Due time.Duration
	// After are the steps that must be done before, even if they are late.
	After []int
	Kind  Kind
	// Why names the story that the step belongs to.
	Why string

	// Pod starts, ends, gets or loses an address, or sends.
	Pod *Pod
	// IPs are the addresses that it gets, loses, or sends from. Host marks a node's own addresses. Where is where they
	// are if not on the pod's interface: OnBridge, InRoute; of Hush how: NoARP, Ignore.
	IPs   []netip.Addr
	Host  bool
	Where string
	// Vanish: only the pod's netns is removed; the kernel removes the devices later.
	Vanish bool

	// Node is the index of the node whose agent is restarted. Kill ends it with SIGKILL. Down is how
	// long there is no agent.
	Node int
	Kill bool
	Down time.Duration
}

func (s *Step) String() string {
	text := string(s.Kind)
	if s.Pod != nil {
		text += " " + s.Pod.String()
	}
	if len(s.IPs) > 0 {
		text += fmt.Sprintf(" %v", s.IPs)
	}
	if s.Where != "" {
		text += " on a " + s.Where
	}
	if s.Vanish {
		text += ", only the netns"
	}
	if s.Kind == Restart {
		text = fmt.Sprintf("restart of agent %d, by a kill: %t, down for %v", s.Node+1, s.Kill, s.Down)
	}
	return text + " (" + s.Why + ")"
}

// Pod is how a pod is made.
type Pod struct {
	Number int
	Node   int
	Routed bool
	Silent bool
	// MAC is nil for one of the kernel's choice.
	MAC net.HardwareAddr
	// Guest: the addresses are those of a stack in user space, which announces them all the time.
	Guest Guest
	// IPs are those that it starts with.
	IPs []netip.Addr
}

func (p *Pod) String() string {
	var how []string
	if p.Routed {
		how = append(how, "routed")
	}
	if p.Silent {
		how = append(how, "silent")
	}
	if p.Guest != "" {
		how = append(how, "guest "+string(p.Guest))
	}
	if p.MAC != nil {
		how = append(how, p.MAC.String())
	}
	return strings.TrimSpace(fmt.Sprintf("pod %d on node %d %s", p.Number, p.Node+1, strings.Join(how, ", ")))
}

// Cluster is the cluster of a plan.
type Cluster struct {
	// Host are the nodes' own addresses, by node.
	Host [][]netip.Addr
	// Pool are the addresses for pods.
	Pool []netip.Addr
	// Pods is how many there are most of the time.
	Pods int
}

// Plan is a list of steps by Due.
type Plan struct {
	Steps []*Step
}

// Draw draws a plan of this length. Later steps are left out.
func Draw(seed uint64, site Cluster, length time.Duration) *Plan {
	m := &model{
		rng:     rand.New(rand.NewPCG(seed, 0x50a4)),
		cluster: site,
		free:    slices.Clone(site.Pool),
		held:    make(map[netip.Addr]int),
		left:    make(map[netip.Addr]int),

		reflects: make(map[int]time.Duration),
	}
	m.rng.Shuffle(len(m.free), func(i, j int) { m.free[i], m.free[j] = m.free[j], m.free[i] })
	m.play(length)
	steps := slices.DeleteFunc(m.steps, func(s *Step) bool { return s.Due >= length })
	slices.SortStableFunc(steps, func(a, b *Step) int { return int(a.Due - b.Due) })
	return &Plan{Steps: steps}
}
