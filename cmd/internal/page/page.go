// Package page serves what dupip knows as a page for people: conflicts, one address, nodes, findings. The sentences are those of the
// packages say and cli. A page works without its script, which only fetches it again and changes what has changed.
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
	"strings"
	"sync"
	"time"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
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

// newLayout returns the template of all pages, with commands of the program in their sentences.
func newLayout(program string) *template.Template {
	return template.Must(template.New("page.html").Funcs(template.FuncMap{
		"age": cli.Age, "who": say.Who, "given": say.Given, "counted": cli.Counted, "since": cli.Since, "notes": cli.Notes, "meant": say.Meant,
		"began": cli.Began, "beganText": cli.BeganText, "lasted": cli.Lasted, "hasEnded": cli.HasEnded,
		"inNetwork":  func(ip netip.Addr, network string) string { return say.InNetwork(ip.String(), network) },
		"labels":     func(holders []document.Binding) []string { nodes, _ := say.NodesOf(holders); return nodes },
		"clock":      func(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") },
		"most":       func() int { return maxText },
		"incomplete": func(verdict string) bool { return verdict == document.AuditNothing || verdict == document.AuditPartly },
		"holder":     say.HolderOf,
		"reserved":   func(f document.Finding) string { return say.ReservationOf(f, false) },
		"answered":   func(c document.Coverage) int { return c.Asked - len(c.Missing) },
		"coverage":   say.Coverage, "problems": cli.Problems, "checked": say.Checked, "unseen": say.Unseen,
		"records": say.OnRecord, "former": cli.Former,
		"verdict": func(s document.Story) []string { return cli.Verdict(s, func(state string) string { return state }) },
		"pairs":   func(doc document.Conflicts) []string { return say.Pairs(doc, cli.MaxPairs) },
		"todo":    say.Entries, "todoMany": say.Many, "do": say.Do, "repairs": say.Repairs, "found": say.Found, "head": say.Head, "why": say.Why,
		"trim":   strings.TrimSpace,
		"rename": func(text string) string { return cli.Rename(program, text) },
	}).ParseFS(files, "page.html"))
}

// content is what the template gets.
type content struct {
	View, Title string
	Error       string
	Zone        string // of all times
	Request     request
	Data        any // of the view
}

type handler struct {
	slots  chan struct{}
	layout func() *template.Template // made when it is needed: an agent is the same program
}

// New returns a handler for all pages, with commands of the program, as people call it. It answers requests for this machine only, see [api.LocalOnly].
func New(source Source, program string) http.Handler {
	h := &handler{make(chan struct{}, maxAtOnce), sync.OnceValue(func() *template.Template { return newLayout(program) })}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", page(h, "conflicts", source.Conflicts, conflicts))
	mux.Handle("GET /explain", page(h, "explain", func(ctx context.Context, q document.Query) (e document.Explanation, err error) {
		if q.IP.IsValid() {
			return source.Explain(ctx, q)
		}
		return e, nil
	}, explain))
	mux.Handle("GET /nodes", page(h, "nodes", source.Nodes, nodes))
	mux.Handle("GET /audit", page(h, "audit", source.Audit, audit))
	mux.Handle("GET /", page(h, "", func(context.Context, document.Query) (any, error) { return nil, errNoPage }, nil))
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

// page returns the handler of a view: get makes its document, and show makes of that what the template gets, and the title.
func page[T any](h *handler, name string, get func(context.Context, document.Query) (T, error), show func(request, T) (any, string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), maxTime)
		defer cancel()
		c := content{View: name, Zone: time.Now().Format("MST")}
		status := http.StatusOK
		var doc T
		var err error
		if c.Request, err = parse(name, r.URL.Query()); err != nil {
			status = http.StatusBadRequest
		} else if doc, err = read(ctx, h, get, document.Query{IP: c.Request.IP, All: c.Request.All(), Since: c.Request.Since, Cluster: true}); errors.Is(err, errNoPage) {
			status = http.StatusNotFound
		} else if err != nil {
			status = http.StatusServiceUnavailable
		}
		if err != nil {
			c.Error, c.Title = detector.Printable(err.Error()), http.StatusText(status)
		} else {
			c.Data, c.Title = show(c.Request, doc)
		}
		var body bytes.Buffer
		if err := h.layout().Execute(&body, c); err != nil {
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

// read waits for its turn, and gets a document whose texts are fit for people.
func read[T any](ctx context.Context, h *handler, get func(context.Context, document.Query) (T, error), q document.Query) (doc T, err error) {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return doc, errors.New("too many other pages wait for an answer: close some")
	}
	if doc, err = get(ctx, q); err == nil {
		document.Sanitize(&doc)
	}
	return doc, err
}

// serve answers with a text, or with 304 if the browser has it.
func serve(w http.ResponseWriter, r *http.Request, kind string, text []byte) {
	sum := sha256.Sum256(text)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:12])+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}
