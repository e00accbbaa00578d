package lab

import (
	"net/netip"
	"testing"
	"time"
)

// The agent of one node lives an hour ahead; the other one does not, and may not.
func TestStepClock(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	ahead, plain := l.Node(""), l.Node("")
	program, err := SteppableBinary()
	l.Do(err)
	ahead.Program = program
	stepped, ordinary := l.Agent(ahead), l.Agent(plain)
	if ordinary.StepClock(true) == nil {
		t.Error("the clock of an ordinary agent was stepped")
	}
	off := func(a *Agent, name string, last byte) time.Duration {
		t.Helper()
		ip := a.Node.IPv4(last)
		l.Pod(a.Node, name, PodOptions{Addrs: []netip.Addr{ip}})
		b, err := a.Client.WaitBinding(t.Context(), ip, func(b Binding) bool { return b.Evidence == "announced" })
		l.Do(err)
		return time.Until(b.FirstSeen).Round(5 * time.Minute)
	}
	for i, step := range []struct {
		forward bool
		want    time.Duration
	}{{true, time.Hour}, {true, 2 * time.Hour}, {false, time.Hour}} {
		l.Do(stepped.StepClock(step.forward))
		if got := off(stepped, []string{"a", "b", "c"}[i], byte(10+i)); got != step.want {
			t.Errorf("after step %d the agent is ahead by %v, want %v", i+1, got, step.want)
		}
	}
	if got := off(ordinary, "d", 10); got != 0 {
		t.Errorf("the other agent is ahead by %v", got)
	}
}
