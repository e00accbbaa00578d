package metrics

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
)

const (
	// pageInterval is how long what was gathered is served again, to all clients.
	pageInterval = time.Second
	// pagesPerSecond and pagesBurst limit the CPU time for clients that scrape without a pause. With
	// 128 connections a client waits for 6.4 s, and a page takes 3 ms.
	pagesPerSecond, pagesBurst = 20, 20
)

// page serves /metrics, as text or OpenMetrics.
func (m *Metrics) page() http.Handler {
	type gathered struct {
		at       time.Time
		families []*dto.MetricFamily
		err      error
	}
	var latest atomic.Pointer[gathered]
	var flight singleflight.Group
	gather := func() (any, error) {
		if g := latest.Load(); g == nil || time.Since(g.at) >= pageInterval {
			families, err := m.gather()
			latest.Store(&gathered{time.Now(), families, err})
		}
		return nil, nil
	}
	encode := promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		g := latest.Load()
		return g.families, g.err
	}), promhttp.HandlerOpts{
		ErrorHandling:     promhttp.ContinueOnError, // serve the other metrics
		ErrorLog:          slog.NewLogLogger(m.log.Handler(), slog.LevelDebug),
		Registry:          m.registry,
		EnableOpenMetrics: true,
	})
	pace := rate.NewLimiter(pagesPerSecond, pagesBurst)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pace.Wait(r.Context()) != nil {
			return // the client has disconnected
		}
		// Another goroutine gathers: other clients may wait for it when this one has disconnected.
		select {
		case <-flight.DoChan("", gather):
			encode.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}
