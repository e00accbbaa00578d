package metrics

import (
	"context"
	"io"
	"net/http"
	"time"
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
