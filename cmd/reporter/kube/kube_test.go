package kube

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestClient: what only a bad or a changing API server shows; tests/cluster has a real one.
func TestClient(t *testing.T) {
	var answer func(w http.ResponseWriter, r *http.Request)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := New(server.URL, token, nil)

	// The token is read again, and goes nowhere else.
	var got []string
	answer = func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		if r.URL.Path == "/stolen" {
			t.Error("a redirect was followed")
		}
		http.Redirect(w, r, "/stolen", http.StatusTemporaryRedirect)
	}
	for _, text := range []string{"one\n", "two"} {
		write(text)
		if _, err := c.Lease(t.Context(), "n", "l"); !Is(err, http.StatusTemporaryRedirect) || Final(err) {
			t.Error(err)
		}
	}
	if strings.Join(got, ",") != "Bearer one,Bearer two" {
		t.Errorf("%q", got)
	}

	// Answers that are too long, that are no JSON, and that say why.
	for body, want := range map[string]string{
		strings.Repeat(" ", maxBody+1): "longer than",
		"hello":                        "reading the API server's answer",
	} {
		answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
		if _, err := c.Lease(t.Context(), "n", "l"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for code, final := range map[int]bool{400: true, 401: false, 403: false, 404: true, 409: true, 422: true, 429: false, 500: false, 503: false} {
		answer = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"message": "because"}`)
		}
		if err := c.WriteEvent(t.Context(), Event{}); !Is(err, code) || Final(err) != final || !strings.Contains(err.Error(), "because") {
			t.Errorf("%d: %v", code, err)
		}
	}

	answer = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"message": "events \"x\" is forbidden: unable to create new content in namespace n because it is being terminated"}`)
	}
	if err := c.WriteEvent(t.Context(), Event{}); !Final(err) || Refused(err) {
		t.Errorf("in a namespace that ends: %v", err)
	}

	// Pages, one after the other.
	pages := 0
	answer = func(w http.ResponseWriter, r *http.Request) {
		pages++
		if q := r.URL.Query(); q.Get("fieldSelector") != "reportingController=us" || (pages > 1) != (q.Get("continue") == "more") {
			t.Errorf("%v", q)
		}
		more := map[bool]string{true: "more"}[pages < 3]
		_, _ = io.WriteString(w, `{"metadata": {"continue": "`+more+`"}, "items": [{"metadata": {"name": "x"}, "eventTime": null,
			"series": {"count": 2, "lastObservedTime": "2026-01-02T03:04:05.678901Z"}}]}`)
	}
	list, err := c.Events(t.Context(), "us", 3)
	if err != nil || len(list) != 3 || !list[0].EventTime.IsZero() || list[0].Series.LastObservedTime.Nanosecond() != 678901000 {
		t.Errorf("%+v, %v", list, err)
	}

	// The API server refuses times without their microseconds.
	text, err := json.Marshal(MicroTime{time.Unix(0, 0)})
	if err != nil || string(text) != `"1970-01-01T00:00:00.000000Z"` {
		t.Errorf("%s, %v", text, err)
	}
}
