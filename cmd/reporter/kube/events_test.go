package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// serve returns a client of a server that answers so; of none, if answer is nil.
func serve(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	base := "http://unused"
	if answer != nil {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		base = server.URL
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	return New(base, token, nil)
}

// list is how an API server answers for these Events, page by page.
func list(t *testing.T, all []string, w http.ResponseWriter, r *http.Request) {
	t.Helper()
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil || limit < 1 {
		t.Errorf("limit is %q", r.URL.Query().Get("limit"))
	}
	to, more := min(from+limit, len(all)), ""
	if to < len(all) {
		more = strconv.Itoa(to)
	}
	_, _ = fmt.Fprintf(w, `{"kind":"EventList","metadata":{"continue":%q},"items":[%s]}`, more, strings.Join(all[from:to], ","))
}

// event is one of a tenant, with something long in it.
func event(n, size int) string {
	text, _ := json.Marshal(strings.Repeat("x", size))
	return fmt.Sprintf(`{"metadata":{"namespace":"t","name":"e%d","annotations":{"a":%s}},"eventTime":null,"note":%[2]s}`, n, text)
}

// TestBigEvents: where tenants make Events of any size, pages become smaller, and larger again.
func TestBigEvents(t *testing.T) {
	for _, tt := range []struct {
		what             string
		small, big, size int
		requests         int // at most
	}{
		{"twenty Events of 255 kB", 0, 20, 255_000, 20},
		{"in the middle of many", 2000, 20, 255_000, 30},
		{"each fills a page", 1000, 5, maxBody - 1000, 60},
	} {
		var all []string
		for n := range tt.small {
			all = append(all, event(n, 10))
		}
		for n := range tt.big {
			at := len(all) / 2
			all = append(all[:at], append([]string{event(10_000+n, tt.size/2)}, all[at:]...)...)
		}
		var requests atomic.Int32
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			list(t, all, w, r)
		})
		got, err := c.Events(t.Context(), "us", 20_000)
		if n := int(requests.Load()); err != nil || len(got) != len(all) || n > tt.requests {
			t.Errorf("%s: %d of %d Events by %d requests, at most %d; %v", tt.what, len(got), len(all), n, tt.requests, err)
		}
		names := make(map[string]bool)
		for _, e := range got {
			names[e.Metadata.Name] = true
		}
		if len(names) != len(all) {
			t.Errorf("%s: %d names of %d Events", tt.what, len(names), len(all))
		}
	}
}

// TestListEnds: what cannot be read ends the list with an error and what was read before, after a bounded number of requests.
func TestListEnds(t *testing.T) {
	one := event(1, 10)
	for what, tt := range map[string]struct {
		answer   func(n int, w http.ResponseWriter)
		code     int // of the refusal, if it is one
		read     int
		requests int
	}{
		"one Event is longer than an answer may be": {func(n int, w http.ResponseWriter) {
			text := one
			if n > 1 {
				text = event(2, maxBody)
			}
			_, _ = fmt.Fprintf(w, `{"metadata":{"continue":"more"},"items":[%s]}`, text)
		}, 0, 1, 10}, // the first page, and 500, 250 … 1
		"more than are wanted": {func(_ int, w http.ResponseWriter) {
			_, _ = fmt.Fprintf(w, `{"metadata":{"continue":"more"},"items":[%s,%[1]s]}`, one)
		}, 0, 5, 3},
		"the token of the next page is too old": {func(n int, w http.ResponseWriter) {
			if n == 1 {
				_, _ = fmt.Fprintf(w, `{"metadata":{"continue":"more"},"items":[%s]}`, one)
				return
			}
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, `{"metadata":{"continue":"other"},"message":"The provided continue parameter is too old"}`)
		}, http.StatusGone, 1, 2},
		"throttled": {func(_ int, w http.ResponseWriter) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}, http.StatusTooManyRequests, 0, 1},
	} {
		var requests atomic.Int32 // a handler may still write what is too long
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { tt.answer(int(requests.Add(1)), w) })
		got, err := c.Events(t.Context(), "us", 5)
		if n := int(requests.Load()); err == nil || len(got) != tt.read || n != tt.requests || tt.code != 0 && !Is(err, tt.code) {
			t.Errorf("%s: %d Events after %d requests, %v; want %d after %d", what, len(got), n, err, tt.read, tt.requests)
		}
	}
}

// TestListBroken: an object that is not as it should be does not hide the others of its page, and a page that ends early is an error.
func TestListBroken(t *testing.T) {
	text := `{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}, "eventTime": 7}, {"metadata": {"name": "c"}}]}`
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	list := func() (got string, err error) {
		version, err := List(t.Context(), c, "/things", nil, func(l *Listed, err error) error {
			got += fmt.Sprintf("%s %t ", l.Metadata.Name, err == nil)
			return nil
		})
		return got + version, err
	}
	if got, err := list(); err != nil || got != "a true b false c true 7" {
		t.Errorf("%s, %v", got, err)
	}
	broken := []string{`{"items": {}}`, `{"items": {}`, `{"items": 7}`}
	for _, end := range []int{len(text) - 1, len(text) - 30, 40, 0} {
		broken = append(broken, text[:end])
	}
	for _, text = range broken {
		if got, err := list(); err == nil || got != "" {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

// roundTrip is a transport without a network, for virtual time.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSlowPages: a page that does not come in time is asked for again, half as long, until the caller's time is over.
func TestSlowPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, nil)
		c.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > pageSize/4 {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			w := httptest.NewRecorder()
			list(t, []string{event(1, 10)}, w, r)
			return w.Result(), nil
		})
		began := time.Now()
		if got, err := c.Events(t.Context(), "us", 5); err != nil || len(got) != 1 || time.Since(began) != 2*timeout {
			t.Errorf("%d Events after %v, %v", len(got), time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout+time.Second)
		defer cancel()
		began = time.Now()
		if _, err := c.Events(ctx, "us", 5); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != timeout+time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestAnswersOfAnySize: an Event that somebody else has made huge is renewed, and a refusal that quotes it is a refusal.
func TestAnswersOfAnySize(t *testing.T) {
	for code, want := range map[int]func(error) bool{
		http.StatusOK:                  func(err error) bool { return err == nil },
		http.StatusUnprocessableEntity: func(err error) bool { return Final(err) && len(err.Error()) < 1000 },
		http.StatusInternalServerError: func(err error) bool { return Is(err, 500) && len(err.Error()) < 1000 },
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"message":"%s"}`, strings.Repeat("x", 2*maxBody))
		})
		if err := c.WriteEvent(t.Context(), Event{Metadata: Meta{Namespace: "tenant", Name: "e"}, Series: &Series{Count: 2}}); !want(err) {
			t.Errorf("%d: %.200v", code, err)
		}
	}
}
