// Package metrics owns the agent's Prometheus metrics and its HTTP port: /metrics,
// /healthz and /readyz.
//
// It reads from the agent's parts by the functions in [Sources] and knows none of them. It does not trust
// the clients of the port, or names of pods and devices: series, labels, connections and the work for
// clients are limited.
package metrics

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/dupip/dupip/document"
)

// sourceTimeout limits each call of Loop, and of a health or readiness check.
const sourceTimeout = 5 * time.Second

var errTimeout = errors.New("no answer within " + sourceTimeout.String())

// Metrics is everything the agent exports. Its methods are safe for concurrent use.
type Metrics struct {
	log       *slog.Logger
	sources   Sources
	registry  *prometheus.Registry
	detection prometheus.Histogram
	reading   sync.Mutex // held while Loop runs, however long that takes

	// The rest belongs to gather.
	failures uint64
	gathered series
	listed   listings
}

// New returns the metrics of an agent.
func New(sources Sources) *Metrics {
	m := &Metrics{
		log:       cmp.Or(sources.Log, slog.New(slog.DiscardHandler)),
		sources:   sources,
		registry:  prometheus.NewRegistry(),
		detection: prometheus.NewHistogram(detectionSeconds),
		listed:    make(listings),
	}
	m.registry.MustRegister(
		m.detection,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.CollectorFunc(func(out chan<- prometheus.Metric) {
			for _, metric := range m.gathered {
				out <- metric
			}
		}),
	)
	return m
}

// ObserveDetection records the time from the second holder's first packet until a conflict was
// confirmed. Call it once for each conflict, and not again after a restart.
func (m *Metrics) ObserveDetection(d time.Duration) {
	m.detection.Observe(max(0, d).Seconds())
}

// gather returns all metrics, without those of the loop if it fails. It is not safe for concurrent use.
func (m *Metrics) gather() ([]*dto.MetricFamily, error) {
	m.gathered = nil
	stats, err := m.readLoop()
	if err == nil {
		exportLoop(stats, &m.gathered)
		exportConflicts(stats.Open, m.sources.Holders, m.listed, &m.gathered)
	} else {
		m.failures++
		m.log.Debug("reading metrics of the loop failed", "error", err)
	}
	m.exportParts(stats.Open, &m.gathered)
	m.gathered.add(buildInfo, 1, m.sources.Version, runtime.Version(), runtime.GOARCH)
	m.gathered.add(nodeInfo, 1, m.sources.Node, m.sources.BootID, m.sources.Attach)
	m.gathered.add(scrapeErrors, float64(m.failures), "loop")
	return m.registry.Gather()
}

// readLoop reads the figures of the loop. It fails at once while an earlier call has not returned, so that a loop that hangs
// delays one scrape only.
func (m *Metrics) readLoop() (LoopStats, error) {
	if !m.reading.TryLock() {
		return LoopStats{}, errTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), sourceTimeout)
	defer cancel()
	var stats LoopStats
	var err error
	done := make(chan struct{})
	go func() {
		stats, err = m.sources.Loop(ctx)
		m.reading.Unlock()
		close(done)
	}()
	select {
	case <-done:
		return stats, err
	case <-ctx.Done():
		return LoopStats{}, errTimeout
	}
}

// series are metrics with their values.
type series []prometheus.Metric

// add adds one value and escapes the labels.
func (s *series) add(m metric, value float64, labels ...string) {
	for i, label := range labels {
		labels[i] = escape(label)
	}
	*s = append(*s, prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...))
}

const (
	maxLabel  = 128 // bytes of a value
	maxLabels = 64  // values of a label that comes from a map
)

// escape makes a label value of a name from a pod, a runtime or a device.
func escape(s string) string { return document.Text(s, maxLabel) }

// reasonLabel makes a label value of a reason or state in the documents: "evicted: table full" becomes
// "evicted_table_full".
func reasonLabel(s string) string {
	between := func(r rune) bool {
		return r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}
	return escape(strings.ToLower(strings.Join(strings.FieldsFunc(s, between), "_")))
}

// byLabel sums figures by [reasonLabel]. Those beyond maxLabels are "other".
func byLabel[N int | uint64](figures map[string]N) map[string]N {
	sums := make(map[string]N, len(figures))
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		w := reasonLabel(name)
		if _, known := sums[w]; !known && len(sums) >= maxLabels-1 {
			w = "other"
		}
		sums[w] += figures[name]
	}
	return sums
}
