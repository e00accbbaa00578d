package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

const (
	// minOverlap is the agents' --min-overlap.
	minOverlap = time.Second
	// quietWindow is how long a quiet row is watched after its last step: two
	// rounds of verification and their answers fit in twice.
	quietWindow = minOverlap + 3*time.Second
)

// patience is how long anything that has to happen may take: far more than the goals, so
// that a slow machine shows in the table and not as a failure.
var patience = lab.Patience(15 * time.Second)

// Stage is where a story plays: a node of its own with an agent that is ready.
type Stage struct {
	*lab.T
	Node  *lab.Node
	Agent *lab.Agent
	Watch *lab.Watch

	actors []actor
	row    *outcome
	lawful []netip.Addr
	config string
}

// actor is an agent with its stream; there is one for every node of the story.
type actor struct {
	agent *lab.Agent
	watch *lab.Watch
}

// newStage builds a node and starts its agent.
func newStage(t lab.TB, row *outcome) *Stage {
	s := &Stage{T: lab.NewT(t), row: row}
	if row.Config != "" {
		s.config = filepath.Join(t.TempDir(), "dupip.yaml")
		s.Do(os.WriteFile(s.config, []byte(row.Config), 0o600))
	}
	s.Node, s.Agent, s.Watch = s.AddAgentNode()
	return s
}

// AddAgentNode adds a node with an agent. A quiet story must be quiet at all of them.
func (s *Stage) AddAgentNode() (*lab.Node, *lab.Agent, *lab.Watch) {
	n := s.T.Node("")
	flags := []string{"--min-overlap", minOverlap.String()}
	if s.config != "" {
		flags = append(flags, "--config", s.config)
	}
	a := s.T.Agent(n, flags...)
	w := s.T.Watch(a)
	s.actors = append(s.actors, actor{a, w})
	return n, a, w
}

// Pod makes a pod on the first node.
func (s *Stage) Pod(name string, o lab.PodOptions) *lab.Pod {
	return s.T.Pod(s.Node, name, o)
}

// Addrs are an IPv4 and an IPv6 address of the first node for pods of a style.
func (s *Stage) Addrs(style lab.Style, last byte) []netip.Addr {
	if style == lab.Routed {
		return []netip.Addr{s.Node.RoutedIPv4(last), s.Node.RoutedIPv6(last)}
	}
	return []netip.Addr{s.Node.IPv4(last), s.Node.IPv6(last)}
}

// Talk makes a pod send one datagram from each address to the world behind the uplink.
func (s *Stage) Talk(p *lab.Pod, srcs ...netip.Addr) {
	for _, src := range srcs {
		dst := netip.MustParseAddr("192.0.2.9")
		if src.Is6() {
			dst = netip.MustParseAddr("2001:db8::9")
		}
		s.Do(p.SendUDP(src, dst, 1))
	}
}

// Sees waits until the agent knows the pod as a holder of each address, not as one
// that forwards it.
func (s *Stage) Sees(p *lab.Pod, ips ...netip.Addr) {
	s.sees(s.Agent, p.Name, func(evidence string) bool { return evidence == "announced" || evidence == "data" }, ips)
}

// SeesAt is Sees at the agent of another node.
func (s *Stage) SeesAt(a *lab.Agent, p *lab.Pod, ips ...netip.Addr) {
	s.sees(a, p.Name, func(evidence string) bool { return evidence == "announced" || evidence == "data" }, ips)
}

// SeesForwarded waits until the agent knows that the pod emits or answers for
// addresses it does not have.
func (s *Stage) SeesForwarded(p *lab.Pod, ips ...netip.Addr) {
	s.sees(s.Agent, p.Name, func(evidence string) bool { return evidence == "forwarded" }, ips)
}

// Suppressed is how many suspicions the agent has suppressed for a reason.
func (s *Stage) Suppressed(reason string) int {
	s.Helper()
	status, err := s.Agent.Client.Status(s.Context())
	s.Do(err)
	reasons, _ := status["suppressed"].(map[string]any)
	n, _ := reasons[reason].(float64)
	return int(n)
}

// SeesHost waits until the agent knows the addresses as the node's own.
func (s *Stage) SeesHost(ips ...netip.Addr) {
	s.sees(s.Agent, "host", func(evidence string) bool { return evidence == "host" }, ips)
}

func (s *Stage) sees(a *lab.Agent, netns string, evidence func(string) bool, ips []netip.Addr) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	for _, ip := range ips {
		_, err := a.Client.WaitBinding(ctx, ip, func(b lab.Binding) bool {
			return b.Netns == netns && evidence(b.Evidence)
		})
		s.Do(err)
	}
}

// Unknown fails the story if the agent has a binding for one of the addresses.
func (s *Stage) Unknown(ips ...netip.Addr) {
	s.Helper()
	for _, ip := range ips {
		bindings, err := s.Agent.Client.Bindings(s.Context(), ip)
		s.Do(err)
		if len(bindings) > 0 {
			s.Errorf("there is a binding of %v: %+v", ip, bindings)
		}
	}
}

