package kubelet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/kubelet"
	"github.com/dupip/dupip/tests/lab"
)

// The agents of two nodes find each other by the name of the Service, and find one address
// on both nodes.
func TestJoinByName(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	sites := []*testNode{newTestNode(l, ptp), newTestNode(l, ptp)}
	var agents []*kubelet.Agent
	for _, s := range sites {
		agents = append(agents, s.agent())
	}
	for i, s := range sites {
		l.Eventually("two members", func() error {
			text, err := agents[i].CLI(t.Context(), "status")
			if err == nil && (!strings.Contains(text, "2 alive") || strings.Contains(text, "NOT")) {
				err = fmt.Errorf("the agents have not found each other:\n%s", text)
			}
			return err
		})
		// Each node gives its first pod the first address.
		s.pods("pod", 1)
	}
	for _, a := range agents {
		l.Eventually("a conflict between the nodes", func() error {
			var doc struct{ Conflicts []lab.Conflict }
			if err := query(l, a, &doc, "conflicts"); err != nil {
				return err
			}
			if c := doc.Conflicts; len(c) != 1 || c[0].Scope != "cross-node" || c[0].State != "confirmed" || len(c[0].Holders) != 2 {
				return fmt.Errorf("the conflicts are %+v", c)
			}
			return nil
		})
		// A command in the container has the agent's settings.
		if c := doctor(l, a)["gossip join"]; c.Status != "ok" || !strings.Contains(c.Finding, "joined") {
			t.Errorf("doctor: %+v", c)
		}
	}
}
