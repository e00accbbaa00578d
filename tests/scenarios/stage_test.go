package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// minOverlap is the agents' --min-overlap, but in rows that have one of their own.
const minOverlap = time.Second

// vipOverlap is the agents' --vip-overlap.
const vipOverlap = 5 * time.Second

// patience is how long anything that has to happen may take: far more than the goals, so
// that a slow machine shows in the table and not as a failure.
var patience = lab.Patience(15 * time.Second)

// Stage has the nodes of a scenario with agents that are ready. Several agents are a cluster.
type Stage struct {
	*lab.T
	// Node is the first node.
	Node *lab.Node
	// Actors are all nodes with their agents, in order.
	Actors []*Actor

	row     *outcome
	allowed []netip.Addr
	flags   []string
	// evaluation has the others who watch, with -compare.
	evaluation *evaluation
}

// Actor is a node with its agent and the stream of its conflicts.
type Actor struct {
	Node  *lab.Node
	Agent *lab.Agent
	Watch *lab.Watch
}

// newStage builds the nodes and starts their agents.
func newStage(t testing.TB, row *outcome) *Stage {
	row.MinOverlap = cmp.Or(row.MinOverlap, minOverlap)
	t = recorder{t, row}
	s := &Stage{T: lab.NewT(t), row: row, flags: []string{"--min-overlap", row.MinOverlap.String(), "--vip-overlap", vipOverlap.String()}}
	s.IPv6Only, s.UplinkKind = row.IPv6Only, row.UplinkKind
	if row.Config != "" {
		file := filepath.Join(t.TempDir(), "dupip.yaml")
		s.Do(os.WriteFile(file, []byte(row.Config), 0o600))
		s.flags = append(s.flags, "--config", file)
	}
	if row.Nodes == 0 {
		s.Node = s.T.Node("")
		s.addAgent(s.T.Agent(s.Node, s.flags...))
		s.compare()
		return s
	}
	for _, a := range s.Cluster(row.Nodes, s.flags...) {
		s.addAgent(a)
	}
	s.Node = s.Actors[0].Node
	s.compare()
	return s
}

func (s *Stage) addAgent(a *lab.Agent) {
	s.Helper()
	s.Actors = append(s.Actors, &Actor{a.Node, a, s.T.Watch(a)})
}

// Agent is the agent of the first node.
func (s *Stage) Agent() *lab.Agent { return s.Actors[0].Agent }

// last is the last actor: of a lone node the first.
func (s *Stage) last() *Actor { return s.Actors[len(s.Actors)-1] }

// Watch is the stream of the first node's agent.
func (s *Stage) Watch() *lab.Watch { return s.Actors[0].Watch }

// agentOf is the actor of a node.
func (s *Stage) agentOf(n *lab.Node) *Actor {
	s.Helper()
	i := slices.IndexFunc(s.Actors, func(a *Actor) bool { return a.Node == n })
	if i < 0 {
		s.Fatal("no agent was started on ", n.ShortName())
	}
	return s.Actors[i]
}

// Restart starts another agent with the state and the socket of the node's last one,
// which has ended.
func (s *Stage) Restart(a *Actor, flags ...string) {
	s.Helper()
	a.Agent = s.Successor(a.Agent, flags...)
}

// WaitAllMembers waits until all agents see each other alive, and no more.
func (s *Stage) WaitAllMembers() {
	s.Helper()
	var agents []*lab.Agent
	for _, a := range s.Actors {
		agents = append(agents, a.Agent)
	}
	s.WaitCluster(agents...)
}

// WaitAlone waits until the agent has given all others up.
func (s *Stage) WaitAlone(a *Actor) {
	s.Helper()
	s.WaitCluster(a.Agent)
}

// Pod makes a pod on the first node.
func (s *Stage) Pod(name string, o lab.PodOptions) *lab.Pod {
	s.Helper()
	return s.T.Pod(s.Node, name, o)
}

// PodOn makes a pod on an actor's node.
func (s *Stage) PodOn(a *Actor, name string, o lab.PodOptions) *lab.Pod {
	s.Helper()
	return s.T.Pod(a.Node, name, o)
}

// Addrs are those of the first node for pods of a style.
func (s *Stage) Addrs(style lab.Style, last byte) []netip.Addr {
	return s.Actors[0].Addrs(style, last)
}

