package deploy_test

import (
	"encoding/base64"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/metrics"
)

// Configurations that agents read, and configurations that they refuse. The chart has to say the same of each.
var (
	goodConfigs = []string{
		`{}`,
		`{shared: [0.0.0.0, 255.255.255.255, 10.0.0.53, 10.96.0.0/12, 0.0.0.0/0, 10.0.0.1/32, 10.128.0.0/9, 10.0.0.2/31, 10.0.0.254/31, 172.16.0.0/13]}`,
		`{shared: ["::", "::1", "fd00::1", "::/0", "fd00::/8", "fd00:0:0:8000::/49", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "2001:DB8::/32", "fd00::1/128", "::fffe/127", "fc00::/7"]}`,
		`{shared: ["::ffff:0:0:1", "::ffff", "ffff::1", "::1:ffff:0:1"]}`,
		`{networks: [{name: storage, scope: node, solicit: off, match: {peers: [net1], cidrs: [10.9.0.0/16, "fd09::/16"]}}]}`,
		`{networks: [{name: net1@br1}, {name: "a.b-c_D"}, {name: "1"}, {name: a.1b}]}`,
		`{networks: [{name: a, scope: node}, {name: a}, {name: a, scope: node, solicit: "on"}, {name: b, scope: cluster}]}`,
		`{ignore: {interfaces: ["*", "veth?", "cali[0-9a-f]*", "[^a]x", '[\]]', '\[', "a]", "abcdefghijklmno", "[a-z][a-z][a-z][0-9]", "ens1f0.100"]}}`,
		`{limits: {bindings: 1048576, bindingsPerInterface: 65536, history: 1, verifyPerSecond: 10000, refreshPerSecond: 10000}}`,
		`{limits: {bindings: 100}}`,
	}
	badConfigs = []string{
		`{shared: [10.0.0.256]}`, `{shared: [10.0.0]}`, `{shared: [10.0.0.1.2]}`, `{shared: [010.0.0.1]}`, `{shared: [""]}`, `{shared: [dns]}`,
		`{shared: ["10.0.0.1:80"]}`, `{shared: ["10.0.0.1 "]}`, `{shared: [10.0.0.0/33]}`, `{shared: [10.0.0.0/]}`, `{shared: [10.0.0.0/08]}`, `{shared: [10.0.0.0/8/8]}`,
		`{shared: [10.0.0.0/-8]}`, `{shared: [/8]}`, `{shared: [10.0.0.1/8]}`, `{shared: [10.0.0.1/31]}`, `{shared: [10.64.0.0/9]}`, `{shared: [128.0.0.0/0]}`,
		`{shared: ["fd00::1/64"]}`, `{shared: ["fd00:0:0:8000::/48"]}`, `{shared: ["fd00::/129"]}`, `{shared: ["fe80::1%eth0"]}`, `{shared: ["fe80::%eth0/64"]}`,
		`{shared: ["::ffff:10.0.0.1"]}`, `{shared: ["::ffff:a00:1"]}`, `{shared: ["::ffff:a00:0/112"]}`, `{shared: ["1::2::3"]}`, `{shared: [":::"]}`, `{shared: [":1::"]}`,
		`{shared: ["1:2:3:4:5:6:7"]}`, `{shared: ["1:2:3:4:5:6:7:8:9"]}`, `{shared: ["1:2:3:4:5:6:7::8"]}`, `{shared: ["1:2:3:4::5:6:7:8"]}`, `{shared: ["fd00::12345"]}`, `{shared: ["fd00::g"]}`,
		`{shared: 10.0.0.1}`, `{shared: [10.0]}`,
		`{networks: [{scope: node}]}`, `{networks: [{name: ""}]}`, `{networks: [{name: a/b}]}`, `{networks: [{name: default.100}]}`, `{networks: [{name: 7}]}`, `{networks: [{name: "ä"}]}`,
		`{networks: [{name: a, scope: nodes}]}`, `{networks: [{name: a, solicit: "no"}]}`, `{networks: [{name: a, match: {}}]}`, `{networks: [{name: a, match: {cidrs: []}}]}`,
		`{networks: [{name: a, match: {peers: []}}]}`, `{networks: [{name: a, match: {cidrs: [10.9.0.0]}}]}`, `{networks: [{name: a, match: {cidrs: [10.9.0.1/16]}}]}`,
		`{networks: [{name: a, match: {cidrs: ["fd00::1/64"]}}]}`, `{networks: [{name: a, match: {peers: ["net 1"]}}]}`, `{networks: [{name: a, match: {bridges: ["br["]}}]}`,
		`{networks: [{name: a, scope: node}, {name: b}, {name: a, scope: cluster}]}`, `{networks: [{name: a, solicit: on}, {name: a, solicit: "off"}]}`,
		`{ignore: {interfaces: [""]}}`, `{ignore: {interfaces: [a/b]}}`, `{ignore: {interfaces: ["a:b"]}}`, `{ignore: {interfaces: ["[z-"]}}`, `{ignore: {interfaces: ["[]a]"]}}`,
		`{ignore: {interfaces: ['a\']}}`, `{ignore: {interfaces: [abcdefghijklmnop]}}`, `{ignore: {interfaces: [7]}}`,
		`{limits: {bindings: 0}}`, `{limits: {bindings: 1048577}}`, `{limits: {bindings: "5"}}`, `{limits: {bindings: 1.5}}`, `{limits: {bindingsPerInterface: 65537}}`,
		`{limits: {history: 10001}}`, `{limits: {verifyPerSecond: 0}}`, `{limits: {refreshPerSecond: 10001}}`, `{limits: {bindings: 100, bindingsPerInterface: 101}}`,
		`{limits: {bindingsPerInterface: 65536, bindings: 65535}}`,
	}
)

