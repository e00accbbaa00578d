package main

import (
	"io"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dupip/dupip/cmd/reporter/books"
	"github.com/dupip/dupip/cmd/reporter/events"
	"github.com/dupip/dupip/document"
)

// metrics are those of /metrics.
type metrics struct {
	registry              *prometheus.Registry
	leader, open, members prometheus.Gauge
	pending               prometheus.Gauge
	written               *prometheus.CounterVec
	failed, unread        prometheus.Counter
	refused               prometheus.Counter
	skipped               prometheus.Counter
	skippedBefore         uint64
	judgements            atomic.Pointer[[]events.Judgement] // the last ones
}

func newMetrics() *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		leader:   gauge("dupip_reporter_leader", "1 if this replica holds the Lease and writes Events."),
		open:     gauge("dupip_reporter_conflicts", "Addresses in confirmed conflict, as agents report them, without drills."),
		members:  gauge("dupip_reporter_members", "Agents that are alive, as this replica sees them."),
		pending:  gauge("dupip_reporter_events_pending", "Events that wait to be written; 0 if another replica writes."),
		written:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dupip_reporter_events_written_total", Help: "Events that were made, found there or renewed, by reason."}, []string{"reason"}),
		failed:   counter("dupip_reporter_requests_failed_total", "Requests for Events that the API server refused or did not answer."),
		unread:   counter("dupip_reporter_lists_failed_total", "Times that a replica began to write without all of its Events."),
		refused:  counter("dupip_reporter_reports_refused_total", "Reports of agents that are not valid: of another version, or forged."),
		skipped:  counter("dupip_reporter_events_skipped_total", "Pods without an Event: the conflict ended before their turn, or there were too many."),
	}
	judgement := prometheus.NewDesc("dupip_conflict_judgement_info",
		"What is decided about a confirmed conflict by the facts of all nodes, always 1. At most 100, and 10 of one network: the oldest.",
		[]string{"network", "ip", "cause", "confidence", "judgement"}, nil)
	m.judgements.Store(new([]events.Judgement))
	m.registry.MustRegister(m.leader, m.open, m.members, m.pending, m.written, m.failed, m.unread, m.refused, m.skipped,
		prometheus.CollectorFunc(func(to chan<- prometheus.Metric) {
			for _, j := range *m.judgements.Load() {
				to <- prometheus.MustNewConstMetric(judgement, prometheus.GaugeValue, 1, j.Network, j.IP, j.Cause, j.Confidence, j.Text)
			}
		}),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// addBooks adds what the books of the API server say. The names of findings and ranges are those of the agents: an alert is about both.
func (m *metrics) addBooks(stats func() books.Stats) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	findings := desc("dupip_audit_findings", "Addresses of which a book of the API server and the wire say different things, and nodes, by kind; in_conflict are those that have collided. Absent if it is not known, or another replica reads the books.", "kind")
	left := desc("dupip_ipam_range_left_ratio", "Part of a pool that is not reserved, from 0 to 1. At most 64 pools.", "book", "cni_network")
	read := desc("dupip_reporter_book_read", "1 if the book of the API server is read, 0 if that fails. Absent if there is none, or another replica reads it.", "book")
	m.registry.MustRegister(prometheus.CollectorFunc(func(to chan<- prometheus.Metric) {
		s := stats()
		gauge := func(d *prometheus.Desc, value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
		}
		for kind, n := range s.Findings {
			gauge(findings, float64(n), kind)
		}
		for name, is := range s.Read {
			gauge(read, map[bool]float64{true: 1}[is], name)
		}
		for _, l := range s.Left {
			gauge(left, l.Ratio, l.Book, document.Text(l.Pool, document.MaxName))
		}
	}))
}

// set is for the loop.
func (m *metrics) set(s events.Stats, leading bool, members int) {
	m.leader.Set(0)
	m.pending.Set(0)
	if leading {
		m.leader.Set(1)
		m.pending.Set(float64(s.Pending))
	}
	m.open.Set(float64(s.Open))
	m.members.Set(float64(members))
	m.skipped.Add(float64(s.Skipped - m.skippedBefore))
	m.skippedBefore = s.Skipped
}

// pages are /metrics, /healthz and /readyz.
func (r *reporter) pages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	for path, check := range map[string]func() error{"GET /healthz": r.healthy, "GET /readyz": r.ready} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			text := "ok"
			if err := check(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				text = err.Error()
			}
			_, _ = io.WriteString(w, text+"\n") // fails if the client has disconnected
		})
	}
	return mux
}
