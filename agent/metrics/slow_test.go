package metrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// narrow makes connections with small send buffers, and counts those that are blocked in a write.
type narrow struct {
	net.Listener
	writing atomic.Int64
}

func (l *narrow) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &narrowConn{conn, l}, conn.(*net.TCPConn).SetWriteBuffer(4096)
}

type narrowConn struct {
	net.Conn
	listener *narrow
}

func (c *narrowConn) Write(p []byte) (int, error) {
	c.listener.writing.Add(1)
	defer c.listener.writing.Add(-1)
	return c.Conn.Write(p)
}

// Clients that do not read the page delay no others.
func TestSlowReaders(t *testing.T) {
	const readers = 20
	sources := rich()
	sources.Loop = answering(LoopStats{Open: manyConflicts(maxConflicts)})
	listener := &narrow{Listener: listen(t)}
	address := serveOn(t, listener, New(sources).Handler(fine, fine))
	for range readers {
		conn := dial(t, address)
		if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "all of them are stuck", func() bool { return listener.writing.Load() == readers })
	start := time.Now()
	if code, _, _ := get(t, address, "/metrics", nil); code != http.StatusOK {
		t.Errorf("metrics: %d", code)
	}
	if code, _, _ := get(t, address, "/healthz", nil); code != http.StatusOK {
		t.Errorf("healthz: %d", code)
	}
	t.Logf("two answers: %s", time.Since(start))
	// One that was not stuck has its page now, and never blocks again; another one may be between two writes.
	waitFor(t, "all of them are still stuck", func() bool { return listener.writing.Load() == readers })
}

// pipes is a listener in memory, which takes part in synctest's clock.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) Close() error { close(p.closed); return nil }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours
}

// The server closes connections that are idle in any state.
func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, listener, New(rich()).Handler(fine, fine), slog.New(slog.DiscardHandler)) }()

		// lasts sends a request, reads after a time, and returns how long the connection lasted.
		lasts := func(request string, readAfter time.Duration) (time.Duration, int) {
			conn, start := listener.dial(), time.Now()
			defer conn.Close()
			_, _ = io.WriteString(conn, request)
			time.Sleep(readAfter)
			body, err := io.ReadAll(conn)
			if err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Error(err)
			}
			return time.Since(start), len(body)
		}
		if took, _ := lasts("", 0); took != 5*time.Second {
			t.Errorf("silent: %s, want 5s", took)
		}
		if took, _ := lasts("GET /metrics HTTP/1.1\r\nHost: x\r\nX: ", 0); took != 5*time.Second {
			t.Errorf("unfinished: %s, want 5s", took)
		}
		if took, n := lasts("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 0); took != 2*time.Minute || n == 0 {
			t.Errorf("idle after a request: %s and %d bytes, want 2m0s", took, n)
		}
		if _, n := lasts("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", sourceTimeout+11*time.Second); n != 0 {
			t.Errorf("read %d bytes of a page that waited too long", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
