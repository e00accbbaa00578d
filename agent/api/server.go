// Package api serves the documents of package document on a local socket, as JSON over HTTP, and has the client for it.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/serve"
	"github.com/dupip/dupip/document"
)

// DefaultSocket is the default of --api-socket.
const DefaultSocket = "/run/dupip/dupip.sock"

// maxWatches limits the watches that are open at one time.
const maxWatches = 32

// ErrOccupied is returned by [Listen] when another agent answers on the socket.
var ErrOccupied = errors.New("another agent is listening there")

// Backend makes the documents. Its methods are safe for concurrent use and end with ctx.
type Backend interface {
	Bindings(ctx context.Context, q document.Query) (document.Bindings, error)
	// Conflicts returns the open conflicts, and with q.All the resolved ones.
	Conflicts(ctx context.Context, q document.Query) (document.Conflicts, error)
	// Audit returns where books and wire say different things.
	Audit(ctx context.Context, q document.Query) (document.Audit, error)
	// Explain returns the story of q.IP. Without a cluster q.Cluster has no effect.
	Explain(ctx context.Context, q document.Query) (document.Explanation, error)
	// Captures returns what the holders of q.IP sent.
	Captures(ctx context.Context, q document.Query) (document.Captures, error)
	// Nodes returns the agents of the cluster, those of q.State; without a cluster this one.
	Nodes(ctx context.Context, q document.Query) (document.Nodes, error)
	// Status returns the status of the agent, or that of q.Node.
	Status(ctx context.Context, q document.Query) (document.Status, error)
	// WatchConflicts streams events of this agent. It closes the channel when ctx ends, or when the reader is too
	// slow.
	WatchConflicts(ctx context.Context) (<-chan document.ConflictEvent, error)
}

// Acknowledger is a [Backend] that can be told that somebody works on the conflicts of q.IP, by q.Ack. It returns the conflicts that
// agents have of it, in which that is so from now on.
type Acknowledger interface {
	Acknowledge(ctx context.Context, q document.Query) (document.Conflicts, error)
}

// Listen opens the Unix socket with mode 0600, in a folder that nobody else enters if Listen or Kubernetes made it. It replaces
// the socket file of a killed agent. The error is [ErrOccupied] if an agent answers there.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the API socket: %w", err)
	}
	if path == DefaultSocket {
		// A kubelet makes it with 0755. If that stays, the socket's own mode still keeps others out.
		_ = os.Chmod(filepath.Dir(path), 0o700)
	}
	left, err := Inspect(path)
	if err != nil {
		return nil, err
	}
	if left {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("removing the socket of a previous agent: %w", err)
		}
	}
	// The mode must never be wider. The umask is that of the whole process, but nothing else creates
	// files while an agent starts.
	old := unix.Umask(0o177)
	listener, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("opening API socket: %w", err)
	}
	return listener, nil
}

// Inspect reports whether a killed agent left its socket file, which [Listen] replaces. The error says
// why Listen cannot use the path. Inspect changes nothing.
func Inspect(path string) (left bool, err error) {
	if most := len(unix.RawSockaddrUnix{}.Path) - 1; len(path) > most {
		return false, fmt.Errorf("opening API socket: the path has %d bytes, at most %d are possible; choose a shorter --api-socket", len(path), most)
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return false, fmt.Errorf("opening API socket %s: %w; stop it or choose another --api-socket", path, ErrOccupied)
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("opening API socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return false, fmt.Errorf("opening API socket %s: a file that is no socket has this name; move it or choose another --api-socket", path)
	}
	return true, nil
}

// Serve answers on the listener until ctx ends, with a handler such as that of [NewHandler].
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
	}
	if err := serve.Until(ctx, server, listener, serve.Grace, log); err != nil {
		return fmt.Errorf("serving the API: %w", err)
	}
	return nil
}

type handler struct {
	backend Backend
	watches *semaphore.Weighted // open ones
	polls   *semaphore.Weighted // those of them that poll
}

// documentHandler answers a request that is valid.
type documentHandler func(http.ResponseWriter, *http.Request, document.Query)

// NewHandler returns the handler of all documents. So many watches of other nodes, or of pods, may be open at one time.
func NewHandler(backend Backend, polls int64) http.Handler {
	h := &handler{backend, semaphore.NewWeighted(maxWatches), semaphore.NewWeighted(polls)}
	watches := map[string]documentHandler{"/v1/bindings": h.stream(h.watchBindings), "/v1/conflicts": h.stream(h.watchConflicts)}
	documents := map[string]documentHandler{
		"/v1/bindings":  answer(backend.Bindings),
		"/v1/conflicts": answer(backend.Conflicts),
		"/v1/explain":   answer(backend.Explain),
		"/v1/captures":  answer(backend.Captures),
		"/v1/audit":     answer(backend.Audit),
		"/v1/nodes":     answer(backend.Nodes),
		"/v1/status":    answer(backend.Status),
	}
	if acks, ok := backend.(Acknowledger); ok {
		documents["/v1/ack"] = answer(acks.Acknowledge)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, watch, err := parseQuery(r.URL.Path, r.URL.Query())
		doc := documents[r.URL.Path]
		if watch {
			doc = watches[r.URL.Path]
		}
		method := http.MethodGet
		if r.URL.Path == "/v1/ack" && doc != nil { // it changes what is shown
			method = http.MethodPost
		}
		switch {
		case r.Method != method: // HEAD would occupy a watch
			w.Header().Set("Allow", method)
			fail(w, http.StatusMethodNotAllowed, fmt.Errorf("method %s: only %s is supported", r.Method, method))
		case doc == nil:
			fail(w, http.StatusNotFound, errors.New("no such document: use /v1/audit, bindings, captures, conflicts, explain, nodes or status"))
		case err != nil:
			fail(w, http.StatusBadRequest, err)
		default:
			doc(w, r, q)
		}
	})
}

// answer returns a handler that sends the document of get.
func answer[T any](get func(context.Context, document.Query) (T, error)) documentHandler {
	return func(w http.ResponseWriter, r *http.Request, q document.Query) {
		doc, err := get(r.Context(), q)
		if err != nil {
			fail(w, statusOf(err), err)
			return
		}
		send(w, http.StatusOK, doc)
	}
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, document.ErrNoSuchNode):
		return http.StatusNotFound
	case errors.Is(err, errWatch):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

func fail(w http.ResponseWriter, code int, err error) {
	send(w, code, document.Error{Error: err.Error()})
}

func send(w http.ResponseWriter, code int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(doc) // fails if the client has disconnected
}

// LocalOnly passes on requests that programs of this machine made for this machine, and answers others with 403: a foreign site
// may have its own name resolve to 127.0.0.1 (DNS rebinding), or send a browser here. It sets the headers that bound what a browser
// does with any answer; a page for people allows more than the policy here.
func LocalOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		// Nothing is left on the disk. The script remembers the ETag itself.
		h.Set("Cache-Control", "no-store")
		switch {
		case !isLocal(r.Host):
			http.Error(w, "this is for localhost, 127.0.0.1 and [::1] only", http.StatusForbidden)
		case r.Header.Get("Sec-Fetch-Site") == "cross-site":
			http.Error(w, "another site led here: type the address into the browser instead", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isLocal reports whether a Host header names this machine, with any port.
func isLocal(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	} else if strings.Trim(port, "0123456789") != "" {
		return false
	}
	switch strings.ToLower(name) {
	case "localhost", "127.0.0.1", "[::1]":
		return true
	case "::1": // SplitHostPort has removed the brackets
		return err == nil
	}
	return false
}
