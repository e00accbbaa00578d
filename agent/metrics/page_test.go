package metrics

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// hung is a loop that ignores its context until it is released.
type hung struct {
	calls   atomic.Int32
	release chan struct{}
}

func newHung() *hung { return &hung{release: make(chan struct{})} }

func (h *hung) loop(context.Context) (LoopStats, error) {
	h.calls.Add(1)
	<-h.release
	return LoopStats{Pending: 7}, nil
}

// request calls a handler without a network.
func request(ctx context.Context, handler http.Handler, path string, accept ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	for i, name := range []string{"Accept", "Accept-Encoding"}[:len(accept)] {
		request.Header.Set(name, accept[i])
	}
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, request)
	return response
}

func TestALoopThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHung()
		sources := rich()
		sources.Loop = h.loop
		m := New(sources)
		handler := m.Handler(fine, fine)

		start := time.Now()
		page := request(t.Context(), handler, "/metrics")
		if took := time.Since(start); took != sourceTimeout {
			t.Errorf("the scrape took %s, want %s", took, sourceTimeout)
		}
		if page.Code != http.StatusOK || strings.Contains(page.Body.String(), recordsPending.name) {
			t.Errorf("%d; metrics of the loop that hangs are exported: %t", page.Code, strings.Contains(page.Body.String(), recordsPending.name))
		}
		// Later ones neither wait nor call the loop.
		start = time.Now()
		var got map[string]map[string]float64
		for range 20 {
			got = families(t, m)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("20 more scrapes took %s, want 0s", took)
		}
		if len(got[recordsPending.name]) != 0 || len(got[conflicts.name]) != 0 {
			t.Error("metrics of the loop that hangs are exported")
		}
		if got[gossipMembers.name]["alive"] != 4 || got[stateSize.name][""] != 4096 {
			t.Error("metrics of the other sources are missing")
		}
		if n := h.calls.Load(); n != 1 {
			t.Errorf("the loop is called %d times while the first call runs, want once", n)
		}
		if n := got[scrapeErrors.name]["loop"]; n != 21 {
			t.Errorf("%v errors, want 21", n)
		}

		close(h.release)
		synctest.Wait()
		if got := families(t, m); got[recordsPending.name][""] != 7 {
			t.Error("the metrics of the loop are still missing after it answered")
		}
	})
}

// The metrics of a loop that fails are omitted, not those of the last scrape.
func TestALoopThatFails(t *testing.T) {
	var err error
	m := New(Sources{Loop: func(context.Context) (LoopStats, error) { return LoopStats{Pending: 1}, err }})
	for _, want := range []error{nil, errors.New("the agent is stopping"), nil} {
		err = want
		got := families(t, m)
		if there := len(got[recordsPending.name]) == 1; there != (want == nil) {
			t.Errorf("with error %v: metrics exported: %t", want, there)
		}
	}
	if n := families(t, m)[scrapeErrors.name]["loop"]; n != 1 {
		t.Errorf("%v errors, want 1", n)
	}
}

func TestTheLoopIsReadWithADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Sources{Loop: func(ctx context.Context) (LoopStats, error) {
			deadline, ok := ctx.Deadline()
			if !ok || time.Until(deadline) != sourceTimeout {
				t.Errorf("deadline %s, %t", time.Until(deadline), ok)
			}
			<-ctx.Done()
			return LoopStats{}, ctx.Err()
		}})
		if n := families(t, m)[scrapeErrors.name]["loop"]; n != 1 {
			t.Errorf("%v errors, want 1", n)
		}
	})
}

// The metrics are gathered once a second for all clients and formats.
func TestGatheredOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		handler := New(Sources{Loop: func(context.Context) (LoopStats, error) {
			time.Sleep(10 * time.Millisecond)
			return LoopStats{Pending: int(calls.Add(1))}, nil
		}}).Handler(fine, fine)
		scrape := func(want string, accept ...string) {
			t.Helper()
			if page := request(t.Context(), handler, "/metrics", accept...); !strings.Contains(page.Body.String(), "dupip_records_pending "+want) {
				t.Errorf("%d, want answer %s:\n%s", page.Code, want, page.Body)
			}
		}
		var group sync.WaitGroup
		for range pagesBurst - 3 {
			group.Go(func() { scrape("1") })
		}
		group.Wait()
		time.Sleep(pageInterval - time.Nanosecond)
		scrape("1")
		scrape("1", "application/openmetrics-text; version=1.0.0")
		request(t.Context(), handler, "/metrics", "*/*", "gzip")
		if n := calls.Load(); n != 1 {
			t.Errorf("the loop is called %d times within a second, want once", n)
		}
		time.Sleep(time.Nanosecond)
		scrape("2", "application/openmetrics-text; version=1.0.0")
		scrape("2")
		if n := calls.Load(); n != 2 {
			t.Errorf("the loop is called %d times within two seconds, want twice", n)
		}
	})
}

// The server delays clients that scrape without a pause. Each gets a page.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := New(rich()).Handler(fine, fine)
		start := time.Now()
		var group sync.WaitGroup
		for range maxConnections {
			group.Go(func() {
				for range 10 {
					if page := request(t.Context(), handler, "/metrics"); page.Code != http.StatusOK {
						t.Errorf("code %d", page.Code)
					}
				}
			})
		}
		group.Wait()
		const waited = 10*maxConnections - pagesBurst
		if took, want := time.Since(start), waited*time.Second/pagesPerSecond; took.Round(time.Second) != want.Round(time.Second) {
			t.Errorf("%d pages took %s, want %s", 10*maxConnections, took, want)
		}
	})
}

// A client that disconnects neither waits, nor changes the page for others, nor counts as an error.
func TestAClientThatGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHung()
		m := New(Sources{Loop: h.loop})
		handler := m.Handler(fine, fine)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		for range 20 { // the first waits; the others arrive while it does
			page := request(ctx, handler, "/metrics")
			if took := time.Since(start); page.Body.Len() != 0 || took != time.Second {
				t.Errorf("a client that disconnected got %d bytes after %s", page.Body.Len(), took)
			}
		}
		go func() {
			time.Sleep(time.Second)
			close(h.release)
		}()
		page := request(t.Context(), handler, "/metrics").Body.String()
		for _, line := range []string{"dupip_records_pending 7", `dupip_scrape_errors_total{source="loop"} 0`} {
			if !strings.Contains(page, line+"\n") {
				t.Errorf("the page lacks %q:\n%s", line, page)
			}
		}
	})
}

// A health check of an agent that hangs fails after the timeout. Many requests share one check.
func TestAProbeOfAnAgentThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		release := make(chan struct{})
		handler := New(rich()).Handler(func(context.Context) error {
			calls.Add(1)
			<-release
			return nil
		}, fine)
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				start := time.Now()
				answer := request(t.Context(), handler, "/healthz")
				if took := time.Since(start); answer.Code != http.StatusServiceUnavailable ||
					answer.Body.String() != errTimeout.Error()+"\n" || took != sourceTimeout {
					t.Errorf("%d %q after %s", answer.Code, answer.Body, took)
				}
			})
		}
		group.Wait()
		close(release)
		synctest.Wait()
		for range 50 { // the result is reused
			if answer := request(t.Context(), handler, "/healthz"); answer.Code != http.StatusOK {
				t.Errorf("%d %q after the agent answers again", answer.Code, answer.Body)
			}
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("checked %d times, want once", n)
		}
		time.Sleep(checkInterval)
		request(t.Context(), handler, "/healthz")
		if n := calls.Load(); n != 2 {
			t.Errorf("checked %d times, want once more", n)
		}
	})
}
