// Package deploy tests what is in the folder deploy: the API server, the agent and the operators'
// tools accept it. The tests need no cluster, no root and no lab.
package deploy_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/helm"
)

// rendering is the chart with some values, and what is to come of them. Whatever the
// values, the objects have to pass checkChart.
type rendering struct {
	release, namespace string // default: dupip, in one of the same name
	inNamespace        string // where its objects are, if elsewhere
	values             string
	want               func(*testing.T, *chartObjects)
}

var renderings = map[string]rendering{
	"as it is": {want: func(t *testing.T, o *chartObjects) {
		if o.account == nil || o.config != nil || o.monitor != nil || o.rule != nil || o.dashboard != nil || o.reporter.all() != nil {
			t.Errorf("%+v", o)
		}
		// Secure: a key, and of all rights those that it needs. SECURITY.md has a reason for each.
		s := o.container().SecurityContext
		equal(t, "capabilities", s.Capabilities, &corev1.Capabilities{
			Add:  []corev1.Capability{"NET_ADMIN", "NET_BROADCAST", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE"},
			Drop: []corev1.Capability{"ALL"},
		})
		equal(t, "seccomp profile", s.SeccompProfile, &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault})
		if s.Privileged != nil || o.pod().HostIPC || o.container().Resources.Limits.Memory().IsZero() {
			t.Errorf("%+v", o.pod())
		}
		equal(t, "image", o.container().Image, "localhost/dupip:dev")
		equal(t, "priority class", o.pod().PriorityClassName, "system-node-critical")
		equal(t, "tolerations", o.pod().Tolerations, []corev1.Toleration{{Operator: corev1.TolerationOpExists}})
	}},
	"locked memory": {values: `{securityContext: {lockMemory: true}}`, want: func(t *testing.T, o *chartObjects) {
		equal(t, "capabilities", o.container().SecurityContext.Capabilities.Add,
			[]corev1.Capability{"NET_ADMIN", "NET_BROADCAST", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE", "SYS_RESOURCE"})
	}},
	"reporter":                   {values: `{reporter: {enabled: true}, cluster: "a $(B) c"}`, want: checkReporter},
	"reporter of more networks":  {values: `{reporter: {enabled: true}, config: {shared: [10.0.0.1]}, podMonitor: {enabled: true}}`, want: checkReporter},
	"reporter without books":     {values: `{reporter: {enabled: true, books: off}}`, want: withBooks("off")},
	"reporter with books":        {values: `{reporter: {enabled: true, books: [calico]}}`, want: withBooks("calico")},
	"reporter with its own book": {values: `{reporter: {enabled: true, books: [kubernetes]}}`, want: withBooks("kubernetes")},
	"reporter with all books":    {values: `{reporter: {enabled: true, books: auto}}`, want: withBooks("auto")},
	"reporter of a long release": {release: "r" + strings.Repeat("-long", 10), values: `{reporter: {enabled: true}}`, want: checkReporter},
	"another release": {release: "prod", namespace: "net", want: func(t *testing.T, o *chartObjects) {
		equal(t, "name", o.daemons.Name, "prod-dupip")
	}},
	"names": {values: `{nameOverride: finder, serviceAccount: {name: nobody}}`, want: func(t *testing.T, o *chartObjects) {
		equal(t, "name", o.daemons.Name, "dupip-finder")
		equal(t, "account", o.account.Name, "nobody")
	}},
	"another namespace": {values: `{namespaceOverride: net, reporter: {enabled: true}, podMonitor: {enabled: true}}`, inNamespace: "net", want: checkReporter},
	"a reporter with everything": {
		values: `{reporter: {enabled: true, priorityClassName: high, podAnnotations: {a: "1"}, podDisruptionBudget: {enabled: true},
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: Exists}]}]}}}}}`,
		want: func(t *testing.T, o *chartObjects) {
			pod := o.reporter.set.Spec.Template
			if pod.Spec.PriorityClassName != "high" || pod.Annotations["a"] != "1" || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
				t.Errorf("%+v", pod)
			}
			equal(t, "who is spared", o.reporter.budget.Spec.Selector.MatchLabels, o.reporter.set.Spec.Selector.MatchLabels)
			equal(t, "how many may be missing", o.reporter.budget.Spec.MaxUnavailable.IntValue(), 1)
		},
	},
	"reporters together": {
		values: `{reporter: {enabled: true, affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}}}`,
		want: func(t *testing.T, o *chartObjects) {
			if apart := o.reporter.set.Spec.Template.Spec.Affinity.PodAntiAffinity; len(apart.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
				t.Errorf("%+v", apart)
			}
		},
	},
	"a whole name": {values: `{fullnameOverride: finder}`, want: func(t *testing.T, o *chartObjects) {
		equal(t, "name", o.daemons.Name, "finder")
	}},
	"a long name": {release: "r" + strings.Repeat("-long", 10), values: `{nameOverride: ` + strings.Repeat("n", 63) + `}`},
	"image": {
		values: `{image: {repository: "registry.example:5000/net/dupip", tag: "1.2", pullPolicy: Always}, imagePullSecrets: [one, {name: two}]}`,
		want: func(t *testing.T, o *chartObjects) {
			equal(t, "image", o.container().Image, "registry.example:5000/net/dupip:1.2")
			equal(t, "policy", o.container().ImagePullPolicy, corev1.PullAlways)
			for _, pod := range []*corev1.PodSpec{o.pod(), &o.drill.Spec.Template.Spec} {
				equal(t, "secrets", pod.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "one"}, {Name: "two"}})
			}
		},
	},
	"image by digest": {
		values: `{image: {repository: registry.example/dupip, digest: "sha256:` + strings.Repeat("0a", 32) + `"}}`,
		want: func(t *testing.T, o *chartObjects) {
			equal(t, "image", o.container().Image, "registry.example/dupip@sha256:"+strings.Repeat("0a", 32))
		},
	},
	"cluster and key": {
		values: `{cluster: "prod: 1", gossip: {existingSecret: dupip-gossip, secretKey: keys.txt}}`,
		want: func(t *testing.T, o *chartObjects) {
			wantSetting(t, o, "--cluster", "prod: 1")
			p, _ := o.setting("--gossip-key-file")
			if _, v, err := o.mount(p); err != nil || v.Secret.SecretName != "dupip-gossip" || v.Secret.Items[0].Key != "keys.txt" {
				t.Errorf("the key is %+v: %v", v, err)
			}
		},
	},
	"other ports": {values: `{gossip: {port: 17951}, metrics: {port: 19951}}`, want: func(t *testing.T, o *chartObjects) {
		wantSetting(t, o, "--gossip-port", "17951")
		wantSetting(t, o, "--metrics-listen", ":19951")
	}},
	"no runtime": {values: `{runtime: {socket: "", cniConfDir: "", engineSocket: ""}}`, want: func(t *testing.T, o *chartObjects) {
		wantSetting(t, o, "--cri-socket", "none")
		wantSetting(t, o, "--cni-conf-dir", "off")
		wantSetting(t, o, "--engine-socket", "none")
	}},
	"a runtime of a distribution": {values: `{runtime: {socket: /var/lib/mine/containerd.sock}}`, want: func(t *testing.T, o *chartObjects) {
		wantSetting(t, o, "--cri-socket", "/var/lib/mine/containerd.sock")
	}},
	"state elsewhere": {values: `{state: {hostPath: /data/dupip}}`, want: func(t *testing.T, o *chartObjects) {
		if _, v, err := o.mount("/var/lib/dupip"); err != nil || v.HostPath.Path != "/data/dupip" {
			t.Errorf("%+v: %v", v, err)
		}
	}},
	"privileged": {values: `{securityContext: {privileged: true}}`, want: func(t *testing.T, o *chartObjects) {
		s := o.container().SecurityContext
		if s.Privileged == nil || !*s.Privileged || s.SeccompProfile != nil || s.AppArmorProfile != nil || s.SELinuxOptions != nil {
			t.Errorf("%+v", s)
		}
	}},
	"somebody's account": {values: `{serviceAccount: {create: false, name: mine}}`, want: func(t *testing.T, o *chartObjects) {
		if o.account != nil || o.pod().ServiceAccountName != "mine" {
			t.Errorf("%+v, the pods' is %s", o.account, o.pod().ServiceAccountName)
		}
	}},
	"by hand": {values: `{updateStrategy: {type: OnDelete}}`},
	"one by one": {values: `{updateStrategy: {rollingUpdate: {maxUnavailable: 1}}}`, want: func(t *testing.T, o *chartObjects) {
		equal(t, "maxUnavailable", o.daemons.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue(), 1)
	}},
	"placed": {
		values: `{tolerations: [], drill: {tolerations: [{key: pool, operator: Exists}]}, nodeSelector: {pool: "1"}, priorityClassName: "", resources: {limits: null}, terminationGracePeriodSeconds: 7,
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: type, operator: NotIn, values: [virtual]}]}]}}}}`,
		want: func(t *testing.T, o *chartObjects) {
			p := o.pod()
			if p.Tolerations != nil || p.PriorityClassName != "" || o.container().Resources.Limits != nil || *p.TerminationGracePeriodSeconds != 7 {
				t.Errorf("%+v", p)
			}
			equal(t, "the drill's tolerations", o.drill.Spec.Template.Spec.Tolerations, []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}})
			equal(t, "nodeSelector", p.NodeSelector, map[string]string{"kubernetes.io/os": "linux", "pool": "1"})
			equal(t, "affinity", p.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Key, "type")
		},
	},
	"more of everything": {
		values: `{podAnnotations: {a: "1"}, podLabels: {team: net}, serviceAccount: {annotations: {b: "2"}},
extraArgs: [--log-format=json], extraEnv: [{name: GOMEMLIMIT, value: 200MiB}], revisionHistoryLimit: 3,
extraVolumes: [{name: ca, secret: {secretName: ca}}], extraVolumeMounts: [{name: ca, mountPath: /etc/ca, readOnly: true}]}`,
		want: func(t *testing.T, o *chartObjects) {
			equal(t, "annotations", o.daemons.Spec.Template.Annotations, map[string]string{"a": "1"})
			equal(t, "label", o.daemons.Spec.Template.Labels["team"], "net")
			equal(t, "history", *o.daemons.Spec.RevisionHistoryLimit, int32(3))
			if m, v, err := o.mount("/etc/ca"); err != nil || !m.ReadOnly || v.Secret.SecretName != "ca" {
				t.Errorf("%+v, %+v: %v", m, v, err)
			}
			equal(t, "account's annotations", o.account.Annotations, map[string]string{"b": "2"})
			equal(t, "arguments", o.container().Args, []string{"agent", "--log-format=json"})
			if !slices.Contains(o.container().Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: "200MiB"}) {
				t.Errorf("%+v", o.container().Env)
			}
		},
	},
	"watched": {
		values: `{podMonitor: {enabled: true, interval: 15s, scrapeTimeout: 9s, labels: {release: prometheus}, relabelings: [{action: replace, targetLabel: rack, replacement: "7"}],
metricRelabelings: [{action: labeldrop, regex: node}]}, runbookURL: "https://wiki.example/dupip", prometheusRule: {enabled: true, labels: {role: alerts}}}`,
		want: func(t *testing.T, o *chartObjects) {
			equal(t, "label", o.monitor.Labels["release"], "prometheus")
			equal(t, "label", o.rule.Labels["role"], "alerts")
			endpoint := o.monitor.Spec.PodMetricsEndpoints[0]
			if relabel := endpoint.RelabelConfigs; len(relabel) != 2 || relabel[0].TargetLabel != "job" || relabel[1].TargetLabel != "rack" {
				t.Errorf("relabelings %+v", relabel)
			}
			if relabel := endpoint.MetricRelabelConfigs; len(relabel) != 1 || relabel[0].Regex != "node" || endpoint.ScrapeTimeout != "9s" {
				t.Errorf("%+v", endpoint)
			}
			equal(t, "interval", o.monitor.Spec.PodMetricsEndpoints[0].Interval, "15s")
			var want *monitoringv1.PrometheusRuleSpec
			if err := strictly([]byte(strings.ReplaceAll(inRelease(readChartFile(t, alertsPath)), strings.TrimSuffix(runbookURL, "#"), "https://wiki.example/dupip")), &want); err != nil {
				t.Fatalf("deploy/alerts.yaml as a PrometheusRule: %v", err)
			}
			if len(want.Groups) == 0 {
				t.Error("deploy/alerts.yaml has no groups")
			}
			equal(t, "rules", o.rule.Spec, *want)
		},
	},
	"watched among clusters": {values: `{cluster: prod, podMonitor: {enabled: true}}`, want: func(t *testing.T, o *chartObjects) {
		labels := make(map[string]string)
		for _, r := range o.monitor.Spec.PodMetricsEndpoints[0].RelabelConfigs {
			labels[r.TargetLabel] = *r.Replacement
		}
		equal(t, "labels of the target", labels, map[string]string{"job": "dupip", "cluster": "prod"})
	}},
	"metrics at the node's address": {values: `{metrics: {address: hostIP}, podMonitor: {enabled: true}}`, want: func(t *testing.T, o *chartObjects) {
		wantSetting(t, o, "--metrics-listen", "[$(DUPIP_ADVERTISE)]:9951")
	}},
	"metrics at loopback": {values: `{metrics: {address: 127.0.0.1}}`, want: func(t *testing.T, o *chartObjects) {
		wantSetting(t, o, "--metrics-listen", "127.0.0.1:9951")
	}},
	"metrics at loopback of IPv6": {values: `{metrics: {address: "::1", port: 80}}`, want: func(t *testing.T, o *chartObjects) {
		wantSetting(t, o, "--metrics-listen", "[::1]:80")
	}},
	"dashboard": {
		values: `{dashboard: {enabled: true, namespace: monitoring, labels: {grafana_dashboard: null, board: ""}, annotations: {grafana_folder: My net}}}`,
		want: func(t *testing.T, o *chartObjects) {
			equal(t, "namespace", o.dashboard.Namespace, "monitoring")
			equal(t, "annotations", o.dashboard.Annotations, map[string]string{"grafana_folder": "My net"})
			if _, given := o.dashboard.Labels["grafana_dashboard"]; given {
				t.Errorf("labels %v", o.dashboard.Labels)
			}
			if value, given := o.dashboard.Labels["board"]; !given || value != "" {
				t.Errorf("labels %v", o.dashboard.Labels)
			}
		},
	},
	"dashboard as it is": {values: `{dashboard: {enabled: true}}`, want: func(t *testing.T, o *chartObjects) {
		equal(t, "namespace", o.dashboard.Namespace, "dupip")
		equal(t, "label", o.dashboard.Labels["grafana_dashboard"], "1")
		equal(t, "data", o.dashboard.Data, map[string]string{"dupip.json": inRelease(readChartFile(t, dashboardPath))})
		// kubectl apply keeps all in an annotation of at most 256 KiB.
		if data, err := json.Marshal(o.dashboard); err != nil || len(data) > 256<<10 {
			t.Errorf("the ConfigMap has %d bytes (%v)", len(data), err)
		}
	}},
	"labels of all": {
		values: `{commonLabels: {team: net, example.com/cost-centre: "7"}, podLabels: {team: agents}, config: {shared: [10.0.0.53]},
podMonitor: {enabled: true, labels: {team: monitoring}}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}`,
		want: func(t *testing.T, o *chartObjects) {
			if n := len(o.all()); n != 8 {
				t.Fatalf("%d objects", n)
			}
			labels := map[string]map[string]string{"the pods": o.daemons.Spec.Template.Labels, "the drill": o.drill.Spec.Template.Labels}
			for _, object := range o.all() {
				labels[fmt.Sprintf("%T %s", object, object.GetName())] = object.GetLabels()
			}
			for of, labels := range labels {
				// More particular labels win.
				team := map[bool]string{true: "net"}[!strings.Contains(of, "pods") && !strings.Contains(of, "PodMonitor")]
				if labels["example.com/cost-centre"] != "7" || team != "" && labels["team"] != team {
					t.Errorf("%s: %v", of, labels)
				}
			}
			equal(t, "team of the pods", labels["the pods"]["team"], "agents")
			equal(t, "team of the PodMonitor", o.monitor.Labels["team"], "monitoring")
			own := map[string]string{"app.kubernetes.io/name": "dupip", "app.kubernetes.io/instance": "dupip"}
			equal(t, "selector of the DaemonSet", o.daemons.Spec.Selector.MatchLabels, own)
			equal(t, "selector of the Service", o.service.Spec.Selector, own)
			equal(t, "selector of the PodMonitor", o.monitor.Spec.Selector.MatchLabels, own)
		},
	},
	"configured": {
		values: "config:\n  shared: [10.0.0.53, 10.96.0.0/12, \"::/0\"]\n  networks: [{name: storage, solicit: off, match: {bridges: [\"*\"]}}]\n  limits: {bindings: 1048576}\n",
		want: func(t *testing.T, o *chartObjects) {
			c, err := config.Parse([]byte(o.config.Data["dupip.yaml"]))
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "networks", c.Networks(), []config.Network{{Name: "storage", Scope: config.Cluster}})
			equal(t, "limit", c.Limits().Bindings, 1<<20)
		},
	},
}