// Addrs are an IPv4 and an IPv6 address of the actor's node for pods of a style; the IPv6 address
// alone in scenarios with IPv6 only.
func (a *Actor) Addrs(style lab.Style, last byte) []netip.Addr {
	both := []netip.Addr{a.Node.IPv4(last), a.Node.IPv6(last)}
	if style == lab.Routed {
		both = []netip.Addr{a.Node.RoutedIPv4(last), a.Node.RoutedIPv6(last)}
	}
	if a.Node.Lab().IPv6Only {
		return both[1:]
	}
	return both
}

// Talk makes a pod send one datagram from each address to the world behind the uplink.
func (s *Stage) Talk(p *lab.Pod, srcs ...netip.Addr) {
	for _, src := range srcs {
		s.Do(p.SendUDP(src, lab.ExternalAddr(src), 1))
	}
}

// repeats calls f every so often, until stop is called. The row fails if f does.
func (s *Stage) repeats(every time.Duration, f func() error) (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			if err := f(); err != nil && ctx.Err() == nil {
				s.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(every):
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	s.Cleanup(stop)
	return stop
}

// TalkThrough is Talk of a pod inside another one, whose bridge was just made: the pod's gateways answer first.
func (s *Stage) TalkThrough(p *lab.Pod, gateways ...netip.Addr) {
	for _, gateway := range gateways {
		s.Do(p.Ping(gateway))
	}
	s.Talk(p, p.Addrs()...)
}

// Sees waits until the agent of the pod's node knows the pod as a holder of each
// address, not as one that forwards it.
func (s *Stage) Sees(p *lab.Pod, ips ...netip.Addr) {
	s.Helper()
	s.seesWhere(p.Node, p.Name, func(b lab.Binding) bool { return b.Netns == p.Name && holds(b) }, ips)
}

// holds returns whether a pod has an address and does not only forward it.
func holds(b lab.Binding) bool {
	return b.Evidence == "announced" || b.Evidence == "data" || b.Evidence == "configured"
}

// SeesForwarded waits until the agent of the pod's node knows that the pod emits or
// answers for addresses it does not have.
func (s *Stage) SeesForwarded(p *lab.Pod, ips ...netip.Addr) {
	s.Helper()
	s.seesWhere(p.Node, p.Name+" forwards", func(b lab.Binding) bool {
		return b.Netns == p.Name && b.Evidence == "forwarded"
	}, ips)
}

// SeesSilent waits until the agent of the pod's node knows that the pod uses or announces addresses of its own, and does not answer for them.
func (s *Stage) SeesSilent(p *lab.Pod, ips ...netip.Addr) {
	s.Helper()
	s.seesWhere(p.Node, p.Name+" is silent", func(b lab.Binding) bool { return b.Netns == p.Name && b.Evidence == "silent" }, ips)
}

// WaitLost waits until the agent of the pod's node does not know the pod with the addresses any more, unless it forwards them.
func (s *Stage) WaitLost(p *lab.Pod, ips ...netip.Addr) {
	s.Helper()
	for _, ip := range ips {
		s.Eventually("a holder is lost", func() error {
			all, err := s.agentOf(p.Node).Agent.Client.Bindings(s.Context(), ip)
			if slices.ContainsFunc(all, func(b lab.Binding) bool { return b.Netns == p.Name && b.Evidence != "forwarded" }) {
				err = fmt.Errorf("%s is still known as a holder of %v: %+v", p.Name, ip, all)
			}
			return err
		})
	}
}

// tapped returns an error if a tap has seen less.
func tapped(tap *lab.Tap, least int) error {
	if n := tap.Count(); n < least {
		return fmt.Errorf("%d frames, want %d or more", n, least)
	}
	return nil
}

// Suppressed is how many suspicions an agent has suppressed for a reason.
func (s *Stage) Suppressed(a *Actor, reason string) int {
	s.Helper()
	status, err := a.Agent.Client.Status(s.Context())
	s.Do(err)
	reasons, _ := status["suppressed"].(map[string]any)
	n, _ := reasons[reason].(float64)
	return int(n)
}

// SeesHost waits until the node's agent knows the addresses as the node's own.
func (s *Stage) SeesHost(n *lab.Node, ips ...netip.Addr) {
	s.Helper()
	s.seesWhere(n, "host", func(b lab.Binding) bool { return b.Netns == "host" && b.Evidence == "host" }, ips)
}

// seesWhere waits until the agent of a node has such a binding of its own node for each address; what
// describes it.
func (s *Stage) seesWhere(n *lab.Node, what string, ok func(lab.Binding) bool, ips []netip.Addr) {
	s.Helper()
	ctx, cancel := lab.WithTimeout(s.Context(), patience)
	defer cancel()
	a := s.agentOf(n)
	for _, ip := range ips {
		// The binding may be of a scan, and what comes next is to be seen, too.
		_, err := a.Agent.Client.WaitBinding(ctx, ip, func(b lab.Binding) bool {
			return b.Node == n.ShortName() && ok(b) && (b.Netns == "host" || s.isAttached(ctx, a, b))
		})
		if err != nil {
			s.Fatal(fmt.Errorf("%s is to see %s: %w", n.ShortName(), what, err))
		}
	}
}

// isAttached reports whether an agent is attached to the interface of a binding. The binding has the name that the interface had when the
// holder was last seen: if none has that name any more, it was renamed, and any of the holder's interfaces counts.
func (s *Stage) isAttached(ctx context.Context, a *Actor, b lab.Binding) bool {
	list, err := a.Agent.Client.Interfaces(ctx)
	named := func(i lab.Interface) bool { return i.Name == b.Interface }
	if !slices.ContainsFunc(list, named) {
		named = func(i lab.Interface) bool { return i.Netns == b.Netns }
	}
	return err == nil && slices.ContainsFunc(list, func(i lab.Interface) bool { return named(i) && i.Attached() })
}

// Attached waits until an agent is attached to an interface, by the name of its end on the node. What that has sent before was not
// seen.
func (s *Stage) Attached(a *Actor, name string) {
	s.Helper()
	s.waitInterface(a, name, lab.Interface.Attached)
}

// waitInterface waits until an agent says of the interface with that name what satisfies ok.
func (s *Stage) waitInterface(a *Actor, name string, ok func(lab.Interface) bool) {
	s.Helper()
	ctx, cancel := lab.WithTimeout(s.Context(), patience)
	defer cancel()
	s.Do(a.Agent.Client.WaitInterface(ctx, name, ok))
}

// Unknown fails the scenario if an agent has a binding for one of the addresses.
func (s *Stage) Unknown(ips ...netip.Addr) {
	s.Helper()
	for _, a := range s.Actors {
		for _, ip := range ips {
			bindings, err := a.Agent.Client.Bindings(s.Context(), ip)
			s.Do(err)
			if len(bindings) > 0 {
				s.Errorf("%s has a binding of %v: %+v", a.Node.ShortName(), ip, bindings)
			}
		}
	}
}

// suspicions is how often an agent has reported a suspicion of an address.
func (a *Actor) suspicions(ip netip.Addr) (n int) {
	for _, e := range a.Watch.Events() {
		if e.Type == "suspected" && e.Conflict.IP == ip {
			n++
		}
	}
	return n
}

// Expect names addresses that have a real conflict in a scenario without other duplicates.
func (s *Stage) Expect(ips ...netip.Addr) { s.allowed = append(s.allowed, ips...) }

// quietWindow is how long a quiet row is watched after its last step: two rounds of
// verification and their answers fit in twice.
func (s *Stage) quietWindow() time.Duration { return 2*s.row.MinOverlap + 2*time.Second }

// assertQuiet fails the scenario on a false conflict within the window. Meanwhile it makes a real
// duplicate, which must be found: agents that see nothing or are disconnected raise no alarm, either.
func (s *Stage) assertQuiet() {
	s.Helper()
	wrong := func(e lab.Event) bool {
		return e.Type == "confirmed" && !slices.Contains(s.allowed, e.Conflict.IP)
	}
	end := time.Now().Add(s.quietWindow())
	// Some scenarios leave members that are marked dead until the next attempt to join them.
	if len(s.Actors) > 1 {
		s.WaitAllMembers()
	}
	s.duplicate("proof", s.Addrs(lab.Routed, 250), s.last(), s.Actors[0])
	for _, a := range s.Actors {
		e, err := a.Watch.Wait(max(0, time.Until(end)), wrong)
		if err == nil {
			s.row.found = true
			s.Errorf("confirmed at %s: %s", a.Node.ShortName(), lab.FormatEvents([]lab.Event{e}))
		}
	}
	for _, a := range s.Actors {
		for _, e := range a.Watch.Events() {
			if e.Type != "suspected" || slices.Contains(s.allowed, e.Conflict.IP) {
				continue
			}
			s.row.suspected = true
			if !s.row.MaySuspect {
				s.Errorf("suspected at %s: %s", a.Node.ShortName(), lab.FormatEvents([]lab.Event{e}))
			}
		}
	}
}
