// Package metrics owns the agent's Prometheus metrics and its HTTP port: /metrics,
// /healthz and /readyz.
//
// It asks the agent's parts by the functions in [Sources] and knows none of them: no
// loop, no observer, no runtime, no files. It trusts neither the clients of the port nor
// the names of pods and devices: series, labels, connections and the work for clients
// are bounded.
package metrics

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// answerTime is how long a source may take.
const answerTime = 5 * time.Second

var errNoAnswer = errors.New("no answer within " + answerTime.String())

// Metrics is everything the agent exports. Its methods may be called from several
// goroutines at once.
type Metrics struct {
	log       *slog.Logger
	registry  *prometheus.Registry
	detection prometheus.Histogram
	pages     *pages

	// The rest belongs to gather.
	sources  []*source
	info     series // what never changes
	gathered series
}

// New makes the metrics of an agent.
func New(sources Sources) *Metrics {
	m := &Metrics{
		log:       sources.Log,
		registry:  prometheus.NewRegistry(),
		detection: prometheus.NewHistogram(detectionSeconds),
		sources: slices.DeleteFunc([]*source{
			newSource("detector", sources.Detector, exportDetector),
			newSource("interfaces", sources.Interfaces, new(refusedAccount).export),
			newSource("agent", sources.Agent, exportAgent),
			newSource("cluster", sources.Cluster, exportCluster),
			newSource("pods", sources.Pods, exportPods),
			newSource("state", sources.State, exportState),
			newSource("config", sources.Config, exportConfig),
		}, func(s *source) bool { return s == nil }),
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
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
	m.pages = newPages(m.gather, promhttp.HandlerOpts{
		// What is left is worth more than an error.
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(m.log.Handler(), slog.LevelDebug),
		Registry:      m.registry,
	})
	return m
}

// ObserveDetection records how long it took from the second holder's first packet until
// a conflict was confirmed; once for each, not again after a restart.
func (m *Metrics) ObserveDetection(d time.Duration) {
	m.detection.Observe(max(0, d).Seconds())
}

// gather returns all metrics, with those of the sources that answer in time. It must not
// be called again before it has returned.
func (m *Metrics) gather() ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	answers := make([]series, len(m.sources))
	var group sync.WaitGroup
	for i, s := range m.sources {
		group.Go(func() {
			var err error
			if answers[i], err = s.ask(ctx); err != nil {
				s.failures++
				m.log.Debug("metrics left out", "source", s.name, "error", err)
			}
		})
	}
	group.Wait()
	m.gathered = slices.Concat(append(answers, m.info)...)
	for _, s := range m.sources {
		m.gathered.add(scrapeErrors, float64(s.failures), s.name)
	}
	return m.registry.Gather()
}

// source is a part of the agent.
type source struct {
	name     string
	read     func(context.Context) (series, error)
	reading  sync.Mutex // held while read runs, however long that takes
	failures uint64
}

// newSource returns a source that exports what it is answered, nil for nobody to ask.
func newSource[T any](name string, ask func(context.Context) (T, error), export func(T, *series)) *source {
	if ask == nil {
		return nil
	}
	return &source{name: name, read: func(ctx context.Context) (out series, err error) {
		answer, err := ask(ctx)
		if err == nil {
			export(answer, &out)
		}
		return out, err
	}}
}

// ask reads the source until ctx ends. It fails at once while an earlier call has not
// returned: a part that hangs is neither waited for again nor asked twice.
func (s *source) ask(ctx context.Context) (series, error) {
	if !s.reading.TryLock() {
		return nil, errNoAnswer
	}
	var out series
	var err error
	done := make(chan struct{})
	go func() {
		out, err = s.read(ctx)
		s.reading.Unlock()
		close(done)
	}()
	select {
	case <-done:
		return out, err
	case <-ctx.Done():
		return nil, errNoAnswer
	}
}

// series are metrics with their values.
type series []prometheus.Metric

// add adds one value. Every label goes through [clean].
func (s *series) add(m metric, value float64, labels ...string) {
	for i, label := range labels {
		labels[i] = clean(label)
	}
	// It panics for labels that do not fit the description only.
	*s = append(*s, prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...))
}
