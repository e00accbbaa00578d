// Package metrics owns the agent's Prometheus metrics and its HTTP port: /metrics,
// /healthz and /readyz.
//
// It reads from the agent's parts by the functions in [Sources] and knows none of them. It does not
// trust the clients of the port, or names of pods and devices: series, labels, connections and the work
// for clients are limited.
package metrics

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// sourceTimeout limits each call of a source, and of a health or readiness check.
const sourceTimeout = 5 * time.Second

var errTimeout = errors.New("no answer within " + sourceTimeout.String())

// Metrics is everything the agent exports. Its methods are safe for concurrent use.
type Metrics struct {
	log       *slog.Logger
	registry  *prometheus.Registry
	detection prometheus.Histogram

	// The rest belongs to gather.
	sources  []*source
	info     series // constant
	gathered series
}

// New returns the metrics of an agent.
func New(sources Sources) *Metrics {
	m := &Metrics{
		log:       cmp.Or(sources.Log, slog.New(slog.DiscardHandler)),
		registry:  prometheus.NewRegistry(),
		detection: prometheus.NewHistogram(detectionSeconds),
	}
	addSource(m, "detector", sources.Detector, exportDetector)
	addSource(m, "interfaces", sources.Interfaces, new(refusedCounters).export)
	addSource(m, "agent", sources.Agent, exportAgent)
	addSource(m, "cluster", sources.Cluster, exportCluster)
	addSource(m, "pods", sources.Pods, exportRuntime)
	addSource(m, "state", sources.State, exportStateFile)
	addSource(m, "config", sources.Config, exportConfig)
	addSource(m, "books", sources.Books, exportBooks)
	m.info.add(buildInfo, 1, sources.Version, runtime.Version(), runtime.GOARCH)
	m.info.add(nodeInfo, 1, sources.Node, sources.BootID, sources.Attach)
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

// gather returns all metrics, without those of sources that fail. It is not safe for concurrent use.
func (m *Metrics) gather() ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sourceTimeout)
	defer cancel()
	results := make([]series, len(m.sources))
	var group sync.WaitGroup
	for i, s := range m.sources {
		group.Go(func() {
			var err error
			if results[i], err = s.read(ctx); err != nil {
				s.failures++
				m.log.Debug("reading metrics failed", "source", s.name, "error", err)
			}
		})
	}
	group.Wait()
	m.gathered = slices.Concat(append(results, m.info)...)
	for _, s := range m.sources {
		m.gathered.add(scrapeErrors, float64(s.failures), s.name)
	}
	return m.registry.Gather()
}

// source is a part of the agent.
type source struct {
	name     string
	collect  func(context.Context) (series, error)
	busy     sync.Mutex // held while read runs, however long that takes
	failures uint64
}

// addSource adds a source that exports the result of get, nothing without get.
func addSource[T any](m *Metrics, name string, get func(context.Context) (T, error), export func(T, *series)) {
	if get == nil {
		return
	}
	m.sources = append(m.sources, &source{name: name, collect: func(ctx context.Context) (out series, err error) {
		stats, err := get(ctx)
		if err == nil {
			export(stats, &out)
		}
		return out, err
	}})
}

// read reads the source until ctx ends. It fails at once while an earlier call has not returned, so that
// a source that hangs delays one scrape only.
func (s *source) read(ctx context.Context) (series, error) {
	if !s.busy.TryLock() {
		return nil, errTimeout
	}
	var out series
	var err error
	done := make(chan struct{})
	go func() {
		out, err = s.collect(ctx)
		s.busy.Unlock()
		close(done)
	}()
	select {
	case <-done:
		return out, err
	case <-ctx.Done():
		return nil, errTimeout
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
