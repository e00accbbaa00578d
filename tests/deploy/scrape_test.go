package deploy_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"go.yaml.in/yaml/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scrapeConfig is the part of a Prometheus' configuration that says which pods it scrapes.
type scrapeConfig struct {
	Job       string `yaml:"job_name"`
	Relabeled []struct {
		Sources []string `yaml:"source_labels"`
		Regex   string
		Action  string
		Target  string `yaml:"target_label"`
	} `yaml:"relabel_configs"`
}

// labels are those of the target that a port of a pod becomes, nil if it is none (Prometheus, model/relabel).
func (s scrapeConfig) labels(pod metav1.ObjectMeta, port string) map[string]string {
	labels := map[string]string{"job": s.Job, "__meta_kubernetes_pod_container_port_name": port, "__meta_kubernetes_pod_node_name": "node1"}
	for name, value := range pod.Labels {
		labels["__meta_kubernetes_pod_label_"+regexp.MustCompile(`\W`).ReplaceAllString(name, "_")] = value
	}
	for _, r := range s.Relabeled {
		var values []string
		for _, source := range r.Sources {
			values = append(values, labels[source])
		}
		switch value := strings.Join(values, ";"); {
		case r.Action != "keep":
			labels[r.Target] = value
		case !regexp.MustCompile("^(?:" + r.Regex + ")$").MatchString(value):
			return nil
		}
	}
	maps.DeleteFunc(labels, func(name, _ string) bool { return strings.HasPrefix(name, "__") })
	return labels
}

// Without the Prometheus operator, the runbook's configuration finds what the chart's PodMonitors find, in the same jobs.
func TestRunbookScrapes(t *testing.T) {
	o, err := renderChart(t, "dupip", "dupip", `{reporter: {enabled: true}, podMonitor: {enabled: true}}`)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```yaml\n(rule_files:.*?)```").FindStringSubmatch(readChartFile(t, runbookPath))
	if m == nil {
		t.Fatal("the runbook has no configuration of Prometheus")
	}
	var config struct {
		Scraped []scrapeConfig `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(m[1]), &config); err != nil || len(config.Scraped) != 1 {
		t.Fatalf("%+v: %v", config, err)
	}
	path := filepath.Join(t.TempDir(), "prometheus.yml")
	known := strings.Replace(m[1], "kubernetes_sd_configs: [{role: pod}]", "static_configs: []", 1) // Debian's Prometheus is built without
	if err := errors.Join(os.WriteFile(path, []byte(known), 0o644), os.WriteFile(filepath.Join(filepath.Dir(path), "alerts.yaml"), []byte(readChartFile(t, alertsPath)), 0o644)); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "config", path)
	jobs := make(map[string]string) // by the name of an app
	for _, monitor := range []*monitoringv1.PodMonitor{o.monitor, o.reporter.monitor} {
		jobs[monitor.Spec.Selector.MatchLabels["app.kubernetes.io/name"]] = *monitor.Spec.PodMetricsEndpoints[0].RelabelConfigs[0].Replacement
	}
	for _, pod := range []corev1.PodTemplateSpec{o.daemons.Spec.Template, o.reporter.set.Spec.Template, o.drill.Spec.Template} {
		app := pod.Labels["app.kubernetes.io/name"]
		for _, port := range append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{}) {
			var want map[string]string
			if port.Name == "metrics" {
				want = map[string]string{"job": jobs[app], "node": "node1"}
			}
			equal(t, "labels of "+app+" "+port.Name, config.Scraped[0].labels(pod.ObjectMeta, port.Name), want)
		}
	}
}
