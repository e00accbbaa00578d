package incidents

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// advises returns an error unless an agent advises for some address to remove a pod of this name
// first, for this reason, with a command that begins so.
func (m *machine) advises(because, name, command string) error {
	out, err := m.agent.CLI(m.s.Context(), "conflicts", "-o", "json")
	if err != nil {
		return err
	}
	var doc struct{ Conflicts []advised }
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		return err
	}
	for _, c := range doc.Conflicts {
		if len(c.Advice.Remove) == 0 {
			continue
		}
		first := c.Advice.Remove[0]
		if pod := c.Holders[first.Holder].Pod; pod != nil && pod.Name == name && first.Because == because && strings.HasPrefix(first.Command, command) {
			return nil
		}
	}
	return fmt.Errorf("no %q because %s is %s: %s", command, name, because, out)
}

// advised is the advice in a conflict.
type advised struct {
	IP      netip.Addr
	Holders []struct{ Pod *lab.PodRef }
	Advice  struct {
		Newer  *int
		Remove []struct {
			Holder  int
			Because string
			Command string
		}
	}
}

// waitOlder waits until a pod that is made on another node counts as newer than this one: within a
// second the order is unknown, because the clocks of nodes differ.
func (s *testCluster) waitOlder(p *pod) {
	s.Helper()
	s.Eventually("age of "+p.String(), func() error {
		if age := time.Since(p.made); age <= 1500*time.Millisecond {
			return fmt.Errorf("it is %v", age)
		}
		return nil
	})
}

// followAdvice follows a machine's first advice for each of the duplicates: remove the newcomer.
func (s *testCluster) followAdvice(m *machine, all ...duplicate) {
	s.Helper()
	var doc struct{ Conflicts []advised }
	s.Do(json.Unmarshal([]byte(m.dupip("conflicts", "-o", "json")), &doc))
	var newcomers []*pod
	for _, d := range all {
		i := slices.IndexFunc(doc.Conflicts, func(c advised) bool { return c.IP == d.ip })
		if i < 0 || len(doc.Conflicts[i].Advice.Remove) != len(d.holders) {
			s.Fatal(fmt.Errorf("the advice about %v is missing or incomplete: %+v", d.ip, doc.Conflicts))
		}
		newcomer := d.newcomer()
		first := doc.Conflicts[i].Advice.Remove[0]
		want := fmt.Sprintf("kubectl -n %s delete pod --field-selector metadata.name=%s,spec.nodeName=%s", newcomer.Namespace, newcomer.Name, newcomer.m.name)
		if first.Command != want || d.holders[first.Holder] != newcomer || first.Because != "newer" {
			s.Fatal(fmt.Errorf("what to do about %v: got %+v, want %q because it is newer", d.ip, first, want))
		}
		if !slices.Contains(newcomers, newcomer) {
			newcomers = append(newcomers, newcomer)
		}
	}
	// The kubelet's part in it.
	s.remove(newcomers...)
}
