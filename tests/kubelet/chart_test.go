package kubelet_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/helm"
	"github.com/dupip/dupip/tests/kubelet"
	"github.com/dupip/dupip/tests/lab"
)

// The chart with a configuration and a key: the agent finds both, has no problem, and applies changes
// without a restart.
func TestChart(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	s := newTestNode(l, ptp)
	text, err := helm.Run(t.Context(), `
cluster: prod
gossip: {existingSecret: dupip-gossip, secretKey: keys}
config: {networks: [{name: first, match: {peers: [eth0], cidrs: [10.244.0.0/16]}}]}
`, "template", "dupip", "../../deploy/chart", "--namespace", helm.Namespace, "--values", "-")
	l.Do(err)
	path := filepath.Join(t.TempDir(), "dupip.yaml")
	l.Do(os.WriteFile(path, []byte(text), 0o600))
	if s.Kubelet, err = kubelet.New(s.Runtime, path); err != nil {
		t.Fatal(err)
	}
	l.Do(s.SetSecret("dupip-gossip", map[string]string{"keys": l.Key() + "\n"}))
	a := s.agent()
	if text, err := a.CLI(t.Context(), "status"); err != nil || strings.Contains(text, "NOT encrypted") {
		t.Errorf("gossip is not encrypted (%v):\n%s", err, text)
	}
	pod := l.Pod(a.Node, "pod", lab.PodOptions{Addrs: lab.IPs("10.244.1.7")})
	bound := func(name string) {
		t.Helper()
		_, err := a.Client.WaitBinding(within(l), pod.Addrs()[0], func(b lab.Binding) bool { return b.Network == name })
		l.Do(err)
	}
	bound("first")
	for name, c := range doctor(l, a) {
		if c.Status == "fail" {
			t.Errorf("doctor: %s: %s", name, c.Finding)
		}
	}

	l.Do(
		s.SetConfigMap("dupip", map[string]string{"dupip.yaml": "networks: [{name: second, match: {peers: [eth0]}}]\n"}),
		s.SetSecret("dupip-gossip", map[string]string{"keys": l.Key() + "\n" + lab.NewKey() + "\n"}),
	)
	bound("second")
	l.Eventually("a changed Secret", func() error {
		if !strings.Contains(a.Log(), "gossip keys read again") {
			return errors.New("the log lacks that it was read")
		}
		return nil
	})
	if n := strings.Count(a.Log(), "keys=2"); n != 1 {
		t.Errorf("%d times two keys in\n%s", n, a.Log())
	}
	l.Do(a.Stop())
}
