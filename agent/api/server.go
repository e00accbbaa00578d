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
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/serve"
)

// DefaultSocket is where agent and commands meet when nothing else is said.
const DefaultSocket = "/run/dupip/dupip.sock"

// maxWatches bounds how many streams may be open at one time.
const maxWatches = 32

// ErrOccupied is returned by [Listen] when another agent answers on the socket.
var ErrOccupied = errors.New("another agent is listening there")

// Backend is what the server asks. Its methods are safe for concurrent use and end
// with ctx.
type Backend interface {
	// Bindings returns the holders on the nodes that are asked.
	Bindings(ctx context.Context, q Query) (Bindings, error)
	// Conflicts returns the open conflicts, with the resolved ones where q has All.
	Conflicts(ctx context.Context, q Query) (Conflicts, error)
	// Explain returns the story of q.IP. Where the agent is in no cluster, q.Cluster
	// makes no difference.
	Explain(ctx context.Context, q Query) (Explanation, error)
	// Nodes returns the agents of the cluster, this one alone if there is none.
	Nodes(ctx context.Context) (Nodes, error)
	Status(ctx context.Context) (Status, error)
	// WatchConflicts streams events until ctx ends or the reader falls too far
	// behind; then the channel is closed.
	WatchConflicts(ctx context.Context) (<-chan ConflictEvent, error)
}

// Listen opens the Unix socket with mode 0600. A socket file that a killed agent
// left is replaced; one where an agent answers is [ErrOccupied].
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of the API socket: %w", err)
	}
	left, err := Inspect(path)
	if err != nil {
		return nil, err
	}
	if left {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("removing the socket of a former agent: %w", err)
		}
	}
	// The mode must be right from the first moment on. The umask is the process's;
	// nothing else creates files while an agent starts.
	old := unix.Umask(0o177)
	listener, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("opening API socket: %w", err)
	}
	return listener, nil
}

// Inspect says whether a killed agent left its socket file, which [Listen] replaces. The
// error names what keeps Listen from using the path; it changes nothing.
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
		return false, fmt.Errorf("opening API socket %s: a file that is no socket is in the way; move it or choose another --api-socket", path)
	}
	return true, nil
}

// Serve answers on the listener until ctx ends.
func Serve(ctx context.Context, listener net.Listener, backend Backend, log *slog.Logger) error {
	server := &http.Server{
		Handler:           newHandler(backend),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		// Streams end with the agent, not with a client's patience.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	if err := serve.Until(ctx, server, listener, serve.Grace); err != nil {
		return fmt.Errorf("serving the API: %w", err)
	}
	return nil
}

type handler struct {
	backend Backend
	watches chan struct{} // a slot for each open stream
}

func newHandler(backend Backend) http.Handler {
	h := &handler{backend: backend, watches: make(chan struct{}, maxWatches)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/bindings", h.bindings)
	mux.HandleFunc("GET /v1/conflicts", h.conflicts)
	mux.HandleFunc("GET /v1/explain", h.explain)
	mux.HandleFunc("GET /v1/nodes", h.nodes)
	mux.HandleFunc("GET /v1/status", h.status)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet { // HEAD neither: it would hold a stream's slot for nothing
			w.Header().Set("Allow", http.MethodGet)
			fail(w, http.StatusMethodNotAllowed, fmt.Errorf("method %s: only GET is answered", r.Method))
			return
		}
		if _, pattern := mux.Handler(r); pattern == "" {
			fail(w, http.StatusNotFound, errors.New("no such document: /v1/bindings, conflicts, explain, nodes and status are there"))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (h *handler) bindings(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if flag(r, "watch") {
		h.watchBindings(w, r, q)
		return
	}
	document, err := h.backend.Bindings(r.Context(), q)
	answer(w, document, err)
}

func (h *handler) conflicts(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if flag(r, "watch") {
		h.watchConflicts(w, r, q)
		return
	}
	document, err := h.backend.Conflicts(r.Context(), q)
	answer(w, document, err)
}

// explain asks the cluster unless it is told not to (cluster=0): a story that ends at the
// node's border is half of it.
func (h *handler) explain(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r)
	if err == nil && !q.IP.IsValid() {
		err = errors.New("ip: which address?")
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if r.FormValue("cluster") == "" {
		q.Cluster = true
	}
	document, err := h.backend.Explain(r.Context(), q)
	answer(w, document, err)
}

func (h *handler) nodes(w http.ResponseWriter, r *http.Request) {
	document, err := h.backend.Nodes(r.Context())
	answer(w, document, err)
}

func (h *handler) status(w http.ResponseWriter, r *http.Request) {
	document, err := h.backend.Status(r.Context())
	answer(w, document, err)
}

func answer(w http.ResponseWriter, document any, err error) {
	if errors.Is(err, ErrNoSuchNode) {
		fail(w, http.StatusNotFound, err)
		return
	}
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The client may be gone; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(document)
}

func fail(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(Error{Error: err.Error()})
}
