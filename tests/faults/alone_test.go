package faults

import (
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// An agent without a cluster finds what is on its node, and reports that it sees no other.
func TestAlone(t *testing.T) {
	t.Parallel()
	s := &testCluster{T: lab.NewT(t)}
	n := s.add(s.Agent(s.Node("")))
	other := s.add(s.Agent(s.Node("")))
	d := s.duplicate(n, n)
	s.waitFound(d, d.began, patience)
	// There is one on the other node, too, which it cannot know.
	s.pod(other, lab.Routed, d.ips...)
	status, err := s.status(n.agent)
	s.Do(err)
	if !status.Alone {
		s.Errorf("the agent does not report that it is alone: %+v", status)
	}
	s.holdsFor(3*time.Second, func() { s.assertUnchanged(d) })
	s.audit()
	s.end(d)
	s.audit()
}
