package kubelet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/tests/lab"
)

// The configuration comes in a ConfigMap, and its changes as a kubelet makes them: by
// another folder behind a link. The container has nothing else that it could write to but
// what it needs.
func TestConfigMap(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	s := newTestNode(l, ptp)
	network := func(name string) map[string]string {
		return map[string]string{"config.yaml": fmt.Sprintf("networks:\n  - name: %s\n    match: {bridges: [cni0]}\n", name)}
	}
	l.Do(s.SetConfigMap("dupip", network("first")))
	a := s.agent(withEnv("DUPIP_CONFIG", "/etc/dupip/config/config.yaml"),
		withMount("config", "/etc/dupip/config", corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "dupip"}},
		}))
	pod := l.Pod(a.Node, "pod", lab.PodOptions{Addrs: lab.IPs("10.244.1.7")})
	within := func(name string) {
		t.Helper()
		_, err := a.Client.WaitBinding(within(l), pod.Addrs()[0], func(b lab.Binding) bool { return b.Network == name })
		l.Do(err)
	}
	within("first")

	l.Do(s.SetConfigMap("dupip", network("second")))
	within("second")
	// Told to, the agent does not wait for its next look.
	l.Do(s.SetConfigMap("dupip", network("third")), unix.Kill(a.PID(), unix.SIGHUP))
	within("third")
	// A mistake changes nothing and shows in doctor.
	l.Do(s.SetConfigMap("dupip", map[string]string{"config.yaml": "netwroks: []\n"}))
	l.Eventually("doctor on a bad configuration", func() error {
		if c := doctor(l, a)["config"]; c.Status != "fail" || !strings.Contains(c.Finding, "netwroks") {
			return fmt.Errorf("doctor: %+v", c)
		}
		return nil
	})
	within("third")

	// The key is its owner's only, and the agent, without the right to pass over that, is.
	path, err := a.HostPath("/etc/dupip/gossip/gossip.key")
	l.Do(err)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("the key file: %v (%v)", info, err)
	}
	if text, err := a.CLI(t.Context(), "status"); err != nil || strings.Contains(text, "NOT encrypted") {
		t.Errorf("gossip is not encrypted (%v):\n%s", err, text)
	}
	root := fmt.Sprintf("/proc/%d/root", a.PID())
	if err := os.WriteFile(filepath.Join(root, "new"), nil, 0o600); err == nil {
		t.Error("the root of the container can be written to")
	}
}

// A state folder with another owner: the agent, root without CAP_DAC_OVERRIDE, reports it and runs
// without state.
func TestStateOfSomebodyElse(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	s := newTestNode(l, ptp)
	dir := s.HostPaths["/var/lib/dupip"]
	l.Do(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o700), os.Chown(dir, nobody, nobody))
	a := s.agent()
	pod := s.pods("pod", 1)[0]
	s.bound(a, pod)
	if c := doctor(l, a)["state dir"]; c.Status != "fail" ||
		!strings.Contains(c.Finding, "/var/lib/dupip") || !strings.Contains(c.Advice, "chown root") {
		t.Errorf("doctor: %+v, want a failure, and who has to own it", c)
	}
	if !strings.Contains(a.Log(), "level=WARN") || !strings.Contains(a.Log(), "/var/lib/dupip") {
		t.Errorf("the log lacks that the state is not kept:\n%s", a.Log())
	}
	l.Do(a.Stop())
}
