package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// newDetection makes the histogram of detection times. Its buckets are close together
// around what is aimed at with a minimum overlap of 1 s: 1.5 s on one node, 2.5 s across.
func newDetection() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    DetectionSeconds,
		Help:    "Time from the second holder's first packet until the conflict was confirmed.",
		Buckets: []float64{0.25, 0.5, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 5, 10, 30, 60},
	})
}

// ObserveDetection records how long it took from the second holder's first packet until
// a conflict was confirmed; once for each, not again after a restart.
func (m *Metrics) ObserveDetection(d time.Duration) {
	m.detection.Observe(max(0, d).Seconds())
}
