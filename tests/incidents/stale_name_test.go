package incidents

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// Calico #12257: some 30 nodes from one template of a virtual machine joined at once, with
// the template's node name on disk, so that the addresses of their first pods were booked
// under another node. A quarter of an hour later the garbage collector found that pods and
// bookings did not go together and freed addresses that were in use.
//
// Played: four nodes with one IPAM, three of them with the disk of the first, the agent's
// own folder included; a live pod's booking is freed, then all those of the clones.
func TestI1StaleNodeName(t *testing.T) {
	const clones = 3
	s := newTestCluster(t)
	o := options{subnets: []string{"10.99.0.0/24"}, store: s.TempDir()}
	all := s.build(o, o, o, o)
	template := all[0]

	// The template's agent has joined other nodes and has a conflict on its disk.
	s.startAgents(all[:2]...)
	s.waitMembers(all[:2]...)
	first := template.runMany("first", 1)
	s.waitBindings(first...)
	s.freeAddrs(first...)
	s.waitForeseen(first...)
	second := template.runMany("second", 1)
	old := s.duplicates(first, second)
	s.waitFound(old...)
	for _, m := range all[:2] {
		s.Do(m.agent.Stop())
	}
	for _, m := range all[1:] {
		s.Do(os.RemoveAll(m.disk), os.CopyFS(m.disk, os.DirFS(template.disk)))
	}
	for _, name := range []string{"state.json", "members.json"} {
		if _, err := fs.Stat(os.DirFS(all[clones].disk), name); err != nil {
			t.Fatalf("the template's disk: %v", err)
		}
	}
	s.startAgents(all...)
	s.waitMembers(all...)
	// Only the template has the template's conflict.
	s.waitFound(old...)
	for _, m := range all {
		s.Eventually("its own name and boot on "+m.name, func() error { return m.checkIdentity(len(all)) })
	}
	s.remove(append(first, second...)...)
	s.resolved()

	olderPods := s.runEach("older", 4, all...)
	s.waitBindings(olderPods...)
	s.waitOlder(olderPods[0])
	s.assertFindings()
	s.freeAddrs(olderPods[0])
	t.Logf("foreseen %.2f s after the address was freed", s.waitForeseen(olderPods[0]).Seconds())
	t.Logf("$ dupip audit\n%s", template.dupip("audit"))
	newcomer := all[1].run(named("newcomer"))
	twice := s.duplicates(olderPods, []*pod{newcomer})
	sinceRun, sinceSeen := s.waitFound(twice...)
	t.Logf("one: %.2f s after RunPodSandbox was called, %.2f s after the newcomer was seen", sinceRun.Seconds(), sinceSeen.Seconds())
	t.Logf("$ dupip conflicts\n%s", template.dupip("conflicts"))
	t.Logf("$ dupip explain %v\n%s", twice[0].ip, template.dupip("explain", twice[0].ip.String()))
	t.Logf("$ dupip nodes -o wide\n%s", template.dupip("nodes", "-o", "wide"))

	// Two machines give out the addresses of one book, which has this one for the newcomer.
	s.follow(template, lab.Follower{Answer: drains(template)}, twice, newcomer)
	s.resolved()

	others := s.runEach("other", 4, all[1:]...)
	s.waitBindings(others...)
	s.freeAddrs(others...)
	t.Logf("%d foreseen, the last of them %.2f s after the first was freed", len(others), s.waitForeseen(others...).Seconds())
	more := s.runEach("more", clones, all...)
	sinceRun, sinceSeen = s.waitFound(s.duplicates(others, more)...)
	t.Logf("%d at once: %.2f s after RunPodSandbox was called, %.2f s after the newcomer was seen", len(more), sinceRun.Seconds(), sinceSeen.Seconds())
	t.Logf("$ dupip conflicts --cluster\n%s", template.dupip("conflicts", "--cluster"))
	s.remove(more...)
	s.resolved()
	s.assertFindings()
}

// checkIdentity returns an error unless the agent sees so many live nodes with names and boots
// of their own, and is the one that it should be.
func (m *machine) checkIdentity(nodes int) error {
	members, err := m.agent.Client.Members(m.s.Context())
	if err != nil {
		return err
	}
	var errs []error
	names, boots := make(map[string]bool), make(map[string]bool)
	for _, n := range members {
		if n.State != "alive" {
			continue
		}
		names[n.Name], boots[n.Boot] = true, true
		if n.Namesake {
			errs = append(errs, fmt.Errorf("%s is called a namesake", n.Name))
		}
		if n.Self && (n.Name != m.name || n.Boot != m.Node.BootID()) {
			errs = append(errs, fmt.Errorf("it takes itself for %s, boot %s; want boot %s", n.Name, n.Boot, m.Node.BootID()))
		}
	}
	if len(names) != nodes || len(boots) != nodes {
		errs = append(errs, fmt.Errorf("%d names and %d boots, want %d", len(names), len(boots), nodes))
	}
	if template := m.s.machines[0]; m != template && !strings.Contains(m.agent.Log(), `it belongs to node \"`+template.name+`\"`) {
		errs = append(errs, errors.New("it does not report that its state is another node's"))
	}
	if len(errs) > 0 {
		return fmt.Errorf("the agent on %s: %w", m.name, errors.Join(errs...))
	}
	return nil
}
