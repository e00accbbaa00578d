package faults

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// duplicate is a real one: pods on several nodes have the same addresses.
type duplicate struct {
	ips     []netip.Addr
	holders []holder
	// began is when the second one was there, ended when there were not two any more; zero
	// before.
	began, ended time.Time
	// disputed: other nodes claim the addresses falsely, so they may stay suspected.
	disputed bool
	// conflicts are the confirmed ones, by address, as the first node reported them.
	conflicts map[netip.Addr]lab.Conflict
	// confirmed is when, at each node on its own clock.
	confirmed map[*node]map[netip.Addr]time.Time
}

type holder struct {
	node *node
	pod  *lab.Pod
}

// duplicate makes pods with the same addresses on the nodes, one after the other. Each
// node's agent knows its own when it returns.
func (s *testCluster) duplicate(nodes ...*node) *duplicate {
	s.Helper()
	d := &duplicate{
		ips:       s.addrs(),
		conflicts: make(map[netip.Addr]lab.Conflict),
		confirmed: make(map[*node]map[netip.Addr]time.Time),
	}
	s.duplicates = append(s.duplicates, d)
	for _, n := range nodes {
		s.join(d, n)
	}
	return d
}

// join gives a duplicate another holder.
func (s *testCluster) join(d *duplicate, n *node) {
	s.Helper()
	// Every other one in each style, so that both are everywhere.
	style := lab.Routed
	if s.pods%2 == 0 {
		style = lab.Bridged
	}
	p := s.pod(n, style, d.ips...)
	d.holders = append(d.holders, holder{n, p})
	if len(d.holders) == 2 {
		d.began = p.Started
	}
}

