package metrics

import (
	"net"
	"net/http"
	"sync"
)

// connections bounds the open connections of a server by closing the one that has been
// idle for longest. If new connections waited for a free place instead, a client that opens
// many and sends nothing would block the kubelet's probes.
type connections struct {
	limit int

	mu      sync.Mutex
	changes uint64
	changed map[net.Conn]uint64 // the number of its last change
}

// track is the server's ConnState hook. It is called for a new connection before the
// next is accepted.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.changed, conn)
		return
	}
	if _, open := c.changed[conn]; !open && state != http.StateNew {
		return // closed below, earlier
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
