package metrics

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
)

// checkInterval is how long the result of a check is reused, so that clients cannot keep the agent's
// loop busy.
const checkInterval = 100 * time.Millisecond

const index = `<!doctype html>
<title>dupip</title>
<h1>dupip</h1>
<ul>
<li><a href="/metrics">metrics</a></li>
<li><a href="/healthz">healthz</a>: is the agent alive?</li>
<li><a href="/readyz">readyz</a>: does it observe every pod that it found at its start?</li>
</ul>
`

// Handler serves /metrics, as text or OpenMetrics, and /healthz and /readyz: 200 if healthy and ready
// return nil, else 503 with the error in one line. It calls each at most every 100 ms, never
// while an earlier call still runs, with a timeout of 5 s.
func (m *Metrics) Handler(healthy, ready func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.page())
	mux.Handle("GET /healthz", check(healthy))
	mux.Handle("GET /readyz", check(ready))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, index)
	})
	return mux
}

func check(f func(context.Context) error) http.Handler {
	result := shared(checkInterval, func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(context.Background(), sourceTimeout)
		defer cancel()
		return struct{}{}, f(ctx)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), sourceTimeout)
		defer cancel()
		_, err := result(ctx)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		text := "ok"
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			text = escape(err.Error())
		}
		_, _ = io.WriteString(w, text+"\n") // fails if the client has disconnected
	})
}

const (
	// pageInterval is how long what was gathered is served again, to all clients.
	pageInterval = time.Second
	// pagesPerSecond and pagesBurst limit the CPU time for clients that scrape without a pause. With
	// 128 connections a client waits for 6.4 s, and a page takes 3 ms.
	pagesPerSecond, pagesBurst = 20, 20
)

// page serves /metrics, in the formats of Prometheus.
func (m *Metrics) page() http.Handler {
	gather := shared(pageInterval, m.gather)
	encode := promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return gather(context.Background())
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
		// Gather before encode does, which would go on for a client that disconnects.
		_, _ = gather(r.Context())
		if r.Context().Err() == nil {
			encode.ServeHTTP(w, r)
		}
	})
}

// shared returns get for all clients: it is called at most once in an interval, never while an earlier call still runs, by a
// goroutine of its own. A client whose context ends gets errTimeout.
func shared[T any](interval time.Duration, get func() (T, error)) func(context.Context) (T, error) {
	var flight singleflight.Group
	var at time.Time
	var latest T
	var failed error
	call := func() (any, error) {
		if time.Since(at) >= interval {
			latest, failed = get()
			at = time.Now()
		}
		return latest, failed
	}
	return func(ctx context.Context) (T, error) {
		select {
		case result := <-flight.DoChan("", call):
			return result.Val.(T), result.Err
		case <-ctx.Done():
			return *new(T), errTimeout
		}
	}
}
