package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

func newBuildInfo(version string) prometheus.Collector {
	return constant(BuildInfo, "The build of this agent, always 1.", prometheus.Labels{
		"version": version, "go_version": runtime.Version(), "arch": runtime.GOARCH,
	})
}

func newNodeInfo(node, bootID, attach string) prometheus.Collector {
	return constant(NodeInfo, "The node this agent runs on and how it observes, always 1.", prometheus.Labels{
		"node": node, "boot_id": bootID, "attach": attach,
	})
}

func constant(name, help string, labels prometheus.Labels) prometheus.Collector {
	for label, value := range labels {
		labels[label] = clean(value)
	}
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
	gauge.Set(1)
	return gauge
}
