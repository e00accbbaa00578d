package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/serve"
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
