package scenarios

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// finding is what must be found: at every holder's node, and nowhere else.
type finding struct {
	// from is when it can have begun at the earliest, since when the second holder sent
	// its first packet.
	from, since time.Time
	scope       string
	// holders are as nameOf gives them, nodes where they are.
	holders []string
	nodes   []*lab.Node
	pods    []*lab.Pod
}

// Finds waits until the conflict about each address is confirmed with just these
// holders at the nodes of all of them, and takes the time since the second holder's
// first packet. It returns the events of the first holder's node.
func (s *Stage) Finds(since time.Time, holders []*lab.Pod, ips ...netip.Addr) []lab.Event {
	s.Helper()
	return s.FindsEarly(since, since, holders, ips...)
}

// FindsEarly is Finds for a conflict that may be found before the first packet, because the agent
// probes configured addresses. It began no earlier than from.
func (s *Stage) FindsEarly(from, since time.Time, holders []*lab.Pod, ips ...netip.Addr) []lab.Event {
	s.Helper()
	f := finding{from: from, since: since, scope: "same-node", pods: holders}
	for _, p := range holders {
		f.add(p.Node, p.Name)
	}
	if len(f.nodes) > 1 {
		f.scope = "cross-node"
	}
	return s.finds(f, ips)
}

// FindsHealed is FindsEarly for a conflict that cannot be confirmed while its holders' nodes are
// disconnected, until heal.
func (s *Stage) FindsHealed(from, heal time.Time, holders []*lab.Pod, ips ...netip.Addr) {
	s.Helper()
	for _, e := range s.FindsEarly(from, heal, holders, ips...) {
		if e.Received.Before(heal) {
			s.Errorf("confirmed %v before the heal: %s", heal.Sub(e.Received), lab.FormatEvents([]lab.Event{e}))
		}
	}
}

// FindsHost is Finds for a pod that has addresses of a node.
func (s *Stage) FindsHost(since time.Time, p *lab.Pod, n *lab.Node, ips ...netip.Addr) []lab.Event {
	s.Helper()
	f := finding{from: since, since: since, scope: "pod-host", pods: []*lab.Pod{p}}
	f.add(p.Node, p.Name)
	f.add(n, "host")
	return s.finds(f, ips)
}

func (f *finding) add(n *lab.Node, netns string) {
	f.holders = append(f.holders, nameOf(n.ShortName(), netns))
	slices.Sort(f.holders)
	if !slices.Contains(f.nodes, n) {
		f.nodes = append(f.nodes, n)
	}
}

// nameOf names a holder.
func nameOf(node, netns string) string { return node + "/" + netns }

// holdersOf names the holders of a conflict.
func holdersOf(c lab.Conflict) []string {
	var all []string
	for _, h := range c.Holders {
		all = append(all, nameOf(h.Node, h.Netns))
	}
	slices.Sort(all)
	return all
}

func (s *Stage) finds(f finding, ips []netip.Addr) []lab.Event {
	s.Helper()
	defer s.evaluation.duplicate(f, ips)()
	var first []lab.Event
	for _, n := range f.nodes {
		var found []lab.Event
		for i, ip := range ips {
			e := s.findsAt(s.agentOf(n), f, ip)
			if len(first) > i && first[i].Conflict.ID != e.Conflict.ID {
				s.Errorf("conflict about %v: its id is %s at %s and %s at %s", ip,
					first[i].Conflict.ID, f.nodes[0].ShortName(), e.Conflict.ID, n.ShortName())
			}
			found = append(found, e)
		}
		s.exported(s.agentOf(n), found, f.scope)
		if first == nil {
			first = found
		}
	}
	for _, a := range s.Actors {
		if slices.Contains(f.nodes, a.Node) {
			continue
		}
		for _, e := range a.Watch.Events() {
			if slices.Contains(ips, e.Conflict.IP) && e.Received.After(f.from) {
				s.Errorf("no holder is on %s, which reported: %s", a.Node.ShortName(), lab.FormatEvents([]lab.Event{e}))
			}
		}
	}
	s.row.found = true
	return first
}

