package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// sink takes what a source exports. Every label value goes through [clean].
type sink chan<- prometheus.Metric

func (out sink) gauge(desc *prometheus.Desc, value float64, labels ...string) {
	out.send(desc, prometheus.GaugeValue, value, labels)
}

func (out sink) counter(desc *prometheus.Desc, value uint64, labels ...string) {
	out.send(desc, prometheus.CounterValue, float64(value), labels)
}

func (out sink) send(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels []string) {
	for i, label := range labels {
		labels[i] = clean(label)
	}
	// It panics for labels that do not fit the description only.
	out <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
}

// truth is 1 for true.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds is a time as Prometheus has it, seconds since 1970.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
