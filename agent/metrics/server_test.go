package metrics

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/serve"
)

func TestPages(t *testing.T) {
	address := start(t, New(rich()).Handler(fine, fine))
	code, body, header := get(t, address, "/metrics", nil)
	if code != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/plain; version=0.0.4") ||
		!strings.Contains(body, `dupip_conflicts{scope="same-node",state="confirmed"} 1`) {
		t.Errorf("%d %s\n%s", code, header, body)
	}
	code, body, header = get(t, address, "/metrics", http.Header{"Accept": {"application/openmetrics-text; version=1.0.0"}})
	if code != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "application/openmetrics-text") ||
		!strings.HasSuffix(body, "# EOF\n") {
		t.Errorf("%d %s, ends in %q", code, header, body[max(0, len(body)-100):])
	}
	if _, packed, header := get(t, address, "/metrics", http.Header{"Accept-Encoding": {"gzip"}}); header.Get("Content-Encoding") != "gzip" ||
		len(packed) > len(body)/2 {
		t.Errorf("%d bytes of %d, %s", len(packed), len(body), header)
	}
	if code, body, _ := get(t, address, "/", nil); code != http.StatusOK ||
		!strings.Contains(body, `href="/metrics"`) || !strings.Contains(body, `href="/readyz"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, _, _ := get(t, address, "/debug/pprof/", nil); code != http.StatusNotFound {
		t.Errorf("code %d, want 404", code)
	}
	conn := dial(t, address)
	fmt.Fprintf(conn, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "405") {
		t.Errorf("POST: %q, %v; want 405", line, err)
	}
}

func TestHealth(t *testing.T) {
	var answer atomic.Value // of func() error
	address := start(t, New(rich()).Handler(fine, func(context.Context) error { return answer.Load().(func() error)() }))
	for _, test := range []struct {
		ready error
		code  int
		body  string
	}{
		{errors.New("the agent is still starting"), 503, "the agent is still starting\n"},
		{nil, 200, "ok\n"},
		{errors.New("two\nlines \x1b[2J"), 503, "two?lines ?[2J\n"},
	} {
		answer.Store(func() error { return test.ready })
		var code int
		var body string
		deadline := time.Now().Add(eventTimeout)
		for body != test.body && time.Now().Before(deadline) { // the answer before is shared for a moment
			code, body, _ = get(t, address, "/readyz", nil)
		}
		if code != test.code || body != test.body {
			t.Errorf("%d %q, want %d %q", code, body, test.code, test.body)
		}
	}
	if code, body, _ := get(t, address, "/healthz", nil); code != http.StatusOK || body != "ok\n" {
		t.Errorf("healthz: %d %q", code, body)
	}
}

func TestHugeHeaders(t *testing.T) {
	address := start(t, New(rich()).Handler(fine, fine))
	conn := dial(t, address)
	// The server stops reading in the middle.
	_, _ = fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10))
	if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil && !strings.Contains(line, "431") {
		t.Errorf("answer %q, want 431", line)
	}
	if code, _, _ := get(t, address, "/healthz", nil); code != http.StatusOK {
		t.Errorf("healthz: %d", code)
	}
}

func TestListenSaysWhatToDo(t *testing.T) {
	first, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	taken := first.Addr().String()
	for address, want := range map[string]string{
		taken:            "opening metrics address " + taken + ": another program uses the port; choose another --metrics-listen, or off: ",
		"192.0.2.1:9951": "opening metrics address 192.0.2.1:9951: this node does not have the address; choose another --metrics-listen, or off: ",
		"9951":           `opening metrics address "9951": must be host:port or :port, for example :9951; choose another --metrics-listen, or off`,
		"127.0.0.1:no":   "opening metrics address 127.0.0.1:no: ",
	} {
		listener, err := Listen(address)
		if err == nil {
			listener.Close()
			t.Errorf("%s: no error", address)
			continue
		}
		if !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q, want %q", err, want)
		}
	}
	if _, err := Listen(taken); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("error %v does not match EADDRINUSE", err)
	}
}

// A scrape that waits for a hung source must not keep the agent from ending, and nothing
// is still being served when Serve returns.
func TestServeEnds(t *testing.T) {
	shutdownGrace = time.Minute
	defer func() { shutdownGrace = serve.Grace }()
	h := newHung()
	defer close(h.release)
	pages := New(Sources{Loop: h.loop}).Handler(fine, fine)
	var ended atomic.Bool
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages.ServeHTTP(w, r)
		time.Sleep(50 * time.Millisecond) // as on a busy machine
		ended.Store(true)
	})
	listener := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, listener, handler, slog.New(slog.DiscardHandler)) }()
	conn := dial(t, listener.Addr().String())
	fmt.Fprintf(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	waitFor(t, "the source is called", func() bool { return h.calls.Load() > 0 })
	cancel()
	start := time.Now()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > sourceTimeout-time.Second {
			t.Errorf("it took %s", took)
		}
		if !ended.Load() {
			t.Error("a request is still being served")
		}
	case <-time.After(eventTimeout):
		t.Fatal("the server does not end")
	}
	if conn, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		conn.Close()
		t.Error("the port is still open")
	}
}

func TestServeSaysWhyItEnds(t *testing.T) {
	listener := listen(t)
	listener.Close()
	err := Serve(t.Context(), listener, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.HasPrefix(err.Error(), "serving metrics: ") || !errors.Is(err, net.ErrClosed) {
		t.Errorf("error %v", err)
	}
}
