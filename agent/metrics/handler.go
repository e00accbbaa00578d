package metrics

import (
	"context"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"
)

// checkTime is how long the answer to a probe is sent before the agent is asked again, so
// that clients cannot keep its loop busy.
const checkTime = 100 * time.Millisecond

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
// Each is called at most every 100 ms, never while an earlier call still runs, and given
// 5 s; one that is nil always agrees.
func (m *Metrics) Handler(healthy, ready func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.pages)
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
	var flight singleflight.Group
	var asked time.Time
	var latest error
	ask := func() (any, error) {
		if time.Since(asked) >= checkTime {
			ctx, cancel := context.WithTimeout(context.Background(), answerTime)
			defer cancel()
			latest, asked = f(ctx), time.Now()
		}
		return nil, latest
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTime)
		defer cancel()
		err := errNoAnswer
		select {
		case result := <-flight.DoChan("", ask):
			err = result.Err
		case <-ctx.Done():
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		text := "ok"
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			text = clean(err.Error())
		}
		// The client may be gone; there is nobody left to tell.
		_, _ = io.WriteString(w, text+"\n")
	})
}