// findsAt waits for one conflict at one node.
func (s *Stage) findsAt(a *Actor, f finding, ip netip.Addr) lab.Event {
	s.Helper()
	after := func(kinds ...string) func(lab.Event) bool {
		return func(e lab.Event) bool {
			return slices.Contains(kinds, e.Type) && e.Conflict.IP == ip && e.Received.After(f.from)
		}
	}
	confirmed, err := a.Watch.Wait(patience, after("confirmed"))
	if err != nil {
		s.Fatal("at ", a.Node.ShortName(), ": ", err)
	}
	// An agent that has just been started may have suspected before anybody listened.
	suspectedAt := confirmed.Conflict.SuspectedAt
	if suspected, err := a.Watch.Wait(0, after("suspected")); err == nil {
		suspectedAt = suspected.Received
	}
	s.row.took(suspectedAt.Sub(f.since), confirmed.Received.Sub(f.since))
	whole := confirmed
	if len(f.holders) > 2 {
		// Two may have been certain before the others were.
		whole, err = a.Watch.Wait(patience, func(e lab.Event) bool {
			return after("confirmed", "changed")(e) && e.Conflict.State == "confirmed" && len(e.Conflict.Holders) >= len(f.holders)
		})
		s.Do(err)
	}
	c := whole.Conflict
	if got := holdersOf(c); !slices.Equal(got, f.holders) || c.State != "confirmed" || c.Scope != f.scope {
		s.Errorf("conflict about %v at %s: got %s, %s, holders %q; want confirmed, %s, %q",
			ip, a.Node.ShortName(), c.State, c.Scope, got, f.scope, f.holders)
	}
	return whole
}

// exported waits until an agent's metrics have the confirmed conflicts and two holders of each.
func (s *Stage) exported(a *Actor, found []lab.Event, scope string) {
	s.Helper()
	s.Eventually("metrics of "+a.Node.ShortName(), func() error {
		m, err := a.Agent.Scrape(s.Context())
		if err != nil {
			return err
		}
		if n := m[fmt.Sprintf(`dupip_conflicts{scope=%q,state="confirmed"}`, scope)]; n < float64(len(found)) {
			return fmt.Errorf("dupip_conflicts is %v, want %d or more", n, len(found))
		}
		if n := m["dupip_detection_seconds_count"]; n < float64(len(found)) {
			return fmt.Errorf("dupip_detection_seconds has %v observations, want %d or more", n, len(found))
		}
		for _, e := range found {
			if !hasSeries(m, e.Conflict) {
				return fmt.Errorf("no dupip_conflict_info of %s with two holders; there are %q", e.Conflict.ID, m.Find("dupip_conflict_info"))
			}
		}
		return nil
	})
}

// hasSeries returns whether a confirmed conflict has one series that names two of its holders.
func hasSeries(m lab.Metrics, c lab.Conflict) bool {
	ip, network := fmt.Sprintf("ip=%q", c.IP), fmt.Sprintf("network=%q", c.Network)
	if len(m.Find("dupip_conflict_info", ip, network)) != 1 {
		return false
	}
	for _, first := range c.Holders {
		for _, second := range c.Holders {
			if nameOf(first.Node, first.Netns) != nameOf(second.Node, second.Netns) &&
				len(m.Find("dupip_conflict_info", ip, network, `state="confirmed"`,
					fmt.Sprintf("first_node=%q", first.Node), fmt.Sprintf("first_netns=%q", first.Netns),
					fmt.Sprintf("second_node=%q", second.Node), fmt.Sprintf("second_netns=%q", second.Netns))) == 1 {
				return true
			}
		}
	}
	return false
}

// Resolves waits until the conflict with this id has ended, wherever it was confirmed.
func (s *Stage) Resolves(id string, within time.Duration) {
	s.Helper()
	ended := func(kind string) func(lab.Event) bool {
		return func(e lab.Event) bool { return e.Type == kind && e.Conflict.ID == id }
	}
	deadline := time.Now().Add(within)
	known := false
	for _, a := range s.Actors {
		if !slices.ContainsFunc(a.Watch.Events(), ended("confirmed")) {
			continue
		}
		known = true
		if _, err := a.Watch.Wait(max(0, time.Until(deadline)), ended("resolved")); err != nil {
			s.Errorf("end of conflict %s at %s: %v", id, a.Node.ShortName(), err)
		}
	}
	if !known {
		s.Errorf("conflict %s was confirmed nowhere", id)
	}
}
