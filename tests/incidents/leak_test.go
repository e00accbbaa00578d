package incidents

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// brokenPlugin fails on the CNI commands of a pattern as long as a file is there; else it
// is a plugin that changes nothing.
const brokenPlugin = `[ -e %s ] && case "$CNI_COMMAND" in
%s)
	echo '{"cniVersion":"1.0.0","code":100,"msg":"broken for now"}'
	exit 1 ;;
esac
exec "$(dirname "$0")/tuning"
`

// lossy is a host-local whose DEL does nothing and returns success while a file exists.
func (s *testCluster) lossy(while string) map[string]string {
	s.Helper()
	plugins, err := lab.PluginDir()
	s.Do(err)
	return map[string]string{"host-local": fmt.Sprintf(`[ "$CNI_COMMAND" = DEL ] && [ -e %s ] && exit 0
exec %s/host-local
`, while, plugins)}
}

// containerd #12130: a plugin late in the chain failed on ADD and again on DEL; the error
// was swallowed, and every retry of the kubelet left one more address booked, until there
// was none.
//
// Played: a pod that is tried again and again until the range is exhausted, and on. Where
// the error is swallowed nothing stays but the booking: since containerd 1.6.21 and 2.0 if
// ADD has failed, too. Where it is not, and if only the process of a sandbox does not start,
// the sandbox stays with its netns and veth, and the address in it. Nobody shares an address
// before the books are cleared by force.
func TestI3LeakedReservations(t *testing.T) {
	for name, play := range map[string]struct {
		fails       string // commands of a plugin late in the chain
		lossy       bool   // DEL of the first plugin changes nothing
		unstartable bool   // ADD succeeds, and the sandbox's process does not start
	}{
		"ADD and DEL fail":           {fails: "ADD|DEL"},
		"the sandbox and DEL fail":   {fails: "DEL", unstartable: true},
		"ADD fails and DEL is lossy": {fails: "ADD", lossy: true},
	} {
		t.Run(name, func(t *testing.T) {
			const retries, addresses = 20, 5 // of which the bystander has one
			s := newTestCluster(t)
			trouble := filepath.Join(t.TempDir(), "trouble")
			o := options{
				subnets: []string{"10.99.0.0/29"}, unheldAfter: "2s", chained: []map[string]any{{"type": "broken"}},
				scripts: make(map[string]string),
			}
			if play.lossy {
				o.scripts = s.lossy(trouble)
			}
			o.scripts["broken"] = fmt.Sprintf(brokenPlugin, trouble, play.fails)
			m := s.machine(o)
			s.startAgents(m)
			bystander := m.run(named("bystander"))
			s.waitBindings(bystander)
			before, err := m.footprint()
			s.Do(err)

			s.Do(os.WriteFile(trouble, nil, 0o600))
			var exhausted footprint
			var stay bool
			s.assertFindings()
			for attempt := range uint32(retries) {
				if attempt == 2 {
					began := time.Now()
					m.waitLeft(2.0 / addresses)
					if !stay {
						m.waitLeaked(2)
						t.Logf("two leaks foreseen %.2f s after the second of them, with --unheld-after %s", time.Since(began).Seconds(), m.unheldAfter)
					}
					t.Logf("$ dupip audit, with two of %d addresses left\n%s", addresses, m.dupip("audit"))
				}
				o := named("unlucky")
				o.Attempt = attempt
				if play.unstartable {
					o.Sysctls = map[string]string{"net.ipv4.no_such_thing": "1"}
				}
				_, err := m.tryRun(o)
				if attempt == 0 {
					unready, err := m.unready()
					s.Do(err)
					stay = len(unready) > 0
					if play.unstartable && !stay || play.lossy && stay {
						t.Fatalf("%d sandboxes stay: the play has failed", len(unready))
					}
					t.Logf("the sandboxes stay: %t", stay)
					m.leaks = !stay // a sandbox that is not ready has its address by right
				}
				switch {
				case err == nil:
					t.Fatal("the pod runs: the play has failed")
				case attempt >= addresses && !strings.Contains(err.Error(), "no IP addresses available"):
					t.Fatalf("attempt %d fails for another reason: %v", attempt, err)
				case attempt == addresses:
					if stay {
						m.kept(addresses - 1) // the agent may learn of the last one late
					}
					exhausted, err = m.footprint()
					s.Do(err)
				}
			}
			if booked := m.reservedAddrs(); len(booked) != addresses {
				t.Fatalf("%v are booked, want all %d addresses: the play has failed", booked, addresses)
			}
			m.waitLeft(0)
			if !stay {
				m.waitLeaked(addresses - 1)
			}
			var after footprint
			s.Eventually("no growth after the range is exhausted", func() error {
				var err error
				if after, err = m.footprint(); err != nil {
					return err
				}
				return after.exceeds(exhausted.plus(2))
			})
			t.Logf("before                %v\nrange exhausted       %v\nafter %d retries      %v", before, exhausted, retries, after)
			s.assertNoConflict(false)
			if stay && exhausted.exceeds(before) == nil {
				t.Fatal("four sandboxes more leave no trace in the agent: the measure is wrong")
			}

			// The quiet was no blindness. The books are cleared by force, and two addresses
			// are given out again: that of a pod, and one that a sandbox has kept.
			s.Do(os.Remove(trouble))
			if !stay { // by the printed commands, pods run again
				m.repair()
				s.remove(m.run(named("again")))
			}
			m.wipe(bystander)
			t.Logf("foreseen %.2f s after the address was freed", s.waitForeseen(bystander).Seconds())
			olderPods := []*pod{bystander}
			if stay {
				olderPods = append(olderPods, m.kept(addresses-1)...)
			}
			newcomers := m.runMany("newcomer", min(len(olderPods), 2))
			twice := s.duplicates(olderPods, newcomers)
			s.waitFound(twice...)
			t.Logf("$ dupip conflicts\n%s", m.dupip("conflicts"))
			if stay { // the sandboxes that are left have all the addresses, so the successor of a pod would collide
				i := slices.IndexFunc(twice, func(d duplicate) bool { return d.holders[0] != bystander })
				s.follow(m, lab.Follower{Answer: lab.Failed}, twice[i:i+1], twice[i].newcomer())
			}
			s.remove(newcomers...)
			s.Do(m.removeUnready())
			s.resolved()
			s.Eventually("what the agent holds", func() error {
				now, err := m.footprint()
				after = now
				return errors.Join(err, now.exceeds(before))
			})
			t.Logf("after the clean-up    %v", after)
			s.assertFindings()
		})
	}
}

