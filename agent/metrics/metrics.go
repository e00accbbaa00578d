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

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
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

// Sources are where a scrape reads, once a second at most for all clients. Those that are nil have no metrics; Loop must be there.
type Sources struct {
	// Version is the agent's, Node and BootID are the node's name and boot id, Attach is the attach mode.
	Version, Node, BootID, Attach string
	// Holders has the pods of confirmed conflicts exported.
	Holders bool

	// Loop returns the figures of the agent's loop. It is never called while an earlier call still runs, should return when its
	// context ends, after 5 s, and must not change what it returned. If it fails or is late, the scrape lacks these figures, and
	// dupip_scrape_errors_total counts that.
	Loop func(context.Context) (LoopStats, error)

	// These do not wait for the loop, and do not block.
	Cluster interface {
		Status() cluster.Status
		Members() []cluster.Member
	}
	Pods   func() (connected bool, known int)               // whether the container runtime answers; namespaces with a pod's name
	State  func() (written time.Time, bytes int, err error) // as [state.Store.Status]
	Config func() (loadedAt time.Time, err error)           // as [config.Watcher.Status]
	Books  func(open []detector.Conflict) BookStats         // open are those of LoopStats, nil if Loop has failed
	// Notifications are those whom the agent tells of conflicts.
	Notifications func() []document.NotificationStatus

	Log *slog.Logger // for a failure of Loop, at debug level; may be nil
}

// LoopStats are the figures of the agent's loop. The maps of counters have all of their keys from the start.
type LoopStats struct {
	// Counts and Open are the detector's, Open in any order.
	Counts detector.Counts
	Open   []detector.Conflict

	// States counts the pod interfaces by state, as in the status document.
	States map[string]int
	// DADFailed counts addresses of pods whose IPv6 duplicate address detection failed.
	DADFailed int
	// Observed are the interfaces that the program is attached to.
	Observed []InterfaceRefusals
	// Refused is the sum for all interfaces, also for those that are no longer in Observed, since the agent's start.
	Refused Refused

	// Dropped counts records, bindings, probes and requests that the agent dropped, by reason.
	Dropped map[string]uint64
	// LeftOut counts what was left out because of a limit, and was no observation, by reason.
	LeftOut map[string]uint64
	// Solicitations counts probes.
	Solicitations   map[detector.Purpose]uint64
	Pending         int    // records that wait for their interface to be scanned
	HostOmitted     int    // addresses of the node that are not compared, because there are too many
	NetlinkOverruns uint64 // see links.Watcher.Overruns
	// ResyncFound counts what a list of everything found, by kind.
	ResyncFound map[string]uint64
}

// InterfaceRefusals are the refused packets of one interface.
type InterfaceRefusals struct {
	Generation uint32 // identifies the interface in the life of the agent
	Name       string
	Netns      string       // empty if unknown
	Pod        detector.Pod // empty if unknown
	Refused    Refused
}

// Refused counts packets that made no record: data, announcements and answers beyond the limits of their kind, and all kinds
// while the ring was full. The numbers never decrease.
type Refused [len(refusedKinds)]uint64

// BookStats describe what the books of the node say.
type BookStats struct {
	Findings map[string]int // by kind, with all kinds that were looked for
	Left     []RangeLeft
}

// RangeLeft is which part of the range of a network is not reserved.
type RangeLeft struct {
	Book, Network string
	Ratio         float64
}
