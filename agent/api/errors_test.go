package api_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/document"
)

// Errors are JSON documents, too.
func TestErrorsAreDocuments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dupip.sock")
	listener, err := api.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- api.Serve(ctx, listener, api.NewHandler(newTable(), api.MaxPolls), slog.New(slog.DiscardHandler))
	}()
	defer func() { cancel(); <-done }()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	for _, test := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/", http.StatusNotFound},
		{http.MethodGet, "/v1/binding", http.StatusNotFound},
		{http.MethodPost, "/v1/bindings", http.StatusMethodNotAllowed},
		{http.MethodGet, "/v1/ack?ip=10.0.0.1&by=alice&seconds=60", http.StatusMethodNotAllowed},
		{http.MethodPost, "/v1/ack?by=alice&seconds=60", http.StatusBadRequest},
		{http.MethodPost, "/v1/ack?ip=10.0.0.1&by=alice", http.StatusBadRequest},
		{http.MethodPost, "/v1/ack?ip=10.0.0.1&seconds=60", http.StatusBadRequest},
		{http.MethodPost, "/v1/ack?ip=10.0.0.1&by=alice&seconds=1", http.StatusBadRequest},
		{http.MethodPost, "/v1/ack?ip=10.0.0.1&by=alice&seconds=60&why=" + strings.Repeat("w", 513), http.StatusBadRequest},
		{http.MethodHead, "/v1/conflicts?watch=1", http.StatusMethodNotAllowed},
		{http.MethodGet, "/v1/explain", http.StatusBadRequest},
		{http.MethodGet, "/v1/explain?ip=1.2.3", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?ip=1.2.3", http.StatusBadRequest},
		{http.MethodGet, "/v1/bindings?node=n9", http.StatusNotFound},
		{http.MethodGet, "/v1/bindings?node=" + strings.Repeat("n", 318), http.StatusBadRequest},
		{http.MethodGet, "/v1/bindings?watch=1&cluster=1", http.StatusBadRequest},
		{http.MethodGet, "/v1/bindings?watch=1&node=n1", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?watch=1&all=1", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?watch=1&since=12h", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?since=yesterday", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?since=0s", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?since=-12h", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?since=87601h", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?since=9223372036855ms", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?since=99999999999999999999h", http.StatusBadRequest},
		{http.MethodGet, "/v1/bindings?since=12h", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?watch=1&state=confirmed", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?state=open", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?all=yes", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?IP=10.0.0.1", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?ip=10.0.0.0/33", http.StatusBadRequest},
		{http.MethodGet, "/v1/conflicts?ip=10.0.0.1&ip=10.0.0.2", http.StatusBadRequest},
		{http.MethodGet, "/v1/bindings?state=confirmed", http.StatusBadRequest},
		{http.MethodGet, "/v1/nodes?state=confirmed", http.StatusBadRequest},
		{http.MethodGet, "/v1/explain?ip=10.0.0.0/24", http.StatusBadRequest},
		{http.MethodGet, "/v1/status?verbose=1", http.StatusBadRequest},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, "http://agent"+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var doc document.Error
		if test.method != http.MethodHead {
			if err := json.NewDecoder(response.Body).Decode(&doc); err != nil || doc.Error == "" {
				t.Errorf("%s %s: %v, %+v: want a document with an error", test.method, test.path, err, doc)
			}
		}
		response.Body.Close()
		if response.StatusCode != test.want {
			t.Errorf("%s %s: %d %q, want %d", test.method, test.path, response.StatusCode, doc.Error, test.want)
		}
	}
}
