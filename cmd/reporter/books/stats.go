package books

import (
	"fmt"
	"net/http"

	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/document"
)

// Stats is what /metrics has of the books: nothing while another replica reads them.
type Stats struct {
	// Findings counts the findings by kind, all kinds that were looked for; those of addresses that have collided by [document.InConflict].
	Findings map[string]int
	// Read says of each book that the API server has whether it is read.
	Read map[string]bool
	Left []PoolLeft
}

// PoolLeft is which part of a pool of a book is left, from 0 to 1.
type PoolLeft struct {
	Book, Pool string
	Ratio      float64
}

// kinds are those that are looked for in Pods and Nodes, ipamKinds in the books of IPAMs.
var (
	kinds     = []string{document.Deleted, document.Overlapping, document.Twice, document.Unlisted, document.InConflict}
	ipamKinds = []string{document.Misbooked, document.Stale, document.Mismatched, document.Unreserved, document.Unheld}
)

// Stats returns the present figures.
func (b *Books) Stats() (s Stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running {
		return s
	}
	s.Findings, s.Read = make(map[string]int), map[string]bool{document.Kubernetes: current(b.pods.source, b.nodes.source)}
	zero := func(kinds []string) {
		for _, kind := range kinds {
			s.Findings[kind] += 0
		}
	}
	if s.Read[document.Kubernetes] && !b.at.IsZero() { // zeros would say that all is well
		zero(kinds)
	}
	for _, book := range b.ipams {
		if s.Read[book.name] = current(book.sources...); book.sources[0].state == absent {
			delete(s.Read, book.name)
		}
		if !s.Read[book.name] {
			continue
		}
		if s.Read[document.Kubernetes] && !b.at.IsZero() {
			zero(ipamKinds)
		}
		for pool, left := range book.pools() {
			if left.All > 0 && len(s.Left) < maxPools {
				s.Left = append(s.Left, PoolLeft{book.name, pool, max(left.Left, 0) / left.All})
			}
		}
	}
	for _, f := range b.found {
		if f.Contested && f.Kind != document.Unheld {
			f.Kind = document.InConflict
		}
		s.Findings[f.Kind]++
	}
	return s
}

// maxPools bounds the pools of all books in /metrics.
const maxPools = 64

// checked returns which books are compared, and why others are not.
func (b *Books) checked() (names, unchecked []string) {
	say := func(book string, list ...*source) {
		for _, s := range list {
			switch {
			case s.state == watched && len(s.broken) > 0:
				unchecked = append(unchecked, fmt.Sprintf("book %s: %d of %s cannot be read", book, len(s.broken), s.name))
				continue
			case s.state == watched:
				continue
			case s.state == absent && b.opts.Auto:
				return
			case s.state == absent:
				unchecked = append(unchecked, fmt.Sprintf("book %s: the API server has no resource %s", book, s.name))
			case kube.Is(s.err, http.StatusForbidden):
				unchecked = append(unchecked, fmt.Sprintf("book %s: the reporter may not read %s", book, s.name))
			case s.err != nil:
				unchecked = append(unchecked, fmt.Sprintf("book %s: reading %s failed: %v", book, s.name, s.err))
			default:
				unchecked = append(unchecked, fmt.Sprintf("book %s: it is being read", book))
			}
			return
		}
		names = append(names, book)
	}
	say(document.Kubernetes, b.pods.source, b.nodes.source)
	for _, book := range b.ipams {
		say(book.name, book.sources...)
	}
	silent := 0
	for _, a := range b.wire.agents {
		if a.at.IsZero() {
			silent++
		}
	}
	for id := range b.wire.live {
		if b.wire.agents[id] == nil {
			silent++
		}
	}
	if silent > 0 {
		unchecked = append(unchecked, fmt.Sprintf("the API server's books of %d nodes, whose agents have not said yet who has which address", silent))
	}
	return names, unchecked
}
