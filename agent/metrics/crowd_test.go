package metrics

import (
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dupip/dupip/internal/bounds"
)

// counting counts the connections that are open at one time.
type counting struct {
	net.Listener
	open, most atomic.Int64
}

func (l *counting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.most.Store(max(l.most.Load(), l.open.Add(1)))
	return &counted{Conn: conn, close: sync.OnceValue(func() error {
		l.open.Add(-1)
		return conn.Close()
	})}, nil
}

type counted struct {
	net.Conn
	close func() error
}

func (c *counted) Close() error { return c.close() }

// The server answers probes and scrapes while 1,000 connections are idle or slow, and does not wait until they time out.
func TestManyConnections(t *testing.T) {
	before := readTimeout
	readTimeout = time.Hour
	t.Cleanup(func() { readTimeout = before })
	for _, test := range []struct{ name, request string }{
		{"silent", ""},
		{"unfinished", "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			listener := &counting{Listener: listen(t)}
			address := serveOn(t, listener, New(rich()).Handler(fine, fine))
			var conns []net.Conn
			for i := range 1000 {
				conn := dial(t, address)
				_, _ = io.WriteString(conn, test.request)
				conns = append(conns, conn)
				if i%100 != 99 {
					continue
				}
				if code, body, _ := get(t, address, "/healthz", nil); code != http.StatusOK || body != "ok\n" {
					t.Errorf("after %d connections: %d %q", i+1, code, body)
				}
				if code, _, _ := get(t, address, "/metrics", nil); code != http.StatusOK {
					t.Errorf("after %d connections: metrics %d", i+1, code)
				}
			}
			// The server accepts a connection before it closes another.
			if most := listener.most.Load(); most > maxConnections+1 {
				t.Errorf("%d connections at one time, want at most %d", most, maxConnections+1)
			}
			for _, conn := range conns {
				conn.Close()
			}
		})
	}
}

// The connection whose state changed longest ago is closed.
func TestOldestConnectionIsClosed(t *testing.T) {
	before := bounds.Counts()["too many connections to the metrics"]
	c := connections{limit: 3}
	closed := make(map[string]bool)
	connect := func(name string) net.Conn {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		conn := &counted{Conn: ours, close: func() error {
			closed[name] = true
			return ours.Close()
		}}
		c.track(conn, http.StateNew)
		return conn
	}
	probe := connect("probe")
	scraper := connect("scraper")
	silent := connect("silent 1")
	c.track(scraper, http.StateActive)
	connect("silent 2") // closes the probe
	c.track(scraper, http.StateIdle)
	connect("silent 3") // closes silent 1
	c.track(silent, http.StateActive)
	c.track(probe, http.StateClosed)
	c.track(scraper, http.StateClosed)
	connect("silent 4") // closes none
	for name, want := range map[string]bool{
		"probe": true, "silent 1": true, "scraper": false, "silent 2": false, "silent 3": false, "silent 4": false,
	} {
		if closed[name] != want {
			t.Errorf("%s closed: %t, want %t", name, closed[name], want)
		}
	}
	if n := bounds.Counts()["too many connections to the metrics"] - before; len(c.open) != 3 || n < 2 {
		t.Errorf("%d connections are tracked, %d were counted, want 3 and 2", len(c.open), n)
	}
}
