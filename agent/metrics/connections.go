package metrics

import (
	"net"
	"net/http"
	"sync"
)

// connections limits the open connections of a server by closing the one that has been idle for
// longest. A limit that let new connections wait would block the kubelet's probes.
type connections struct {
	limit int

	mu      sync.Mutex
	changes uint64
	changed map[net.Conn]uint64 // the number of its last change
}

// track is the server's ConnState hook. The server calls it for a new connection before it accepts the
// next.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.changed, conn)
		return
	}
	if _, open := c.changed[conn]; !open && state != http.StateNew {
		return // track has closed it
	}
	c.changes++
	c.changed[conn] = c.changes
	if len(c.changed) <= c.limit {
		return
	}
	longestIdle := conn
	for other, change := range c.changed {
		if change < c.changed[longestIdle] {
			longestIdle = other
		}
	}
	delete(c.changed, longestIdle)
	longestIdle.Close()
}
