package metrics

import (
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/dupip/dupip/internal/bounds"
)

var tooManyConnections = bounds.New("connections to the metrics")

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
