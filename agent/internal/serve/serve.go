// Package serve runs an HTTP server until a context ends.
package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Grace is how long running requests may take when an agent's server ends.
const Grace = time.Second

// Until serves on the listener until ctx ends (nil), and closes it. Then it waits for running requests, whose contexts have ended,
// too, and cancels them after grace. It logs at debug level.
func Until(ctx context.Context, server *http.Server, listener net.Listener, grace time.Duration, log *slog.Logger) error {
	server.MaxHeaderBytes, server.ErrorLog = 16<<10, slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if server.Shutdown(timeout) != nil {
			server.Close()
		}
	})
	err := server.Serve(listener)
	if !stop() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	server.Close()
	return err
}