// Finds waits until the conflict about each address is confirmed with just these
// holders, and takes the time since the second holder's first packet.
func (s *Stage) Finds(since time.Time, holders []*lab.Pod, ips ...netip.Addr) []lab.Event {
	s.Helper()
	return s.FindsEarly(since, since, holders, ips...)
}

// FindsEarly is Finds for a conflict that may be found before the first packet, because
// the agent asks for addresses that it sees configured. It began no earlier than from.
func (s *Stage) FindsEarly(from, since time.Time, holders []*lab.Pod, ips ...netip.Addr) []lab.Event {
	s.Helper()
	return s.finds(from, since, "same-node", names(holders), ips)
}

// FindsHost is Finds for a pod that has addresses of its own node.
func (s *Stage) FindsHost(since time.Time, p *lab.Pod, ips ...netip.Addr) []lab.Event {
	s.Helper()
	return s.finds(since, since, "pod-host", append(names([]*lab.Pod{p}), "host"), ips)
}

// finds waits for the conflicts about addresses; holders are the labels of the netns.
func (s *Stage) finds(from, since time.Time, scope string, holders []string, ips []netip.Addr) []lab.Event {
	s.Helper()
	slices.Sort(holders)
	var found []lab.Event
	for _, ip := range ips {
		after := func(kind string) func(lab.Event) bool {
			return func(e lab.Event) bool {
				return e.Type == kind && e.Conflict.IP == ip && e.Received.After(from)
			}
		}
		confirmed, err := s.Watch.Wait(patience, after("confirmed"))
		s.Do(err)
		suspected, err := s.Watch.Wait(0, after("suspected"))
		s.Do(err)
		s.row.took(max(1, suspected.Received.Sub(since)), max(1, confirmed.Received.Sub(since)))
		c := confirmed.Conflict
		var got []string
		for _, h := range c.Holders {
			got = append(got, h.Netns)
		}
		slices.Sort(got)
		if !slices.Equal(got, holders) || c.State != "confirmed" || c.Scope != scope {
			s.Errorf("conflict about %v: got %s, %s, holders %q; want confirmed, %s, %q", ip, c.State, c.Scope, got, scope, holders)
		}
		found = append(found, confirmed)
	}
	s.exported(found, scope)
	s.row.found = true
	return found
}

// exported waits until the metrics tell of the confirmed conflicts and both holders.
func (s *Stage) exported(found []lab.Event, scope string) {
	s.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		m, err := s.Agent.Scrape(s.Context())
		s.Do(err)
		missing := ""
		if n := m[fmt.Sprintf(`dupip_conflicts{scope=%q,state="confirmed"}`, scope)]; n < float64(len(found)) {
			missing = fmt.Sprintf("dupip_conflicts is %v, want %d or more", n, len(found))
		}
		if m["dupip_detection_seconds_count"] < float64(len(found)) {
			missing = "dupip_detection_seconds has too few observations"
		}
		for _, e := range found {
			h := e.Conflict.Holders
			if len(m.Find("dupip_conflict_info", fmt.Sprintf("id=%q", e.Conflict.ID), `state="confirmed"`,
				fmt.Sprintf("first_netns=%q", h[0].Netns), fmt.Sprintf("second_netns=%q", h[1].Netns))) != 1 {
				missing = fmt.Sprintf("no dupip_conflict_info of %s with both holders", e.Conflict.ID)
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			s.Errorf("metrics: %s; there are %q", missing, m.Find("dupip_conflict_info"))
			return
		}
	}
}

func names(pods []*lab.Pod) []string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Name)
	}
	slices.Sort(all)
	return all
}

// Resolves waits until the conflict with this id has ended.
func (s *Stage) Resolves(id string, within time.Duration) {
	s.Helper()
	_, err := s.Watch.Wait(within, func(e lab.Event) bool { return e.Type == "resolved" && e.Conflict.ID == id })
	s.Do(err)
}

// Expect names addresses that have a real conflict in a story that is quiet otherwise.
func (s *Stage) Expect(ips ...netip.Addr) { s.lawful = append(s.lawful, ips...) }

// watchQuietly observes the window and reports the first conflict that should not be.
func (s *Stage) watchQuietly() {
	s.Helper()
	wrong := func(e lab.Event) bool {
		return e.Type == "confirmed" && !slices.Contains(s.lawful, e.Conflict.IP)
	}
	end := time.Now().Add(quietWindow)
	for _, a := range s.actors {
		e, err := a.watch.Wait(max(0, time.Until(end)), wrong)
		if err == nil {
			s.row.found = true
			s.Errorf("confirmed at %s: %s", a.agent.Node.ShortName(), lab.Story([]lab.Event{e}))
		}
	}
	for _, a := range s.actors {
		for _, e := range a.watch.Events() {
			if e.Type != "suspected" || slices.Contains(s.lawful, e.Conflict.IP) {
				continue
			}
			s.row.suspected = true
			if !s.row.MaySuspect {
				s.Errorf("suspected at %s: %s", a.agent.Node.ShortName(), lab.Story([]lab.Event{e}))
			}
		}
		// A dead agent is quiet, too.
		_, err := a.agent.Client.Status(s.Context())
		s.Do(err)
	}
}