// names are those of the holders, as "node/netns".
func (d *duplicate) names() []string {
	var all []string
	for _, h := range d.holders {
		all = append(all, h.node.ShortName()+"/"+h.pod.Name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// nodes are where the holders are.
func (d *duplicate) nodes() []*node {
	var all []*node
	for _, h := range d.holders {
		if !slices.Contains(all, h.node) {
			all = append(all, h.node)
		}
	}
	return all
}

func holderNames(c lab.Conflict) []string {
	var all []string
	for _, h := range c.Holders {
		all = append(all, h.Node+"/"+h.Netns)
	}
	slices.Sort(all)
	return all
}

// waitFound waits until the conflicts are confirmed with all holders, at the nodes of all of
// them, and returns after what time since `from` the last one knew.
func (s *testCluster) waitFound(d *duplicate, from time.Time, within time.Duration) time.Duration {
	s.Helper()
	deadline := time.Now().Add(within)
	var last time.Time
	for _, n := range d.nodes() {
		for _, ip := range d.ips {
			e, err := n.watch.Wait(max(0, time.Until(deadline)), func(e lab.Event) bool {
				return e.Conflict.IP == ip && e.Conflict.State == "confirmed" && e.Conflict.ResolvedAt.IsZero() &&
					slices.Equal(holderNames(e.Conflict), d.names())
			})
			if err != nil {
				s.Fatalf("%v is not found at %s, with %q: %v", ip, n.ShortName(), d.names(), err)
			}
			if e.Received.After(last) {
				last = e.Received
			}
			s.knows(d, n, e.Conflict)
		}
	}
	return last.Sub(from)
}

// knows compares a confirmed conflict with earlier reports: it has one id everywhere, and each node
// confirmed it once.
func (s *testCluster) knows(d *duplicate, n *node, c lab.Conflict) {
	s.Helper()
	if first, known := d.conflicts[c.IP]; !known {
		d.conflicts[c.IP] = c
	} else if first.ID != c.ID {
		s.Errorf("conflict about %v: its id is %s at %s, and was %s", c.IP, c.ID, n.ShortName(), first.ID)
	}
	at := d.confirmed[n]
	if at == nil {
		at = make(map[netip.Addr]time.Time)
		d.confirmed[n] = at
	}
	if before, known := at[c.IP]; !known {
		at[c.IP] = c.ConfirmedAt
	} else if !before.Equal(c.ConfirmedAt) {
		s.Errorf("conflict about %v: confirmed at %s at %v and at %v", c.IP, n.ShortName(), before, c.ConfirmedAt)
	}
}

// assertUnchanged fails the test unless the conflicts are open at all holders' nodes as they were,
// and there was no other about the same addresses.
func (s *testCluster) assertUnchanged(all ...*duplicate) {
	s.Helper()
	for _, d := range all {
		for _, n := range d.nodes() {
			if err := s.unchanged(d, n); err != nil {
				s.Errorf("at %s: %v", n.ShortName(), err)
			}
		}
	}
}

// assertRestored is still after agents began again: they verify what their predecessors knew.
func (s *testCluster) assertRestored(all ...*duplicate) {
	s.Helper()
	for _, d := range all {
		for _, n := range d.nodes() {
			eventually(s.T, patience+healPause, "the previous agent's conflicts at "+n.ShortName(), func() error {
				return s.unchanged(d, n)
			})
		}
	}
}

// unchanged returns what is not as it was with the conflicts at one node.
func (s *testCluster) unchanged(d *duplicate, n *node) error {
	conflicts, err := n.agent.Client.Conflicts(s.Context(), true)
	if err != nil {
		return err
	}
	for _, ip := range d.ips {
		about := slices.DeleteFunc(slices.Clone(conflicts), func(c lab.Conflict) bool { return c.IP != ip })
		if len(about) != 1 {
			return fmt.Errorf("there are %d conflicts about %v, want one", len(about), ip)
		}
		c, at := about[0], d.confirmed[n][ip]
		if want := d.conflicts[ip].ID; c.ID != want || c.State != "confirmed" || !at.IsZero() && !at.Equal(c.ConfirmedAt) {
			return fmt.Errorf("conflict about %v: got %s, %s at %v, with %s; want %s, confirmed at %v",
				ip, c.ID, c.State, c.ConfirmedAt, holderText(c), want, at)
		}
	}
	return nil
}

// holderText describes the holders for a message.
func holderText(c lab.Conflict) (text string) {
	for _, h := range c.Holders {
		text += fmt.Sprintf(" %s/%s (%s)", h.Node, h.Netns, h.Evidence)
		if h.Unreachable {
			text += " unreachable"
		}
	}
	return text
}

// waitSaved waits until the conflicts are on disk at all holders' nodes: a killed agent loses what it
// learned in the last second or two.
func (s *testCluster) waitSaved(all ...*duplicate) {
	s.Helper()
	for _, d := range all {
		for _, n := range d.nodes() {
			eventually(s.T, patience, "conflicts on disk at "+n.ShortName(), func() error {
				data, err := os.ReadFile(filepath.Join(n.agent.StateDir(), "state.json"))
				if err != nil {
					return err
				}
				var state struct{ Open []lab.Conflict }
				if err := json.Unmarshal(data, &state); err != nil {
					return err
				}
				for _, ip := range d.ips {
					if !slices.ContainsFunc(state.Open, func(c lab.Conflict) bool { return c.IP == ip && c.State == "confirmed" }) {
						return fmt.Errorf("that about %v is not there", ip)
					}
				}
				return nil
			})
		}
	}
}

// end deletes all pods but the first of each, and waits until no node has a conflict.
func (s *testCluster) end(all ...*duplicate) {
	s.Helper()
	s.delete(all...)
	s.waitResolved(patience, all...)
}

// delete deletes the pods but for the first of each.
func (s *testCluster) delete(all ...*duplicate) {
	s.Helper()
	for _, d := range all {
		if d.ended.IsZero() {
			d.ended = time.Now()
			for _, h := range d.holders[1:] {
				s.Do(h.pod.Delete())
			}
		}
	}
}

// waitResolved waits until the conflicts are resolved at all nodes.
func (s *testCluster) waitResolved(within time.Duration, all ...*duplicate) {
	s.Helper()
	for _, n := range s.nodes {
		eventually(s.T, within, "end of conflicts at "+n.ShortName(), func() error {
			open, err := n.agent.Client.Conflicts(s.Context(), false)
			if err != nil {
				return err
			}
			for _, c := range open {
				if slices.ContainsFunc(all, func(d *duplicate) bool {
					return slices.Contains(d.ips, c.IP) && (c.State == "confirmed" || !d.disputed)
				}) {
					return fmt.Errorf("%v is %s, with %q", c.IP, c.State, holderNames(c))
				}
			}
			return nil
		})
	}
}
