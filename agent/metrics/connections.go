package metrics

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// connections bounds the open connections of a server. A queue for a free place would
// let anybody who opens many and says nothing keep the kubelet's probes waiting.
type connections struct {
	limit int

	mu    sync.Mutex
	order list.List // of net.Conn, by their last change, the oldest first
	place map[net.Conn]*list.Element
}

// changed is the server's ConnState hook. It is called for a new connection before the
// next is accepted.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	place := c.place[conn]
	switch {
	case state == http.StateNew:
		if c.place == nil {
			c.place = make(map[net.Conn]*list.Element)
		}
		c.place[conn] = c.order.PushBack(conn)
		if c.order.Len() > c.limit {
			oldest := c.order.Front()
			c.remove(oldest)
			oldest.Value.(net.Conn).Close()
		}
	case place == nil: // made room for another
	case state == http.StateClosed || state == http.StateHijacked:
		c.remove(place)
	default:
		c.order.MoveToBack(place)
	}
}

func (c *connections) remove(place *list.Element) {
	delete(c.place, c.order.Remove(place).(net.Conn))
}
