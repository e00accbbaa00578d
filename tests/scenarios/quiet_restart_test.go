package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// quietRestart are agents that end, are killed and come back.
var quietRestart = []Scenario{
	{ID: "Q16", Want: Quiet, Text: "agent restarted, killed, upgraded", Play: func(s *Stage) {
		var healthy []*lab.Pod
		for _, style := range bothStyles {
			p := s.Pod("healthy-"+styleName(style), lab.PodOptions{Style: style, Addrs: s.Addrs(style, 16)})
			s.Sees(p, p.Addrs()...)
			healthy = append(healthy, p)
		}
		// One real conflict must outlive it all, as the same one.
		ips := s.Addrs(lab.Bridged, 17)
		s.Expect(ips...)
		older := s.Pod("older", lab.PodOptions{Addrs: ips})
		s.Sees(older, ips...)
		newcomer := s.Pod("newcomer", lab.PodOptions{Addrs: ips})
		for _, ip := range ips {
			_, err := s.Watch().WaitConfirmed(ip, patience)
			s.Do(err)
		}
		before := s.confirmed(s.Actors[0], ips)
		stop := s.staysExported(s.Actors[0], before)

		for _, round := range []struct {
			kill, upgrade bool
			flags         []string
		}{
			{kill: false},
			{kill: true},
			{kill: true, flags: []string{"--attach", "tc"}},
			{kill: true, flags: []string{"--attach", "xdp"}},
			{kill: false, flags: []string{"--attach", "auto"}, upgrade: true},
		} {
			if round.upgrade {
				s.upgrade(s.Actors[0])
			}
			end := s.Agent().Stop
			if round.kill {
				end = s.Agent().Kill
			}
			s.Do(end())
			s.Restart(s.Actors[0], round.flags...)
			for _, p := range healthy {
				s.Sees(p, p.Addrs()...)
			}
			after := s.confirmed(s.Actors[0], ips)
			for i := range after {
				assertSame(s, before[i], after[i])
			}
		}
		stop()

		// It ends while no agent runs.
		s.Do(s.Agent().Kill())
		s.Do(newcomer.Delete())
		s.Restart(s.Actors[0])
		for _, c := range before {
			s.Resolves(c.ID, time.Minute)
		}
		all, err := s.Agent().Client.Conflicts(s.Context(), true)
		s.Do(err)
		if len(all) != len(before) {
			s.Errorf("history: got %d conflicts, want %d", len(all), len(before))
		}
	}},
}

// staysExported scrapes an actor's agents until stop is called. It fails the scenario if a conflict
// is missing in one scrape: the alert about it would end and fire again.
func (s *Stage) staysExported(a *Actor, conflicts []lab.Conflict) (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	var done sync.WaitGroup
	agent := a.Agent // its successors have the same port
	done.Go(func() {
		scrapes := 0
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			m, err := agent.Scrape(ctx)
			if err != nil || len(m.Find("dupip_conflict_info_omitted")) == 0 {
				continue // it is down; the rule of the alert knows an agent by that metric
			}
			scrapes++
			for _, c := range conflicts {
				if len(m.Find("dupip_conflict_info", fmt.Sprintf("ip=%q", c.IP), fmt.Sprintf("network=%q", c.Network))) != 1 {
					s.Errorf("%s does not export conflict %s about %v", a.Node.ShortName(), c.ID, c.IP)
					return
				}
			}
		}
		if scrapes == 0 {
			s.Errorf("no agent of %s was scraped", a.Node.ShortName())
		}
	})
	end := sync.OnceFunc(func() { cancel(); done.Wait() })
	s.Cleanup(end)
	return end
}

// upgrade gives an actor's next agents another program file, as a new image does.
func (s *Stage) upgrade(a *Actor) {
	s.Helper()
	old, err := lab.Binary()
	s.Do(err)
	program, err := os.ReadFile(old)
	s.Do(err)
	a.Node.Program = filepath.Join(s.TempDir(), "dupip-of-the-next-release")
	s.Do(os.WriteFile(a.Node.Program, program, 0o755))
}

// confirmed waits until just the conflicts about these addresses are open at a node, all
// confirmed, and returns them in order of the addresses.
func (s *Stage) confirmed(a *Actor, ips []netip.Addr) (found []lab.Conflict) {
	s.Helper()
	s.Eventually("conflicts at "+a.Node.ShortName(), func() error {
		open, err := a.Agent.Client.Conflicts(s.Context(), false)
		found = nil
		for _, ip := range ips {
			for _, c := range open {
				if c.IP == ip && c.State == "confirmed" {
					found = append(found, c)
				}
			}
		}
		if len(found) != len(ips) || len(open) != len(ips) {
			return errors.Join(fmt.Errorf("got %v, want confirmed ones about %v", open, ips), err)
		}
		return nil
	})
	return found
}

// assertSame fails the scenario unless a conflict is as it was before a restart.
func assertSame(s *Stage, before, after lab.Conflict) {
	s.Helper()
	if before.ID != after.ID || !before.ConfirmedAt.Equal(after.ConfirmedAt) ||
		!before.SuspectedAt.Equal(after.SuspectedAt) || !before.SecondSeen.Equal(after.SecondSeen) {
		s.Errorf("the conflict is another one after the restart:\n%+v\n%+v", before, after)
	}
	for i, h := range after.Holders {
		was := before.Holders[i]
		// The age of holders on other nodes was received again.
		off := h.FirstSeen.Sub(was.FirstSeen).Abs()
		if off > time.Second || after.Scope == "same-node" && off > 0 || h.Netns != was.Netns || h.Node != was.Node {
			s.Errorf("holder %d is another one after the restart:\n%+v\n%+v", i+1, was, h)
		}
	}
}
