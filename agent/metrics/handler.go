package metrics

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const index = `<!doctype html>
<title>dupip</title>
<h1>dupip</h1>
<ul>
<li><a href="/metrics">metrics</a></li>
<li><a href="/healthz">healthz</a>: is the agent alive?</li>
<li><a href="/readyz">readyz</a>: has it looked at every pod that was there?</li>
</ul>
`

// Handler serves /metrics, also as OpenMetrics where the client asks for it, /healthz and
// /readyz: 200 where healthy and ready return nil, else 503 with the error in one line.
// They are asked as [Sources] are; one that is nil always agrees.
func (m *Metrics) Handler(healthy, ready func(context.Context) error) http.Handler {
	page := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		// What is left is worth more than an error.
		ErrorHandling:     promhttp.ContinueOnError,
		ErrorLog:          slog.NewLogLogger(m.log.Handler(), slog.LevelDebug),
		Registry:          m.registry,
		EnableOpenMetrics: true,
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		// Nobody else can be served while the page is made: a client that reads slowly
		// must not be waited for.
		var b buffer
		if err := m.scrape(r.Context(), func() { page.ServeHTTP(&b, r) }); err != nil {
			return // the client is gone
		}
		b.copyTo(w)
	})
	mux.Handle("GET /healthz", check(healthy))
	mux.Handle("GET /readyz", check(ready))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, index)
	})
	return mux
}

func check(f func(context.Context) error) http.Handler {
	if f == nil {
		f = func(context.Context) error { return nil }
	}
	q := &question[struct{}]{ask: func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		text := "ok"
		if _, err := q.put(r.Context()); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			text = clean(err.Error())
		}
		// The client may be gone; there is nobody left to tell.
		_, _ = io.WriteString(w, text+"\n")
	})
}

// buffer is a response that waits to be sent.
type buffer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (b *buffer) Header() http.Header {
	if b.header == nil {
		b.header = make(http.Header)
	}
	return b.header
}

func (b *buffer) WriteHeader(code int) {
	if b.code == 0 {
		b.code = code
	}
}

func (b *buffer) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	return b.body.Write(p)
}

func (b *buffer) copyTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), b.header)
	w.Header().Set("Content-Length", strconv.Itoa(b.body.Len()))
	w.WriteHeader(max(b.code, http.StatusOK))
	// The client may be gone; there is nobody left to tell.
	_, _ = w.Write(b.body.Bytes())
}
