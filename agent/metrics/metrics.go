// Package metrics owns the agent's Prometheus metrics and its HTTP port: /metrics,
// /healthz and /readyz.
//
// It asks the agent's parts by the functions in [Sources] and knows none of them: no
// loop, no observer, no runtime, no files. Whoever can reach the port is a stranger, and
// so is whoever chose the name of a pod or a device: series, labels, connections and
// questions are bounded.
package metrics

import (
	"context"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics is a registry of its own with everything the agent exports. Its methods may
// be called from several goroutines at once.
type Metrics struct {
	registry  *prometheus.Registry
	log       *slog.Logger
	sources   []asked
	errors    *prometheus.CounterVec
	detection prometheus.Histogram
	// slot is held while the registry is gathered: the sources hold one scrape's answers.
	slot chan struct{}
}

// New makes the metrics of an agent.
func New(sources Sources) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		log:      sources.Log,
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: ScrapeErrorsTotal,
			Help: "Scrapes that had to do without the metrics of this source, because it failed or took too long.",
		}, []string{"source"}),
		detection: newDetection(),
		slot:      make(chan struct{}, 1),
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.registry.MustRegister(
		m.errors,
		m.detection,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newBuildInfo(sources.Version),
		newNodeInfo(sources.Node, sources.BootID, sources.Attach),
	)
	m.add(detectorSource(sources.Detector))
	m.add(interfacesSource(sources.Interfaces))
	m.add(agentSource(sources.Agent))
	m.add(clusterSource(sources.Cluster))
	m.add(podsSource(sources.Pods))
	m.add(stateSource(sources.State))
	m.add(configSource(sources.Config))
	return m
}

func (m *Metrics) add(s asked) {
	if s.absent() {
		return
	}
	m.sources = append(m.sources, s)
	m.registry.MustRegister(s)
	m.errors.WithLabelValues(s.title())
}

// scrape asks every source, then calls f, which gathers the registry with what they
// answered. The error is that of ctx; f has not been called then.
func (m *Metrics) scrape(ctx context.Context, f func()) error {
	answers := make([]func(), len(m.sources))
	var group sync.WaitGroup
	for i, s := range m.sources {
		group.Go(func() {
			answer, err := s.ask(ctx)
			if err != nil && ctx.Err() == nil {
				m.errors.WithLabelValues(s.title()).Inc()
				m.log.Debug("metrics left out", "source", s.title(), "error", err)
			}
			answers[i] = answer
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case m.slot <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.slot }()
	for _, answer := range answers {
		answer()
	}
	f()
	return nil
}

// asked is a source of any type.
type asked interface {
	prometheus.Collector
	title() string
	absent() bool
	// ask puts the question. The function it returns makes the answer, or that there is
	// none, what Collect exports; it is never nil, and for the holder of the slot to call.
	ask(context.Context) (func(), error)
}

// source exports the answer to one question.
type source[T any] struct {
	question[T]
	name   string
	descs  []*prometheus.Desc
	export func(T, sink)
	answer *T // of the present scrape, nil without one
}

func (s *source[T]) title() string { return s.name }

func (s *source[T]) absent() bool { return s.question.ask == nil }

func (s *source[T]) ask(ctx context.Context) (func(), error) {
	value, err := s.put(ctx)
	if err != nil {
		return func() { s.answer = nil }, err
	}
	return func() { s.answer = &value }, nil
}

// Describe implements [prometheus.Collector].
func (s *source[T]) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range s.descs {
		out <- desc
	}
}

// Collect implements [prometheus.Collector].
func (s *source[T]) Collect(out chan<- prometheus.Metric) {
	if s.answer != nil {
		s.export(*s.answer, out)
	}
}