// TestChart renders the chart in many ways and decodes every object strictly.
func TestChart(t *testing.T) {
	for name, r := range renderings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release, namespace := or(r.release, "dupip"), or(r.namespace, "dupip")
			o, err := renderChart(t, release, namespace, r.values)
			if err != nil {
				t.Fatal(err)
			}
			if r.want != nil {
				r.want(t, o)
			}
			checkChart(t, o, release, or(r.inNamespace, namespace))
			checkDrill(t, o, release)
			checkOpenAPI(t, o)
		})
	}
}

// The example of the configuration, which has every key, means the same by way of the chart.
func TestChartTakesWholeConfig(t *testing.T) {
	example := readChartFile(t, "../../agent/config/example.yaml")
	want, err := config.Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	o, err := renderChart(t, "dupip", "dupip", "config:\n  "+strings.ReplaceAll(example, "\n", "\n  "))
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Parse([]byte(o.config.Data["dupip.yaml"]))
	if err != nil {
		t.Fatalf("%v in\n%s", err, o.config.Data["dupip.yaml"])
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("by way of the chart it is another:\n%s", o.config.Data["dupip.yaml"])
	}
}

func TestChartLint(t *testing.T) {
	testneeds.Slow(t)
	seen()
	lint := func(t *testing.T, values string, more ...string) {
		t.Helper()
		if out, err := helm.Run(t.Context(), values, append([]string{"lint", "--strict", chartDir}, more...)...); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	lint(t, "")
	for name, r := range renderings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lint(t, r.values, "--values", "testdata/key.yaml", "--values", "-")
		})
	}
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

func wantSetting(t *testing.T, o *chartObjects, flag, want string) {
	t.Helper()
	if got, given := o.setting(flag); !given || got != want {
		t.Errorf("%s=%s, want %s", flag, got, want)
	}
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
