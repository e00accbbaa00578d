package kubelet_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/tests/kubelet"
	"github.com/dupip/dupip/tests/lab"
)

// nobody is the user of pods that do not run as root.
const nobody = 65534

// refused are the capabilities without which the agent does not start.
var refused = []corev1.Capability{"NET_ADMIN", "NET_BROADCAST", "NET_RAW", "SYS_ADMIN"}

// The manifest gives the agent exactly what it needs: with all its capabilities everything is found,
// without any of them something is lost, and the agent reports what.
func TestEveryCapability(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	s := newTestNode(l, ptp)
	n := s.Runtime.Node
	silent := l.Pod(n, "silent", lab.PodOptions{Silent: true, Addrs: lab.IPs("10.244.1.7")})
	nameless := l.Pod(n, "nameless", lab.PodOptions{Silent: true, Addrs: lab.IPs("10.244.1.8")})
	hide(l, nameless)

	var all []corev1.Capability
	a := s.agent(func(p *corev1.PodSpec) error {
		c := p.Containers[0].SecurityContext.Capabilities
		all = slices.Clone(c.Add)
		if !slices.Equal(c.Drop, []corev1.Capability{"ALL"}) {
			return fmt.Errorf("the manifest drops %q, want all", c.Drop)
		}
		return nil
	})
	// Silent addresses are probed in namespaces that a name or a process leads to; the pod's one
	// process identifies the netns that holds the address.
	for _, p := range []*lab.Pod{silent, nameless} {
		waitBindings(l, a, p, "announced")
	}
	// A running pod that stays silent: only the kernel reports its new address.
	l.Do(silent.AddAddr(lab.IPs("10.244.1.9")[0]))
	l.Eventually("a new address", func() error {
		_, err := a.Client.WaitBinding(within(l), lab.IPs("10.244.1.9")[0], func(lab.Binding) bool { return true })
		return err
	})
	if c := doctor(l, a)["capabilities"]; c.Status != "ok" {
		t.Errorf("doctor with all capabilities: %+v", c)
	}
	if c := doctor(l, a)["pods"]; c.Status != "ok" {
		t.Errorf("doctor with all capabilities: %+v", c)
	}
	l.Do(a.Stop())

	for _, name := range all {
		t.Run("without "+string(name), func(t *testing.T) {
			l := &lab.T{Lab: l.Lab, TB: t}
			s := &testNode{s.Kubelet, l}
			if slices.Contains(refused, name) {
				a := s.start(withoutCapability(name))
				defer func() { l.Do(a.Stop()) }()
				wantRefusal(l, a, "CAP_"+string(name))
				return
			}
			if name != "SYS_PTRACE" {
				t.Fatalf("what the agent does with %s is not known: does it need it?", name)
			}
			a := s.agent(withoutCapability(name))
			waitBindings(l, a, silent, "announced")
			l.Eventually("what is lost", func() error {
				status, err := a.CLI(t.Context(), "status")
				if err == nil && !strings.Contains(status, "unseen netns") {
					err = fmt.Errorf("dupip status does not report an unseen netns:\n%s", status)
				}
				return err
			})
			checks := doctor(l, a)
			for check, word := range map[string]string{"capabilities": "SYS_PTRACE", "pods": nameless.HostInterface} {
				if c := checks[check]; c.Status != "warn" || !strings.Contains(c.Finding+c.Advice, word) {
					t.Errorf("doctor, %s: %+v, want a warning with %s", check, c, word)
				}
			}
			l.Do(a.Stop())
		})
	}
}

// hide takes the netns of a pod its name away; a process of a user that is not root is
// what leads to it.
func hide(t *lab.T, p *lab.Pod) {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &unix.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	_, err := p.Launch(cmd)
	t.Do(err)
	t.Do(p.Conceal())
}

// waitBindings waits for a binding of a pod's only address behind its interface.
func waitBindings(t *lab.T, a *kubelet.Agent, p *lab.Pod, evidence string) {
	t.Helper()
	_, err := a.Client.WaitBinding(within(t), p.Addrs()[0], func(b lab.Binding) bool {
		return b.Interface == p.HostInterface && b.Evidence == evidence
	})
	t.Do(err)
}

func within(t *lab.T) context.Context {
	ctx, cancel := lab.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// wantRefusal waits for the end of an agent that does not start, and expects one line with the
// reason.
func wantRefusal(t *lab.T, a *kubelet.Agent, words ...string) {
	t.Helper()
	code, err := a.ExitCode(within(t))
	t.Do(err)
	var log string
	t.Eventually("the last line of the log, which the runtime copies", func() error {
		whole := false
		if log, whole = strings.CutSuffix(a.Log(), "\n"); !whole {
			return fmt.Errorf("it ends with %q", log)
		}
		return nil
	})
	if code == 0 || strings.Contains(log, "\n") || !strings.HasPrefix(log, "dupip: ") {
		t.Errorf("the agent ended with code %d, want another, and one line of dupip's, not:\n%s", code, log)
	}
	for _, word := range words {
		if !strings.Contains(log, word) {
			t.Errorf("the agent ended with %q, want a word of %q", log, word)
		}
	}
	t.Logf("%s", log)
}
