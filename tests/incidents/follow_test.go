package incidents

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

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

// follow carries out to the letter what a machine says about these duplicates, each command once, with the answers of a person to what
// it asks. Then they are over, and these pods live.
func (s *testCluster) follow(m *machine, f lab.Follower, twice []duplicate, live ...*pod) {
	s.Helper()
	var k cri.Kubernetes
	for _, m := range s.machines {
		k.AddNode(m.name, m.Runtime)
	}
	f.Run = k.Shells(s.T, nil).Run
	var steps []lab.Step
	var ips []netip.Addr
	for _, d := range twice {
		c := s.Judged(m.agent, d.ip, func(j *lab.Judgement) bool { return f.Answer != nil && j.Cause != "coming" || j.Orders() })
		for _, step := range c.Judgement.Steps {
			if !slices.Contains(steps, step) {
				steps = append(steps, step)
			}
		}
		ips = append(ips, d.ip)
	}
	since := time.Now()
	s.Do(lab.Undone(s.Follow(steps, f)))
	var agents []lab.Reporter
	for _, m := range s.machines {
		if m.Running() {
			agents = append(agents, m.agent.Client)
		}
	}
	s.Ended(since, func() error {
		var all []*cri.Pod
		for _, p := range live {
			all = append(all, p.Pod)
		}
		return k.Alive(s.Context(), all...)
	}, ips, agents...)
}

// drains is the answer of a person who knows the machine whose addresses were given out wrongly.
func drains(wrong *machine) func(lab.Step, []lab.Ran) bool {
	return func(step lab.Step, _ []lab.Ran) bool {
		return step.If == "If "+wrong.name+" is the one with a wrong range"
	}
}

// shutsDown is a person who turns off the machine that the API server does not know: it has the boot id of another one of that name.
func (s *testCluster) shutsDown() (f lab.Follower, off func() *machine) {
	var down *machine
	return lab.Follower{
		Answer: func(step lab.Step, before []lab.Ran) bool {
			boot, ok := strings.CutSuffix(strings.TrimPrefix(step.If, "If another one of them is always there, and "), " never")
			return ok && len(before) > 0 && !strings.Contains(before[0].Out, boot)
		},
		ByHand: func(step lab.Step) (string, error) {
			if step.If == "" {
				return "", nil
			}
			i := slices.IndexFunc(s.machines, func(m *machine) bool { return m.Node.Address().String() == step.Address })
			if i < 0 || down != nil {
				return "", fmt.Errorf("the machine to shut down is not one: %+v", step)
			}
			down = s.machines[i]
			return "", errors.Join(down.agent.Stop(), down.Node.Disconnect(), down.Kill9())
		},
	}, func() *machine { return down }
}
