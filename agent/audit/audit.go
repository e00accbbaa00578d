// Package audit compares what the node's books have reserved with the addresses that its pods have on the wire. It finds
// the addresses that will collide before a second pod has them, and the reservations that nobody holds.
//
// Books may be wrong, late or hostile, and change while they are read. So a finding needs readings that agree, and a runtime
// that says meanwhile that the pod runs.
package audit

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// DefaultGrace is the default of [Options.Grace]: kubelet gives up an ADD after four minutes.
const DefaultGrace = 5 * time.Minute

// Options configures an [Audit]. All fields must be set.
type Options struct {
	Log   *slog.Logger
	Books *books.IPAM // nil for none
	// Grace is how long nobody must hold a reservation before that is a finding.
	Grace time.Duration
	// Sandboxes returns the runtime's last list, Relist requests a new one.
	Sandboxes func() pods.Sandboxes
	Relist    func()
	// Node returns what is known of the node's interfaces.
	Node func(ctx context.Context) (Node, error)
	// Done is called after each reading.
	Done func(ctx context.Context)
}

// Audit reads the books and compares them. Run it once; the other methods are safe for concurrent use.
type Audit struct {
	opts Options
	soon chan struct{}

	mu   sync.Mutex
	last Result

	// The rest is Run's own.
	comparison comparison
	compared   reading            // the last one
	unwatched  error              // of the last one
	known      map[candidate]bool // the findings that were logged
	lines      *rate.Limiter
}

// Result is what the last reading found. It does not change.
type Result struct {
	// At is when the books were read; zero before the first time.
	At    time.Time
	Books []*books.Reserved
	// Err is why CNI's configuration cannot be read, or not all of it.
	Err      error
	Findings []document.Finding
	Omitted  int
	// Lost has, by store, how many pods were given addresses that the book has not reserved for them any more.
	Lost map[string]int
	// Unchecked says what was not looked for, and why. Blind: that is everything. NoUnheld: new reservations that nobody holds.
	Unchecked       []Unchecked
	Blind, NoUnheld bool

	live []Live
}

// New returns an Audit.
func New(opts Options) *Audit {
	a := &Audit{opts: opts, soon: make(chan struct{}, 1), comparison: comparison{grace: opts.Grace}, lines: rate.NewLimiter(rate.Every(10*time.Second), 20)}
	why := "the agent has not read the books yet"
	if opts.Books == nil {
		why = "the agent reads no books (--cni-conf-dir off)"
	}
	a.last = Result{Unchecked: []Unchecked{{Text: "everything: " + why}}, Blind: true, NoUnheld: true}
	return a
}

// Enabled reports whether there are books to read.
func (a *Audit) Enabled() bool { return a.opts.Books != nil }

// Last returns the last result.
func (a *Audit) Last() Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// Run reads and compares until ctx ends.
func (a *Audit) Run(ctx context.Context) {
	if a.opts.Books == nil {
		return
	}
	defer a.opts.Books.Close()
	for at, soonest := time.Now(), time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-a.soon:
			if soonest.Before(at) {
				at = soonest
			}
			continue
		case <-time.After(time.Until(at)):
		}
		began := time.Now()
		waiting, took, rest := a.read(ctx)
		a.opts.Done(ctx)
		if waiting {
			a.opts.Relist()
			took = 0 // the next reading decides
		}
		pause := max(min(share*took, slowest), every)
		soonest, at = began.Add(pause), began.Add(max(pause, rest))
	}
}

// Soon has the books read sooner than after a rest. It does not block.
func (a *Audit) Soon() {
	select {
	case a.soon <- struct{}{}:
	default:
	}
}