// Settings of extraArgs that an agent takes, and that it refuses.
var (
	goodSettings = []string{
		"--min-overlap=10ms", "--min-overlap=1m", "--min-overlap=1.5s", "--min-overlap=0.5m30s", "--vip-overlap=1s", "--vip-overlap=5m", "--unheld-after=1s", "--unheld-after=24h", "--unheld-after=23h59m60s",
		"--replicas=1", "--replicas=16", "--node-name=ip-10-0-0-1.EU_1", "--attach=tc", "--capture=off", "--capture=on", "--configured-evidence=off", "--log-level=DEBUG", "--log-format=json", "--cluster=a: b",
		"--bind=::", "--bind=0.0.0.0", "--bind=10.0.0.1", "--bind=fd00::1", "--join=n1,10.0.0.1:80,[fd00::1]:80,fd00::1,a.b_c-d.:7", "--advertise=10.0.0.1:80", "--advertise=n1",
		"--alertmanager=http://a.b:9093", "--alertmanager=https://a/prefix/,http://10.0.0.1:9093",
	}
	badSettings = []string{
		"--min-overlap=0s", "--min-overlap=0", "--min-overlap=-1s", "--min-overlap=9ms", "--min-overlap=61s", "--min-overlap=1m1s", "--min-overlap=1h", "--min-overlap=2", "--min-overlap=soon", "--min-overlap=",
		"--vip-overlap=999ms", "--vip-overlap=301s", "--vip-overlap=long", "--unheld-after=999ms", "--unheld-after=24h1s", "--unheld-after=1d", "--replicas=0", "--replicas=-1", "--replicas=17", "--replicas=100", "--replicas=three",
		"--node-name=", "--node-name=a b", "--node-name=a/b", "--node-name=-a", "--attach=ebpf", "--capture=false", "--capture=", "--configured-evidence=false", "--log-level=loud", "--log-level=info+4", "--log-format=xml",
		"--cluster=", "--cluster= a", "--cluster=ä", "--bind=", "--bind=eth0", "--bind=10.0.0.256", "--bind=10.0.0.1:7951", "--bind=224.0.0.1", "--bind=ff02::1",
		"--join=", "--join=a b", "--join=http://a", "--join=10.0.0.256", "--join=10.0.0", "--join=a:0", "--join=a:65536", "--join=a:b", "--join=a,,b", "--join=0.0.0.0", "--join=::", "--join=224.0.0.1:80",
		"--advertise=", "--advertise=0.0.0.0", "--advertise=a:b", "--advertise=10.0.0.256", "--advertise=n1,n2", "--nonsense=1", "--gossip-port=0",
		"--alertmanager=", "--alertmanager=a:9093", "--alertmanager=ftp://a", "--alertmanager=http://", "--alertmanager=http://me:secret@a", "--alertmanager=http://a?b=c",
	}
)

// configOf decodes and encodes, as Helm does, which reads YAML 1.1.
func configOf(t *testing.T, text string) error {
	t.Helper()
	var values any
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	data, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	_, err = config.Parse(data)
	return err
}

