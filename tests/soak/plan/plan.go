// Package plan draws what happens in a soak from a seed: pods that are born, die and move,
// addresses that change hands, duplicates and agents that are restarted.
//
// It owns a model of the cluster that is as full as the real one should be at any time of
// the plan. It is pure: nothing in it knows whether a step was done, or when. The same
// seed gives the same plan.
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

// Kind says what a step does.
type Kind string

// The kinds of steps.
const (
	PodStart Kind = "birth"
	PodEnd   Kind = "death"
	Add      Kind = "add"     // an address, in a running pod
	Remove   Kind = "remove"  // the opposite
	Send     Kind = "talk"    // the pod sends a packet from each of its addresses
	Restart  Kind = "restart" // of an agent
)

// Step is one thing to do.
type Step struct {
	ID  int
	Due time.Duration
	// After are the steps that have to be done before, however late they are.
	After []int
	Kind  Kind
	// Why names the story that the step belongs to.
	Why string

	// Pod is who is born, dies, gets or loses an address, or talks.
	Pod *Pod
	// IPs are what it gets, loses, or talks from. Node's own addresses have Host.
	IPs  []netip.Addr
	Host bool
	// Vanish: the pod dies by its netns alone; the kernel takes the devices when it gets
	// to it.
	Vanish bool

	// Node is whose agent is restarted, Kill how it ends, and Down how long there is none.
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
	// IPs are those that it is born with.
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
	if p.MAC != nil {
		how = append(how, p.MAC.String())
	}
	return strings.TrimSpace(fmt.Sprintf("pod %d on node %d %s", p.Number, p.Node+1, strings.Join(how, ", ")))
}

// Site is where a plan plays.
type Site struct {
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

// Draw draws a plan of this length. Stories that would go on for longer are cut off.
func Draw(seed uint64, site Site, length time.Duration) *Plan {
	m := &model{
		rng:  rand.New(rand.NewPCG(seed, 0x50a4)),
		site: site,
		free: slices.Clone(site.Pool),
		held: make(map[netip.Addr]int),
		left: make(map[netip.Addr]int),
	}
	m.rng.Shuffle(len(m.free), func(i, j int) { m.free[i], m.free[j] = m.free[j], m.free[i] })
	m.play(length)
	steps := slices.DeleteFunc(m.steps, func(s *Step) bool { return s.Due >= length })
	slices.SortStableFunc(steps, func(a, b *Step) int { return int(a.Due - b.Due) })
	return &Plan{Steps: steps}
}
