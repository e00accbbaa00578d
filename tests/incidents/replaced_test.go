package incidents

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// namesakesTime is more than the half minute that two nodes of one name must be present together: a
// restarted one overlaps with its previous instance for a while.
var namesakesTime = 40*time.Second + patience

// Azure CNS (Overlay), stale NNC: a node was deleted and replaced by one with the same name and the
// same secondary prefix; state was kept by name and by address, so that the two nodes' state mixed.
//
// Played: the old node is down, and the new one gives its pods the old one's addresses. The two must
// not be taken for one node, nor the old one for a live one.
func TestI5ReplacedNodeDead(t *testing.T) {
	const pods = 4
	s := newTestCluster(t)
	old, next, third := s.namesakes()
	s.startAgents(old, third)
	s.waitMembers(old, third)
	olderPods := old.runMany("older", pods)
	s.waitBindings(olderPods...)
	s.Eventually("the old node's pods, as seen by the third", func() error { return third.sees(olderPods...) })

	s.Do(old.Node.Disconnect(), old.agent.Kill(), old.Kill9())
	s.startAgents(next)
	nextPods := next.runMany("next", pods)
	if ips := s.duplicates(olderPods, nextPods); len(ips) != pods {
		t.Fatalf("%v: the play has failed", ips)
	}
	s.waitBindings(nextPods...)
	s.machines = []*machine{next, third}
	s.waitMembers(next, third)
	s.Eventually("the end of the old node", func() error { return third.members("n1", "alive", "dead") })
	for _, m := range s.machines {
		s.Eventually("what is bound", func() error { return m.sees(nextPods...) })
	}
	s.assertNoConflict(true)
	s.resolved()
	for _, m := range s.machines {
		t.Logf("suspicions on %s: %s", m.name, lab.FormatEvents(m.watch.Events()))
	}
	t.Logf("$ dupip nodes\n%s", third.dupip("nodes"))
	t.Logf("$ dupip bindings --node n1\n%s", third.dupip("bindings", "--node", "n1"))

	// The quiet was no blindness: the third node has the same prefix.
	newcomer := third.run(named("newcomer"))
	sinceRun, sinceSeen := s.waitFound(s.duplicates(nextPods, []*pod{newcomer})...)
	t.Logf("%.2f s after RunPodSandbox was called, %.2f s after the newcomer was seen", sinceRun.Seconds(), sinceSeen.Seconds())
	t.Logf("$ dupip conflicts --cluster\n%s", third.dupip("conflicts", "--cluster"))
	third.explains(newcomer.IPs[0], "give out addresses of one range: ")
	t.Logf("$ dupip explain %v\n%s", newcomer.IPs[0], third.dupip("explain", newcomer.IPs[0].String()))
	s.follow(third, lab.Follower{Answer: drains(third)}, s.duplicates(nextPods, []*pod{newcomer}), nextPods...)
	s.resolved()
	s.assertFindings()
}

