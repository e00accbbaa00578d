package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// TestUntil: Until returns after running requests were answered.
func TestUntil(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked, release := make(chan struct{}), make(chan struct{})
	var answered atomic.Bool
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-release
		answered.Store(true)
	})}
	done := make(chan error, 1)
	go func() { done <- Until(ctx, server, listener, time.Minute, slog.New(slog.DiscardHandler)) }()
	go func() {
		response, err := http.Get("http://" + listener.Addr().String())
		if err == nil {
			response.Body.Close()
		}
	}()
	<-asked
	server.RegisterOnShutdown(func() { close(release) })
	cancel()
	if err := <-done; err != nil || !answered.Load() {
		t.Errorf("ended with %v, the request answered: %t", err, answered.Load())
	}
}

// TestBrokenListener: Until returns the listener's error.
func TestBrokenListener(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	if err := Until(t.Context(), &http.Server{}, listener, Grace, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("it ended without an error")
	}
}