// repair frees each leaked address by the command that the audit prints about it, as somebody who copies it.
func (m *machine) repair() {
	m.s.Helper()
	found, err := m.findings()
	m.s.Do(err)
	for _, f := range found {
		text := m.dupip("audit", "--ip", f.IP.String())
		i := slices.IndexFunc(strings.Split(text, "\n"), func(line string) bool { return strings.HasPrefix(line, "    flock ") })
		if i < 0 {
			m.s.Fatal("no command about ", f, ": ", text)
		}
		m.shell("sh", "-c", strings.TrimSpace(strings.Split(text, "\n")[i]))
	}
	m.waitLeaked(0)
}

// kept waits for the sandboxes of the unlucky pod that hold so many addresses, by name.
func (m *machine) kept(count int) (all []*pod) {
	m.s.Helper()
	m.s.Eventually("sandboxes of the unlucky pod", func() error {
		bindings, err := m.bindings("--local")
		if err != nil {
			return err
		}
		all = nil
		for _, b := range bindings {
			if b.Pod != nil && b.Pod.Name == "unlucky" {
				all = append(all, &pod{m: m, Pod: &cri.Pod{PodOptions: named("unlucky"), Netns: b.Netns, IPs: []netip.Addr{b.IP}}})
			}
		}
		if len(all) != count {
			return fmt.Errorf("%d are bound by name, want %d", len(all), count)
		}
		return nil
	})
	return all
}

// unready lists the sandboxes that are not ready.
func (m *machine) unready() ([]*runtimeapi.PodSandbox, error) {
	list, err := m.Client().ListPodSandbox(m.s.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY},
	}})
	return list.GetItems(), err
}

// removeUnready removes the sandboxes that never became ready, as a kubelet does.
func (m *machine) removeUnready() error {
	all, err := m.unready()
	if err != nil {
		return err
	}
	for _, p := range all {
		if err := m.RemovePod(m.s.Context(), &cri.Pod{ID: p.Id}); err != nil {
			return err
		}
	}
	return nil
}
