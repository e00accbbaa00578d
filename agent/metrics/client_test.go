package metrics

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// eventTimeout is how long a test waits for an event. It is long because the machine may be busy.
const eventTimeout = 20 * time.Second

// start starts a server on a port of its own and returns its address.
func start(t *testing.T, handler http.Handler) string {
	t.Helper()
	return serveOn(t, listen(t), handler)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func serveOn(t *testing.T, listener net.Listener, handler http.Handler) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, listener, handler, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(eventTimeout):
			t.Error("the server does not end")
		}
	})
	return listener.Addr().String()
}

// get sends a request on a new connection.
func get(t *testing.T, address, path string, header http.Header) (int, string, http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body), response.Header
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, eventTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(eventTimeout)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// waitFor polls until the condition holds.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(eventTimeout)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s until %s", eventTimeout, what)
		}
		time.Sleep(time.Millisecond)
	}
}