// The same report, and the old node is alive: the whole prefix is in collision.
func TestI5ReplacedNodeAlive(t *testing.T) {
	const pods = 5
	s := newTestCluster(t)
	old, next, third := s.namesakes()
	s.startAgents(old, third)
	olderPods := old.runMany("older", pods)
	s.waitBindings(olderPods...)
	s.startAgents(next)
	s.waitMembers(old, next, third)
	joined := time.Now()
	nextPods := next.runMany("next", pods)
	sinceRun, sinceSeen := s.waitFound(s.duplicates(olderPods, nextPods)...)
	t.Logf("%.2f s after RunPodSandbox was called, %.2f s after the newcomer was seen", sinceRun.Seconds(), sinceSeen.Seconds())

	for _, m := range s.machines {
		if err := lab.Poll(s.Context(), namesakesTime, func() error {
			metrics, err := m.metrics()
			if err == nil && metrics["dupip_gossip_namesakes"] != 2 {
				err = fmt.Errorf("dupip_gossip_namesakes is %v, want 2", metrics["dupip_gossip_namesakes"])
			}
			return errors.Join(err, m.members("n1", "alive", "alive"))
		}); err != nil {
			t.Fatal(err)
		}
		if text := m.dupip("nodes"); !strings.Contains(text, "2 live nodes have the name n1") || strings.Count(text, "--node-name") != 1 {
			t.Errorf("dupip nodes on %s:\n%s", m.Node.ShortName(), text)
		}
		s.Eventually("whole ranges", func() error {
			text := strings.Join(strings.Fields(m.dupip("conflicts", "--cluster")), " ")
			if want := fmt.Sprintf("share %d addresses", pods); !strings.Contains(text, want) {
				return fmt.Errorf("%q is missing: %s", want, text)
			}
			return nil
		})
	}
	t.Logf("the two nodes of one name were named at most %.0f s after the second one had joined", time.Since(joined).Seconds())
	t.Logf("$ dupip nodes\n%s", third.dupip("nodes"))
	t.Logf("$ dupip conflicts --cluster\n%s", third.dupip("conflicts", "--cluster"))
	for _, m := range s.machines[:2] {
		m.explains(nextPods[0].IPs[0], "are machines with one node name: ")
		// Each of the two pods has its reservation, on its own machine.
		if text := m.dupip("explain", nextPods[0].IPs[0].String()); strings.Contains(text, "lost a reservation") {
			t.Errorf("dupip explain on %s:\n%s", m.Node.ShortName(), text)
		}
	}
	t.Logf("$ dupip explain %v\n%s", nextPods[0].IPs[0], next.dupip("explain", nextPods[0].IPs[0].String()))
	// The old machine is not the one that the API server knows.
	f, off := s.shutsDown()
	s.follow(third, f, s.duplicates(olderPods, nextPods), nextPods...)
	if off() != old {
		t.Fatalf("the machine that was shut down is not the old one: %+v", off())
	}
	s.machines = []*machine{next, third}
	s.resolved()
	s.assertFindings()
}

// namesakes are two machines of one name and a third, all with one prefix and books of
// their own.
func (s *testCluster) namesakes() (old, next, third *machine) {
	s.Helper()
	subnets := []string{"10.99.0.0/24"}
	all := s.build(options{name: "n1", subnets: subnets}, options{name: "n1", subnets: subnets}, options{name: "n2", subnets: subnets})
	return all[0], all[1], all[2]
}

// sees returns an error unless the pods of nodes named n1 that the agent knows of,
// wherever they are, are these.
func (m *machine) sees(pods ...*pod) error {
	text, err := m.agent.CLI(m.s.Context(), "bindings", "--node", "n1", "-o", "json")
	if err != nil {
		return err
	}
	var doc struct{ Bindings []lab.Binding }
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return err
	}
	seen := 0
	for _, b := range doc.Bindings {
		if b.Pod == nil {
			continue // the node itself
		}
		seen++
		if !slices.ContainsFunc(pods, func(p *pod) bool {
			return slices.Contains(p.IPs, b.IP) && p.NetnsName() == b.Netns && p.ref() == *b.Pod
		}) {
			return fmt.Errorf("%v of %s/%s in netns %s is there", b.IP, b.Pod.Namespace, b.Pod.Name, b.Netns)
		}
	}
	if seen != len(pods) {
		return fmt.Errorf("%d bindings of pods, want %d", seen, len(pods))
	}
	return nil
}

// members returns an error unless the members of a name have these states.
func (m *machine) members(name string, want ...string) error {
	members, err := m.agent.Client.Members(m.s.Context())
	if err != nil {
		return err
	}
	var states []string
	for _, n := range members {
		if n.Name == name {
			states = append(states, n.State)
		}
	}
	slices.Sort(states)
	if !slices.Equal(states, want) {
		return fmt.Errorf("nodes of the name %s are %v, want %v", name, states, want)
	}
	return nil
}
