package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/serve"
	"github.com/dupip/dupip/internal/bounds"
)

// DefaultListen is the default of --metrics-listen.
const DefaultListen = ":9951"

// maxConnections limits the open connections, and so the memory for pages that clients do not read.
const maxConnections = 128

// Listen opens the TCP port of [Serve]. The error says what to do.
func Listen(address string) (net.Listener, error) {
	const remedy = "choose another --metrics-listen, or off"
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("opening metrics address %q: must be host:port or :port, for example %s; %s",
			address, DefaultListen, remedy)
	}
	listener, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		return listener, nil
	case errors.Is(err, unix.EADDRINUSE):
		return nil, fmt.Errorf("opening metrics address %s: another program uses the port; %s: %w", address, remedy, err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return nil, fmt.Errorf("opening metrics address %s: this node does not have the address; %s: %w", address, remedy, err)
	default:
		return nil, fmt.Errorf("opening metrics address %s: %w; %s", address, err, remedy)
	}
}

// shutdownGrace is how long Serve waits for open requests when it ends, readTimeout how long for a whole request. Tests change them.
var (
	shutdownGrace = serve.Grace
	readTimeout   = 5 * time.Second
)

// Serve answers on the listener until ctx ends, and closes the listener. When there are too many
// connections, it closes the one whose state changed longest ago.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ConnState:         (&connections{limit: maxConnections}).track,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      sourceTimeout + 10*time.Second,
		IdleTimeout:       2 * time.Minute, // longer than the pause between two scrapes
	}
	if err := serve.Until(ctx, server, listener, shutdownGrace, log); err != nil {
		return fmt.Errorf("serving metrics: %w", err)
	}
	return nil
}

var tooManyConnections = bounds.New("too many connections to the metrics")

// connections limits the open connections of a server. When a new connection exceeds the limit, it
// closes the connection whose state changed longest ago. New connections do not wait, so the kubelet's
// probes are always answered.
type connections struct {
	limit int

	mu   sync.Mutex
	open []net.Conn // in the order of their last changes of state
}

// track is the server's ConnState hook. The server calls it for a new connection before it accepts the
// next.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.open, conn)
	if i >= 0 {
		c.open = slices.Delete(c.open, i, i+1)
	} else if state != http.StateNew {
		return // track has closed it
	}
	if state == http.StateClosed || state == http.StateHijacked {
		return
	}
	c.open = append(c.open, conn)
	if len(c.open) > c.limit {
		c.open[0].Close()
		tooManyConnections.Exceeded(1)
		c.open = slices.Delete(c.open, 0, 1)
	}
}
