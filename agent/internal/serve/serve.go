// Package serve runs an HTTP server for as long as a context lives. It knows nothing of
// what is served.
package serve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Grace is how long requests under way may take when an agent's server ends.
const Grace = time.Second

// Until serves on the listener until ctx ends, and closes it. It returns once no request
// is under way any more; those that take longer than grace are cut off. The error is nil
// when it was ctx that ended it.
func Until(ctx context.Context, server *http.Server, listener net.Listener, grace time.Duration) error {
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
