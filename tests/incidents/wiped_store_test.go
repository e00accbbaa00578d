package incidents

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// Store of host-local wiped (KIND, flannel, Rancher restore): a node lost the folder in
// which host-local notes what it has given out, and the next pods got the addresses of
// those that ran, from the first one up. With ptp no plugin complains: the node keeps one
// route for each address, so that one of its two pods goes dark.
//
// Played: ten pods, the folder is removed, ten more.
func TestI2WipedStore(t *testing.T) {
	for name, plugin := range map[string]map[string]any{
		"ptp":    {"type": "ptp"},
		"bridge": {"type": "bridge", "bridge": "cbr0", "isGateway": true},
	} {
		t.Run(name, func(t *testing.T) {
			const pods = 10
			s := newTestCluster(t)
			m := s.machine(options{plugin: plugin, subnets: []string{"10.99.0.0/24", "fd00:99::/64"}})
			s.startAgents(m)
			olderPods := m.runMany("older", pods)
			s.waitBindings(olderPods...)
			s.assertNoConflict(false)

			s.assertFindings()
			m.wipe(olderPods...)
			t.Logf("%d addresses foreseen, the last of them %.2f s after the store was removed", 2*pods, s.waitForeseen(olderPods...).Seconds())
			t.Logf("$ dupip audit\n%s", m.dupip("audit"))
			newcomers := m.runMany("newcomer", pods)
			all := s.duplicates(olderPods, newcomers)
			if len(all) != 2*pods {
				t.Fatalf("%d addresses have two holders, want %d: the play has failed", len(all), 2*pods)
			}
			sinceRun, sinceSeen := s.waitFound(all...)
			t.Logf("the slowest of %d: %.2f s after RunPodSandbox was called, %.2f s after the newcomer was seen",
				len(all), sinceRun.Seconds(), sinceSeen.Seconds())
			s.waitBindings(append(olderPods, newcomers...)...)
			t.Logf("$ dupip conflicts\n%s", m.dupip("conflicts"))
			// They have the alerts of conflicts, and no more those of findings.
			s.Eventually("findings of addresses that have collided", func() error {
				page, err := m.page()
				for kind, want := range map[string]float64{"in_conflict": 2 * pods, "unreserved": 0, "mismatched": 0} {
					if got, ok := page[fmt.Sprintf("dupip_audit_findings{kind=%q}", kind)]; !ok || got != want {
						err = errors.Join(err, fmt.Errorf("%v findings are %s, want %v", got, kind, want))
					}
				}
				return err
			})

			// One of the two gets no packets, and the node's routes show no problem.
			for _, p := range olderPods {
				p.serve()
			}
			var ends []func()
			for _, p := range newcomers {
				ends = append(ends, p.serve())
			}
			for _, d := range all[:2] {
				// On a bridge both may answer: then connections are reset.
				name, err := m.whoAnswers(d.ip)
				t.Logf("$ ip route get %v\n%s\n(of %v answers %q, %v)", d.ip, m.routeTo(d.ip), d.holders, name, err)
			}
			for _, end := range ends {
				end()
			}
			m.explains(all[0].ip, fmt.Sprintf("store of host-local (network %s) on node %s was probably wiped: it has no reservation for %d pods", network, m.name, pods),
				"was given the address, but host-local (network "+network+") of node "+m.name+" has reserved it for "+all[0].newcomer().Namespace+"/"+all[0].newcomer().Name)
			t.Logf("$ dupip explain %v\n%s", all[0].ip, m.dupip("explain", all[0].ip.String()))

			// What dupip says is carried out, and is enough: each address stays with the pod for which the books have it.
			s.follow(m, lab.Follower{}, all, newcomers...)
			for _, p := range newcomers {
				p.serve()
				p.waitReachable()
			}
			s.assertFindings()
		})
	}
}
