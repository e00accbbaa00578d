package faults

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// Half of the agents are of a next version, whose messages have one more field and one more kind: see
// gossip/wire/next.go. Duplicates of each pair of versions are found and stay, and what is unknown is counted.
func TestTwoVersions(t *testing.T) {
	t.Parallel()
	s := &testCluster{T: lab.NewT(t)}
	next := filepath.Join(t.TempDir(), "dupip")
	s.Do(lab.Build("../..", next, "./cmd/dupip", "-tags=dupip_next", "-ldflags=-X main.version=next"))
	var nodes []*lab.Node
	for i := range 8 {
		n := s.Node("")
		if i%2 == 1 {
			n.Program = next
		}
		nodes = append(nodes, n)
	}
	for _, a := range s.Agents(nodes) {
		s.add(a)
	}

	// Of the second node the version is the other one, then the same one.
	for i, first := range s.nodes {
		s.duplicate(first, s.nodes[(i+1)%len(s.nodes)])
		s.duplicate(first, s.nodes[(i+2)%len(s.nodes)])
	}
	var slowest time.Duration
	for _, d := range s.duplicates {
		slowest = max(slowest, s.waitFound(d, d.began, patience))
	}
	s.Logf("%d duplicates: found after %.1f s at most", len(s.duplicates), slowest.Seconds())
	s.holdsFor(10*time.Second, s.audit)
	s.assertUnchanged(s.duplicates...)
	s.end(s.duplicates...)
	s.audit()

	for _, n := range s.nodes {
		status, err := s.status(n.agent)
		s.Do(err)
		unknown, isNext := status.Dropped["unknown field"], n.Program != ""
		s.Logf("%s, next version %t: unknown fields in %d packets", n.ShortName(), isNext, unknown)
		if isNext != (unknown == 0) || status.Dropped["malformed message"] > 0 {
			s.Errorf("%s, next version %t: dropped %v", n.ShortName(), isNext, status.Dropped)
		}
		s.waitNoProblem(n.agent, patience)
		members, err := n.agent.Client.Members(s.Context())
		s.Do(err)
		if all := len(slices.DeleteFunc(members, func(m lab.Member) bool { return m.Version != "next" })); all != len(s.nodes)/2 {
			s.Errorf("%s sees %d agents of the next version, want %d", n.ShortName(), all, len(s.nodes)/2)
		}
	}
}
