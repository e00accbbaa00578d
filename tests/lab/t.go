package lab

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/dupip/dupip/internal/testneeds"
)

// T is a lab for a test: its helpers fail the test instead of returning errors, and
// the lab is closed when the test ends. Use it from the test's goroutine only.
type T struct {
	*Lab
	testing.TB
}

// NewT makes a lab for a test, which needs root.
func NewT(t testing.TB) *T {
	t.Helper()
	testneeds.Root(t)
	began, _ := BusyNow()
	t.Cleanup(func() {
		if now, err := BusyNow(); err == nil && t.Failed() {
			t.Log(now.Since(began))
		}
	})
	// Not the context of the test, which ends before the cleanups that print the agents' logs.
	l, err := New(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close lab: %v", err)
		}
	})
	return &T{Lab: l, TB: t}
}

// Do fails the test if any error is not nil.
func (t *T) Do(errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Node adds a node.
func (t *T) Node(name string) *Node {
	t.Helper()
	n, err := t.AddNode(name)
	t.Do(err)
	return n
}

// Pod adds a pod to a node.
func (t *T) Pod(n *Node, name string, o PodOptions) *Pod {
	t.Helper()
	p, err := n.AddPod(name, o)
	t.Do(err)
	return p
}

// Agent starts an agent on a node, waits until it is ready, and prints its log if the
// test fails.
func (t *T) Agent(n *Node, flags ...string) *Agent {
	t.Helper()
	a, err := n.StartAgent(flags...)
	t.Do(err)
	return t.ready(a)
}

// Successor starts another agent with the flags, the state and the socket of one that
// has ended, and waits as Agent does.
func (t *T) Successor(a *Agent, flags ...string) *Agent {
	t.Helper()
	next, err := a.Successor(flags...)
	t.Do(err)
	return t.ready(next)
}

func (t *T) ready(a *Agent) *Agent {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the agent on %s:\n%s", a.Node.ShortName(), a.Log())
		}
	})
	ctx, cancel := WithTimeout(t.Context(), Patience(readyTimeout))
	defer cancel()
	t.Do(a.WaitReady(ctx))
	return a
}

// Watch records the conflict events of an agent.
func (t *T) Watch(a *Agent) *Watch {
	t.Helper()
	w, err := a.Watch(context.WithoutCancel(t.Context()))
	t.Do(err)
	return w
}

// Usage is that of a process.
func (t *T) Usage(p *Process) Usage {
	t.Helper()
	u, err := p.Usage()
	t.Do(err)
	return u
}

// InjectFaults adds faults to the switch; heal removes them.
func (t *T) InjectFaults(faults ...Fault) (heal func()) {
	t.Helper()
	end, err := t.Lab.InjectFaults(faults...)
	t.Do(err)
	return func() { t.Helper(); t.Do(end()) }
}

// PatienceVariable names the environment variable with a whole number by which tests multiply their
// timeouts on slow machines.
const PatienceVariable = "DUPIP_TEST_PATIENCE"

// Patience is a timeout for this machine that is d on an ordinary one.
func Patience(d time.Duration) time.Duration {
	factor, err := strconv.Atoi(os.Getenv(PatienceVariable))
	if err != nil || factor < 1 {
		return d
	}
	return d * time.Duration(min(factor, 100))
}
