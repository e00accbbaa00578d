package metrics

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
)

const (
	// pageInterval is how long a page is reused.
	pageInterval = time.Second
	// pagesPerSecond and pagesBurst limit the CPU time for clients that scrape without a pause. With
	// 128 connections a client waits for 1.3 s.
	pagesPerSecond, pagesBurst = 100, 100
)

// variant is a form of a page. There are 16: two formats, four ways to escape names, with and without
// compression.
type variant struct {
	format expfmt.Format
	gzip   bool
}

var formats = []expfmt.Format{expfmt.FmtOpenMetrics_1_0_0, expfmt.FmtText}

// pages serves /metrics. It gathers and encodes at most once a second for all clients.
type pages struct {
	pace   *rate.Limiter
	flight singleflight.Group // by variant
	gather prometheus.GathererFunc
	encode http.Handler // of families and err

	mu       sync.Mutex
	gathered time.Time
	families []*dto.MetricFamily
	err      error
	made     map[variant]*page
}

func newPages(gather prometheus.GathererFunc, opts promhttp.HandlerOpts) *pages {
	p := &pages{pace: rate.NewLimiter(pagesPerSecond, pagesBurst), gather: gather}
	opts.AcceptedFormats = formats
	p.encode = promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return p.families, p.err
	}), opts)
	return p
}

// ServeHTTP implements [http.Handler].
func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.pace.Wait(r.Context()) != nil {
		return // the client has disconnected
	}
	v := variant{
		format: expfmt.NegotiateAccept(r.Header, formats...),
		gzip:   strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"),
	}
	// Another goroutine makes the page: other clients may wait for it when this one has disconnected.
	select {
	case made := <-p.flight.DoChan(fmt.Sprint(v), func() (any, error) { return p.page(v), nil }):
		made.Val.(*page).copyTo(w)
	case <-r.Context().Done():
	}
}

// page returns a page that is at most a second old.
func (p *pages) page(v variant) *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == nil || time.Since(p.gathered) >= pageInterval {
		p.families, p.err = p.gather()
		p.gathered, p.made = time.Now(), make(map[variant]*page)
	}
	if p.made[v] == nil {
		request := &http.Request{Header: http.Header{"Accept": {string(v.format)}}}
		if v.gzip {
			request.Header.Set("Accept-Encoding", "gzip")
		}
		p.made[v] = &page{header: make(http.Header), code: http.StatusOK}
		p.encode.ServeHTTP(p.made[v], request)
	}
	return p.made[v]
}

// page is a response that is sent to many clients. It implements [http.ResponseWriter].
type page struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (p *page) Header() http.Header { return p.header }

func (p *page) WriteHeader(code int) { p.code = code }

func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }

func (p *page) copyTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Length", strconv.Itoa(p.body.Len()))
	w.WriteHeader(p.code)
	_, _ = w.Write(p.body.Bytes()) // fails if the client has disconnected
}
