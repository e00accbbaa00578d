// Package page serves what dupip knows as a page for people: conflicts, one address, nodes, findings. The sentences about conflicts
// are those of package cli. A page works without its script, which only fetches it again and changes what has changed.
//
// What pods, nodes and users wrote is text: html/template escapes it. Nothing here is for Linux only.
package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// Source makes the documents, as [api.Backend] and [api.Client] do. The page changes texts in them, so they must not be shared.
type Source interface {
	Conflicts(ctx context.Context, q document.Query) (document.Conflicts, error)
	Explain(ctx context.Context, q document.Query) (document.Explanation, error)
	Nodes(ctx context.Context, q document.Query) (document.Nodes, error)
	Audit(ctx context.Context, q document.Query) (document.Audit, error)
}

const (
	// maxTime bounds one answer, less than the server takes to write it, and maxAtOnce how many the source makes at one time: each may ask all nodes.
	maxTime   = 12 * time.Second
	maxAtOnce = 4
	// policy allows what the page itself is made of, and "data:" for an empty icon, which spares a request.
	policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; " +
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

//go:embed page.html page.css page.js
var files embed.FS

// layout is made when it is needed: an agent is the same program.
var layout = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page.html").Funcs(template.FuncMap{
		"age": cli.Age, "who": cli.Who, "inNetwork": func(ip netip.Addr, network string) string { return cli.InNetwork(ip.String(), network) }, "given": cli.GivenText, "counted": cli.Counted,
		"since": cli.Since, "labels": func(c document.Conflict) []string { nodes, _ := cli.NodesOf(c.Holders); return nodes },
		"clock":      func(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") },
		"most":       func() int { return maxText },
		"incomplete": func(verdict string) bool { return verdict == document.AuditNothing || verdict == document.AuditPartly },
		"reserved":   func(f document.Finding) string { return cli.ReservationOf(f, false) },
	}).ParseFS(files, "page.html"))
})

// content is what the template gets.
type content struct {
	View, Title string
	Error       string
	Zone        string // of all times
	Request     request
	Data        any // of the view
}

// view makes the data of a page, and its title.
type view func(ctx context.Context, r request) (data any, title string, err error)

type handler struct {
	source  Source
	program string
	slots   chan struct{}
}

// New returns a handler for all pages, with commands of the program, as people call it. It answers requests for this machine only, see [api.LocalOnly].
func New(source Source, program string) http.Handler {
	h := &handler{source, program, make(chan struct{}, maxAtOnce)}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", h.page("conflicts", h.conflicts))
	mux.Handle("GET /explain", h.page("explain", h.explain))
	mux.Handle("GET /nodes", h.page("nodes", h.nodes))
	mux.Handle("GET /audit", h.page("audit", h.audit))
	mux.Handle("GET /", h.page("", func(context.Context, request) (any, string, error) { return nil, "", errNoPage }))
	for name, kind := range map[string]string{"page.css": "text/css", "page.js": "text/javascript"} {
		text, _ := files.ReadFile(name)
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { serve(w, r, kind, text) })
	}
	return api.LocalOnly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		mux.ServeHTTP(w, r)
	}))
}

var errNoPage = errors.New("there is no such page")

// page returns the handler of a view.
func (h *handler) page(name string, v view) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), maxTime)
		defer cancel()
		c := content{View: name, Zone: time.Now().Format("MST")}
		status := http.StatusOK
		var err error
		if c.Request, err = parse(name, r.URL.Query()); err != nil {
			status = http.StatusBadRequest
		} else if c.Data, c.Title, err = h.read(ctx, v, c.Request); errors.Is(err, errNoPage) {
			status = http.StatusNotFound
		} else if err != nil {
			status = http.StatusServiceUnavailable
		}
		if err != nil {
			c.Error, c.Title, c.Data = detector.Printable(err.Error()), http.StatusText(status), nil
		}
		var body bytes.Buffer
		if err := layout().Execute(&body, c); err != nil {
			http.Error(w, "the page cannot be made: "+detector.Printable(err.Error()), http.StatusInternalServerError)
			return
		}
		if status == http.StatusOK {
			serve(w, r, "text/html; charset=utf-8", body.Bytes())
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write(body.Bytes()) // fails if the browser has disconnected
	})
}

func (h *handler) read(ctx context.Context, v view, r request) (any, string, error) {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
		return v(ctx, r)
	case <-ctx.Done():
		return nil, "", errors.New("too many other pages wait for an answer: close some")
	}
}

// serve answers with a text, or with 304 if the browser has it.
func serve(w http.ResponseWriter, r *http.Request, kind string, text []byte) {
	sum := sha256.Sum256(text)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:12])+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}