// read reads the books, and compares if something has changed. It reports whether a new list of sandboxes is needed, how long it worked, and for
// how long nothing is to be decided if nothing changes.
func (a *Audit) read(ctx context.Context) (waiting bool, took, rest time.Duration) {
	r := reading{at: time.Now()}
	r.books, r.unread = a.opts.Books.Read()
	took = time.Since(r.at)
	unwatched := a.opts.Books.Unwatched()
	if unwatched != nil && a.unwatched == nil {
		a.opts.Log.Warn("all of the node's books is read again and again, because a folder of them cannot be watched; is fs.inotify.max_user_watches or "+
			"fs.inotify.max_user_instances too small?", "error", unwatched)
	}
	a.unwatched = unwatched
	if len(r.books) > 0 {
		var err error
		if r.Node, err = a.opts.Node(ctx); err != nil {
			a.comparison.restart()
			return false, took, 0 // it is starting, or stopping
		}
		r.sandboxes = a.opts.Sandboxes()
		if a.comparison.holds(r.at) && r.same(&a.compared) {
			if unwatched == nil {
				took = 0 // it reads everything seldom
			}
			a.unchanged(r.at)
			return false, took, a.comparison.rest(r.at)
		}
	}
	began := time.Now()
	result := Result{At: r.at, Books: r.books}
	if !errors.Is(r.unread, books.ErrNoFolder) { // a node may have no network of CNI
		result.Err = r.unread
	}
	if len(r.books) > 0 {
		result.Findings, result.Omitted, waiting = a.comparison.add(&r)
		result.live, result.Lost = r.Live, countLost(result.Findings)
	}
	result.Unchecked, result.Blind = a.unchecked(&r, r.unread)
	result.NoUnheld = r.Hidden != "" || !slices.ContainsFunc(r.books, r.seeksUnheld)
	a.compared = r
	a.log(result.Findings)
	a.mu.Lock()
	a.last = result
	a.mu.Unlock()
	if len(r.books) == 0 {
		rest = atRest
	}
	return waiting, took + time.Since(began), rest
}

// unchanged says that the last result is that of now, too.
func (a *Audit) unchanged(now time.Time) {
	if findings := a.last.Findings; len(a.known) < len(findings) && a.lines.Tokens() >= 1 {
		a.log(findings)
	}
	a.mu.Lock()
	a.last.At = now
	a.mu.Unlock()
}

// log logs what is found for the first time, and what has ended.
func (a *Audit) log(findings []document.Finding) {
	now := make(map[candidate]bool, len(findings))
	for _, f := range findings {
		k := candidateOf(&f)
		if !a.known[k] && !a.lines.Allow() {
			continue // later
		}
		if now[k] = true; a.known[k] {
			continue
		}
		level, text := slog.LevelWarn, "an address is in use and not reserved: another pod may get it; \"dupip audit\" says how to repair it"
		switch f.Kind {
		case document.Mismatched:
			text = "an address is in use and reserved for another pod; \"dupip audit\" says how to repair it"
		case document.Unheld:
			level, text = slog.LevelInfo, "an address is reserved for a sandbox that does not exist any more; \"dupip audit\" says how to release it"
		}
		a.opts.Log.Log(context.Background(), level, text, "ip", f.IP, "cniNetwork", f.CNINetwork, "book", f.Book, "pod", f.Pod.String(),
			"interface", f.Interface, "reservedFor", f.ReservedFor)
	}
	maps.DeleteFunc(a.known, func(k candidate, _ bool) bool { return now[k] })
	if ended := len(a.known); ended > 0 && a.lines.Allow() {
		a.opts.Log.Info("findings of the audit ended, or cannot be checked now", "ended", ended, "findings", len(findings))
	}
	a.known = now
}

// kinds are those of the findings of an agent.
var kinds = []string{document.Mismatched, document.Unreserved, document.Unheld}

// Count counts findings by kind; all kinds are there.
func (r *Result) Count() map[string]int {
	counts := make(map[string]int)
	for _, kind := range kinds {
		counts[kind] = 0
	}
	for _, f := range r.Findings {
		counts[f.Kind]++
	}
	return counts
}

// countLost counts, by store, the pods that were given addresses which a book has not reserved for them any more. It counts pods, because
// the removal of one pod frees all addresses that it has.
func countLost(findings []document.Finding) map[string]int {
	type pod struct{ store, interfaceName string }
	seen, lost := make(map[pod]bool), make(map[string]int)
	for _, f := range findings {
		if p := (pod{f.Store, f.Interface}); f.Kind != document.Unheld && f.Given == detector.GivenYes && !seen[p] {
			seen[p] = true
			lost[f.Store]++
		}
	}
	return lost
}
