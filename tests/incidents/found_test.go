package incidents

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/tests/lab"
)

// duplicate is an address that pods share, the older one first.
type duplicate struct {
	ip      netip.Addr
	holders []*pod
}

// duplicates are the addresses that newcomers share with pods before them. It fails the
// test for a newcomer without one: then the play has failed, not dupip.
func (s *testCluster) duplicates(olderPods, newcomers []*pod) (all []duplicate) {
	s.Helper()
	for _, n := range newcomers {
		for _, ip := range n.IPs {
			i := slices.IndexFunc(olderPods, func(p *pod) bool { return slices.Contains(p.IPs, ip) })
			if i < 0 {
				s.Fatal(fmt.Errorf("%v has %v, which no pod had before it", n, ip))
			}
			all = append(all, duplicate{ip, []*pod{olderPods[i], n}})
		}
	}
	return all
}

func (d duplicate) newcomer() *pod { return d.holders[len(d.holders)-1] }

func (d duplicate) scope() string {
	if d.holders[0].m == d.newcomer().m {
		return "same-node"
	}
	return "cross-node"
}

// holder is what has to be right about one.
type holder struct {
	Node, Boot, Netns string
	Pod               lab.PodRef
}

// check returns an error unless the conflict is confirmed as what the duplicate is.
func (d duplicate) check(c lab.Conflict) error {
	if c.State != "confirmed" || c.Scope != d.scope() {
		return fmt.Errorf("%v is %s and %s, want confirmed and %s", d.ip, c.State, c.Scope, d.scope())
	}
	var got, want []holder
	for _, b := range c.Holders {
		h := holder{Node: b.Node, Boot: b.Boot, Netns: b.Netns}
		if b.Pod != nil {
			h.Pod = *b.Pod
		}
		got = append(got, h)
	}
	for _, p := range d.holders {
		want = append(want, holder{p.m.name, p.m.Node.BootID(), p.NetnsName(), p.ref()})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("holders of %v (-want +got):\n%s", d.ip, diff)
	}
	return nil
}

// waitFound waits until all duplicates, and nothing else, are confirmed at all agents of their
// holders with their right names. It returns how long the slowest took, from the call that
// made the newcomer, and from its first packet by the agent's account.
func (s *testCluster) waitFound(all ...duplicate) (sinceRun, sinceSeen time.Duration) {
	s.Helper()
	wanted := make(map[*machine]map[netip.Addr]duplicate)
	for _, d := range all {
		for _, p := range d.holders {
			if wanted[p.m] == nil {
				wanted[p.m] = make(map[netip.Addr]duplicate)
			}
			wanted[p.m][d.ip] = d
		}
	}
	for m, ds := range wanted {
		s.Eventually("conflicts on "+m.name, func() error { return m.shows(ds) })
		for _, d := range ds {
			e, err := m.watch.WaitConfirmed(d.ip, patience)
			s.Do(err)
			sinceRun = max(sinceRun, e.Received.Sub(d.newcomer().began))
			sinceSeen = max(sinceSeen, e.Conflict.ConfirmedAt.Sub(e.Conflict.SecondSeen))
		}
	}
	return sinceRun, sinceSeen
}

// shows returns an error unless the open conflicts of the agent are these duplicates.
func (m *machine) shows(wanted map[netip.Addr]duplicate) error {
	open, err := m.agent.Client.Conflicts(m.s.Context(), false)
	if err != nil {
		return err
	}
	var errs []error
	seen := 0
	for _, c := range open {
		d, ok := wanted[c.IP]
		if !ok {
			errs = append(errs, fmt.Errorf("%v is a conflict (%s), and is none", c.IP, c.State))
			continue
		}
		seen++
		errs = append(errs, d.check(c))
	}
	if seen != len(wanted) {
		errs = append(errs, fmt.Errorf("%d of %d duplicates are conflicts", seen, len(wanted)))
	}
	return errors.Join(errs...)
}

// resolved waits until no machine has an open conflict.
func (s *testCluster) resolved() {
	s.Helper()
	for _, m := range s.machines {
		s.Eventually("the end of conflicts on "+m.name, func() error { return m.shows(nil) })
	}
}

// assertNoConflict fails the test if any machine has ever confirmed a conflict, or suspected one
// where that is not allowed either.
func (s *testCluster) assertNoConflict(suspicions bool) {
	s.Helper()
	for _, m := range s.machines {
		for _, e := range m.watch.Events() {
			if e.Type == "confirmed" || !suspicions {
				s.Fatal(fmt.Errorf("alarm on %s: %s", m.name, lab.FormatEvents([]lab.Event{e})))
			}
		}
	}
}

// waitBindings waits until `dupip bindings` has each address of the pods with its pod's name.
func (s *testCluster) waitBindings(pods ...*pod) {
	s.Helper()
	for _, p := range pods {
		s.Eventually("binding of "+p.String(), func() error {
			bindings, err := p.m.bindings("--local")
			if err != nil {
				return err
			}
			for _, ip := range p.IPs {
				i := slices.IndexFunc(bindings, func(b lab.Binding) bool { return b.IP == ip && b.Netns == p.NetnsName() })
				switch {
				case i < 0:
					return fmt.Errorf("no binding of %v in netns %s", ip, p.NetnsName())
				case bindings[i].Pod == nil || *bindings[i].Pod != p.ref():
					return fmt.Errorf("the holder of %v is pod %+v, want %+v", ip, bindings[i].Pod, p.ref())
				}
			}
			return nil
		})
	}
}

func (m *machine) bindings(flags ...string) ([]lab.Binding, error) {
	if slices.Equal(flags, []string{"--local"}) {
		return m.agent.Client.Bindings(m.s.Context(), netip.Addr{})
	}
	text, err := m.agent.CLI(m.s.Context(), append([]string{"bindings", "-o", "json"}, flags...)...)
	if err != nil {
		return nil, err
	}
	var doc struct{ Bindings []lab.Binding }
	err = json.Unmarshal([]byte(text), &doc)
	return doc.Bindings, err
}