// The chart refuses what an agent would refuse, and nothing else.
func TestChartAgreesAboutConfig(t *testing.T) {
	for _, text := range append(append([]string{}, goodConfigs...), badConfigs...) {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			agent := configOf(t, text)
			_, chart := renderChart(t, "dupip", "dupip", "config: "+text)
			if (agent == nil) != (chart == nil) {
				t.Errorf("the agent: %v\nthe chart: %v", agent, chart)
			}
			if chart != nil && (!strings.Contains(chart.Error(), "config") || strings.Count(chart.Error(), "\n") > 5) {
				t.Errorf("the error does not say where it is, or is long:\n%v", chart)
			}
		})
	}
	// The agent takes the valid half of the table, and refuses the other.
	for _, text := range goodConfigs {
		if err := configOf(t, text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range badConfigs {
		if configOf(t, text) == nil {
			t.Errorf("%s: the agent takes it", text)
		}
	}
}

// The agent can listen where the chart has it listen. What the chart refuses is no address for an agent, or one
// without a use.
func TestChartAgreesAboutMetricsAddress(t *testing.T) {
	for address, listens := range map[string]bool{
		"": true, "127.0.0.1": true, "::1": true, "hostIP": true, "0:0:0:0:0:0:0:1": true,
		"127.0.0.1:0": false, "[::1]": false, "localhost": false, "hostip": false, "$(POD_IP)": false, "lo": false, "127.1": false, "127.0.0.256": false,
		"0.0.0.0": false, "::": false, "0:0::0": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false, "::ffff:127.0.0.1": false, "fe80::1%lo": false, "off": false,
	} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			values, err := yaml.Marshal(map[string]any{"metrics": map[string]any{"address": address}})
			if err != nil {
				t.Fatal(err)
			}
			o, err := renderChart(t, "dupip", "dupip", string(values))
			if (err == nil) != listens || err != nil && !strings.Contains(err.Error(), "metrics.address: ") {
				t.Fatalf("the chart takes it: %t (%v)", err == nil, err)
			}
			if err != nil {
				return
			}
			listen, _ := o.setting("--metrics-listen")
			for _, node := range []string{"127.0.0.1", "::1"} {
				at := strings.Replace(strings.TrimSuffix(listen, "9951")+"0", "$(DUPIP_ADVERTISE)", node, 1)
				listener, err := metrics.Listen(at)
				if err != nil {
					t.Error(err)
					continue
				}
				host := listener.Addr().(*net.TCPAddr).IP
				if address == "hostIP" && host.String() != node || address != "" && !host.IsLoopback() {
					t.Errorf("with %q it listens at %v", at, host)
				}
				listener.Close()
			}
		})
	}
}

// testSettings gives chart and agent the same settings. The agent finds no configuration then, and ends before it opens
// anything.
func testSettings(t *testing.T, program string) {
	const nowhere = "/nowhere/dupip.yaml"
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := func(t *testing.T, env []string, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, append([]string{"agent", "--config=" + nowhere, "--gossip-key-file=" + key}, args...)...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Fatalf("the agent did not fail:\n%s", out)
		}
		return string(out)
	}
	taken := func(text string) bool {
		return strings.Contains(text, nowhere) || strings.Contains(text, "the agent needs root")
	}
	for n, setting := range append(append([]string{}, goodSettings...), badSettings...) {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			flag, value, _ := strings.Cut(setting, "=")
			var join []string
			if flag != "--join" {
				join = []string{"--join=n1"}
			}
			text := agent(t, nil, append(join, setting)...)
			if want := n < len(goodSettings); taken(text) != want {
				t.Errorf("the agent takes it: %t, want %t:\n%s", !want, want, text)
			}
			values, err := yaml.Marshal(map[string]any{"extraArgs": []string{setting}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := renderChart(t, "dupip", "dupip", string(values)); (err == nil) != taken(text) {
				t.Errorf("the agent: %s\nthe chart: %v", text, err)
			} else if err != nil && !strings.Contains(err.Error(), "extraArgs: "+flag+" is") {
				t.Errorf("the chart's error: %v", err)
			}
			// The same as a variable, but those that the chart sets itself; an empty one is none, and one that is no flag's
			// is ignored by the agent.
			name := variable(flag)
			if value == "" || flag == "--nonsense" || flag == "--gossip-port" || flag == "--node-name" || flag == "--cluster" || flag == "--join" || flag == "--advertise" {
				return
			}
			text = agent(t, []string{name + "=" + value}, join...)
			if values, err = yaml.Marshal(map[string]any{"extraEnv": []any{map[string]string{"name": name, "value": value}}}); err != nil {
				t.Fatal(err)
			}
			if _, err := renderChart(t, "dupip", "dupip", string(values)); (err == nil) != taken(text) {
				t.Errorf("the agent: %s\nthe chart: %v", text, err)
			}
		})
	}
	t.Run("every flag", func(t *testing.T) {
		help, err := exec.Command(program, "agent", "--help").CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range flagsIn(string(help)) {
			_, err := renderChart(t, "dupip", "dupip", `{extraArgs: ["`+flag+`=$(X)"]}`)
			if flag == "--help" {
				continue
			}
			if err != nil && !strings.Contains(err.Error(), "is the chart's") {
				t.Errorf("%s: %v", flag, err)
			}
		}
	})
	if _, err := os.Stat(filepath.Dir(nowhere)); err == nil {
		t.Fatal("somebody made ", nowhere)
	}
}
