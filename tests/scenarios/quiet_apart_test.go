package scenarios

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// quietApart are agents and nodes that end, come back and lose each other.
var quietApart = []Scenario{
	{ID: "Q16", Want: Quiet, Nodes: 3, Text: "all agents restarted, killed, upgraded in any order", Play: func(s *Stage) {
		var healthy []*lab.Pod
		for i, a := range s.Actors {
			for _, style := range bothStyles {
				p := s.PodOn(a, fmt.Sprintf("healthy-%s-%d", styleName(style), i), lab.PodOptions{Style: style, Addrs: s.Addrs(style, byte(160+i))})
				s.Sees(p, p.Addrs()...)
				healthy = append(healthy, p)
			}
		}
		// Real conflicts must survive all this unchanged and without an event.
		ips := s.Addrs(lab.Routed, 17)
		holders := s.Actors[:2]
		newcomer := s.duplicate("real", ips, holders[0], holders[1])
		before := map[*Actor][]lab.Conflict{}
		for _, a := range holders {
			before[a] = s.confirmed(a, ips)
		}
		var stops []func()
		for _, a := range holders {
			stops = append(stops, s.staysExported(a, before[a]))
		}
		goesOn := func(since time.Time, restarted []*Actor) {
			s.Helper()
			s.WaitAllMembers()
			for _, p := range healthy {
				s.Sees(p, p.Addrs()...)
			}
			for _, a := range holders {
				for i, c := range s.confirmed(a, ips) {
					assertSame(s, before[a][i], c)
					if slices.Contains(restarted, a) { // its event may come after the answer, and is not one of the next round
						_, err := a.Watch.Wait(patience, func(e lab.Event) bool {
							return e.Type == "confirmed" && e.Conflict.IP == c.IP && e.Received.After(since)
						})
						s.Do(err)
					}
				}
				s.unchanged(a, since, before[a], slices.Contains(restarted, a))
			}
		}
		one, two, three := s.Actors[0], s.Actors[1], s.Actors[2]
		for _, round := range []struct {
			kill, upgrade bool
			down          []*Actor
			up            []*Actor
			flags         []string
		}{
			{kill: false, down: []*Actor{one}, up: []*Actor{one}},
			{kill: true, down: []*Actor{two}, up: []*Actor{two}},
			{kill: true, down: []*Actor{three}, up: []*Actor{three}},
			// As a DaemonSet does it, and as a power cut that spares the pods.
			{kill: false, down: []*Actor{three, two, one}, up: []*Actor{one, three, two}, flags: []string{"--attach", "tc"}, upgrade: true},
			{kill: true, down: []*Actor{one, two, three}, up: []*Actor{two, one, three}, flags: []string{"--attach", "auto"}},
		} {
			since := time.Now()
			for _, a := range round.down {
				end := a.Agent.Stop
				if round.kill {
					end = a.Agent.Kill
				}
				s.Do(end())
			}
			for _, a := range round.up {
				if round.upgrade {
					s.upgrade(a)
				}
				s.Restart(a, round.flags...)
			}
			goesOn(since, round.down)
		}
		for _, stop := range stops {
			stop()
		}

		// It ends while the agent of the one who goes is down.
		s.Do(two.Agent.Kill())
		s.Do(newcomer.Delete())
		s.Restart(two)
		for _, c := range before[one] {
			s.Resolves(c.ID, lab.Patience(2*time.Minute))
		}
		for _, a := range holders {
			all, err := a.Agent.Client.Conflicts(s.Context(), true)
			s.Do(err)
			if len(all) != len(ips) {
				s.Errorf("history of %s: got %d conflicts, want %d", a.Node.ShortName(), len(all), len(ips))
			}
		}
	}},
	{ID: "Q18", Want: Quiet, Nodes: 3, MaySuspect: true, Text: "partition and heal, pods move meanwhile", Play: func(s *Stage) {
		away, home := s.Actors[0], s.Actors[1]
		pod := func(name string, a *Actor, style lab.Style, ips []netip.Addr) *lab.Pod {
			s.Helper()
			p := s.PodOn(a, name, lab.PodOptions{Style: style, Addrs: ips})
			s.Talk(p, ips...)
			s.Sees(p, ips...)
			return p
		}
		for round, style := range bothStyles {
			move := func(name string, from *lab.Pod, to *Actor) *lab.Pod {
				s.Helper()
				s.Do(from.Delete())
				return pod(fmt.Sprintf("%s-%d", name, round), to, style, from.Addrs())
			}
			fresh := func(name string, a *Actor, last byte) *lab.Pod {
				s.Helper()
				return pod(fmt.Sprintf("%s-%d", name, round), a, style, s.Addrs(style, last))
			}
			in, out, both := fresh("in", home, 18), fresh("out", away, 19), fresh("both", away, 20)
			s.Do(away.Node.Disconnect())
			if round > 0 {
				// The second partition lasts until each side has given the other up.
				s.WaitAlone(away)
			}
			in, out = move("in-again", in, away), move("out-again", out, home)
			both = move("both-home", both, home)
			both = move("both-away", both, away)
			s.Do(away.Node.Reconnect())
			s.WaitAllMembers()
			s.assertQuietFor(s.quietWindow())
			for _, p := range []*lab.Pod{in, out, both} {
				s.Do(p.Delete())
			}
		}
	}},
	{ID: "Q19", Want: Quiet, Nodes: 3, MaySuspect: true, Text: "a dead node's pods are re-created elsewhere", Play: func(s *Stage) {
		dead := s.Actors[2]
		var pods []*lab.Pod
		for i, style := range bothStyles {
			for j := range 3 {
				p := s.PodOn(dead, fmt.Sprintf("pod-%d-%d", i, j), lab.PodOptions{Style: style, Addrs: s.Addrs(style, byte(190+j))})
				s.Talk(p, p.Addrs()...)
				s.Sees(p, p.Addrs()...)
				pods = append(pods, p)
			}
		}
		// Without leaving the cluster.
		s.Do(dead.Node.Disconnect(), dead.Agent.Kill())
		for _, p := range pods {
			s.Do(p.Delete())
		}
		s.Actors = s.Actors[:2]
		for i, p := range pods {
			if i == len(pods)/2 {
				// These at once; the rest when the others know that it is gone.
				s.WaitAllMembers()
			}
			q := s.PodOn(s.Actors[i%2], p.ShortName()+"-again", lab.PodOptions{Style: bothStyles[i/3], Addrs: p.Addrs()})
			s.Talk(q, q.Addrs()...)
			s.Sees(q, q.Addrs()...)
		}
		// The node comes back, with another pod under an old name.
		s.Do(dead.Node.Reboot(), dead.Node.Reconnect())
		s.Actors = append(s.Actors, dead)
		s.Restart(dead)
		s.WaitAllMembers()
		p := s.PodOn(dead, "after", lab.PodOptions{Addrs: []netip.Addr{s.Node.IPv4(199)}})
		s.Sees(p, p.Addrs()...)
	}},
}

