package metrics

import (
	"net"
	"net/http"
	"sync"
)

// connections limits the open connections of a server. When a new connection exceeds the limit, it
// closes the connection whose state changed longest ago. New connections do not wait, so the kubelet's
// probes are always answered.
type connections struct {
	limit int

	mu         sync.Mutex
	clock      uint64              // counts the changes of state
	lastChange map[net.Conn]uint64 // clock at the last change of an open connection
}

// track is the server's ConnState hook. The server calls it for a new connection before it accepts the
// next.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.lastChange, conn)
		return
	}
	if _, open := c.lastChange[conn]; !open && state != http.StateNew {
		return // track has closed it
	}
	c.clock++
	c.lastChange[conn] = c.clock
	if len(c.lastChange) <= c.limit {
		return
	}
	oldest := conn
	for other, changed := range c.lastChange {
		if changed < c.lastChange[oldest] {
			oldest = other
		}
	}
	delete(c.lastChange, oldest)
	oldest.Close()
}
