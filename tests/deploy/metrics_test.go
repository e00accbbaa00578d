package deploy_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// expositionPath is a page of the agent's metrics with series of each of them. The tests of
// agent/metrics compare it with what a registry exports.
const expositionPath = "../../agent/metrics/testdata/exposition.txt"

func readExposition(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(expositionPath)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// metricNames are the names of the agent's own metrics.
func metricNames(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\w+) `).FindAllStringSubmatch(readExposition(t), -1) {
		names = append(names, m[1])
	}
	if len(names) < 25 {
		t.Fatalf("%s has %d metrics", expositionPath, len(names))
	}
	return names
}

// metricLabels are the labels of a metric with values that each may have.
type metricLabels map[string][]string

func (l metricLabels) has(label string) bool {
	// Prometheus adds those of the target.
	return l[label] != nil || l != nil && slices.Contains([]string{"cluster", "job", "instance"}, label)
}

// mayBe returns whether a label may have a value, as far as that is known.
func (l metricLabels) mayBe(label, value string) bool {
	// There are more reasons than that page has. A $ begins a variable of Grafana.
	return l[label] == nil || label == "reason" || value == "" || strings.Contains(value, "$") || slices.Contains(l[label], value)
}

// exportedMetrics are the metrics that Prometheus has of an agent, those of the process and of
// Go too, under the names that queries use.
func exportedMetrics(t *testing.T) map[string]metricLabels {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]metricLabels{"up": {}}
	for _, f := range families {
		all[f.GetName()] = metricLabels{}
	}
	label := regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
	for _, m := range regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? \S+$`).FindAllStringSubmatch(readExposition(t), -1) {
		if all[m[1]] == nil {
			all[m[1]] = metricLabels{}
		}
		for _, pair := range label.FindAllStringSubmatch(m[2], -1) {
			all[m[1]][pair[1]] = append(all[m[1]][pair[1]], pair[2])
		}
	}
	return all
}