// quietReboot is a node that comes up as another: alone, and among others.
var quietReboot = onOneAndMore(3, Scenario{
	ID: "Q17", Want: Quiet, Text: "a node reboots: another boot id, the same name and pods", Play: func(s *Stage) {
		node := s.Actors[0]
		var pods []*lab.Pod
		start := func() {
			for _, style := range bothStyles {
				p := s.PodOn(node, "pod-"+styleName(style), lab.PodOptions{Style: style, Addrs: s.Addrs(style, 17)})
				s.Talk(p, p.Addrs()...)
				pods = append(pods, p)
			}
		}
		sees := func() {
			s.Helper()
			for _, p := range pods {
				s.Sees(p, p.Addrs()...)
			}
		}
		start()
		sees()
		for round := range 3 {
			// Stopped, killed, and killed so that the others notice it only later.
			end := node.Agent.Kill
			if round == 0 {
				end = node.Agent.Stop
			}
			s.Do(end())
			for _, p := range pods {
				s.Do(p.Delete())
			}
			pods = nil
			s.Do(node.Node.Reboot())
			heal := func() {}
			if round == 2 && len(s.Actors) > 1 {
				heal = s.InjectFaults(lab.Fault{From: node.Node})
			}
			start()
			s.Restart(node)
			sees()
			heal()
			if len(s.Actors) > 1 {
				s.WaitAllMembers()
			}
		}
	},
})

// duplicate makes a real conflict in a scenario without duplicates, on one node or two, and waits
// until it is confirmed there. It returns the second holder.
func (s *Stage) duplicate(name string, ips []netip.Addr, olderAt, newcomerAt *Actor) *lab.Pod {
	s.Helper()
	s.Expect(ips...)
	o := lab.PodOptions{Style: lab.Routed, Addrs: ips}
	older := s.PodOn(olderAt, name+"-older", o)
	s.Sees(older, ips...)
	newcomer := s.PodOn(newcomerAt, name+"-newcomer", o)
	for _, a := range []*Actor{olderAt, newcomerAt} {
		for _, ip := range ips {
			_, err := a.Watch.WaitConfirmed(ip, patience)
			s.Do(err)
		}
	}
	return newcomer
}

// unchanged fails the scenario if an agent reported any change of these conflicts but of their
// holders. A restarted agent reports them again, first as suspected, and with the same times.
func (s *Stage) unchanged(a *Actor, since time.Time, conflicts []lab.Conflict, restarted bool) {
	s.Helper()
	for _, e := range a.Watch.Events() {
		i := slices.IndexFunc(conflicts, func(c lab.Conflict) bool { return c.IP == e.Conflict.IP })
		if i < 0 || !e.Received.After(since) || e.Type == "changed" {
			continue
		}
		again := restarted && (e.Type == "suspected" || e.Type == "confirmed") &&
			e.Conflict.ID == conflicts[i].ID && e.Conflict.SuspectedAt.Equal(conflicts[i].SuspectedAt)
		if !again {
			s.Errorf("the conflict is not as it was at %s: %s", a.Node.ShortName(), lab.FormatEvents([]lab.Event{e}))
		}
	}
}

// assertQuietFor checks for a while in the middle of a scenario that there is no alarm.
func (s *Stage) assertQuietFor(window time.Duration) {
	s.Helper()
	for end := time.Now().Add(window); time.Now().Before(end) && !s.Failed(); time.Sleep(100 * time.Millisecond) {
		for _, a := range s.Actors {
			for _, e := range a.Watch.Events() {
				if e.Type == "confirmed" && !slices.Contains(s.allowed, e.Conflict.IP) {
					s.row.found = true
					s.Fatal("confirmed at ", a.Node.ShortName(), ": ", lab.FormatEvents([]lab.Event{e}))
				}
			}
		}
	}
}
