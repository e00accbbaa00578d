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

// chart makes the node's DaemonSet that of the chart with some values.
func (s *testNode) chart(values string) {
	s.Helper()
	text, err := helm.Run(s.Context(), values, "template", "dupip", "../../deploy/chart", "--skip-tests", "--namespace", helm.Namespace, "--values", "-")
	s.Do(err)
	path := filepath.Join(s.TempDir(), "dupip.yaml")
	s.Do(os.WriteFile(path, []byte(text), 0o600))
	s.Kubelet, err = kubelet.New(s.Runtime, path)
	s.Do(err)
}

// With metrics.address the agent listens there only, where the probes and the doctor find it.
func TestMetricsAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"hostIP", "127.0.0.1"} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			l := lab.NewT(t)
			s := newTestNode(l, ptp)
			s.chart(`{metrics: {address: ` + address + `}, gossip: {existingSecret: dupip-gossip}}`)
			a := s.agent()
			l.Do(a.Live(t.Context()))
			if c := doctor(l, a)["metrics"]; c.Status != "ok" || !strings.Contains(c.Finding, "served by the agent") {
				t.Errorf("doctor: metrics: %+v", c)
			}
			for host, want := range map[string]bool{a.Node.Uplink().String(): address == "hostIP", "127.0.0.1": address != "hostIP"} {
				response, err := a.Node.HTTPClient().Get("http://" + host + ":9951/metrics")
				if err == nil {
					response.Body.Close()
				}
				if (err == nil) != want {
					t.Errorf("metrics at %s: %v, want %t", host, err, want)
				}
			}
			l.Do(a.Stop())
		})
	}
}

// The chart with a configuration and a key: the agent finds both, has no problem, and applies changes
// without a restart.
func TestChart(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	s := newTestNode(l, ptp)
	s.chart(`
cluster: prod
gossip: {existingSecret: dupip-gossip, secretKey: keys}
config: {networks: [{name: first, match: {peers: [eth0], cidrs: [10.244.0.0/16]}}]}
`)
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
