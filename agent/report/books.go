package report

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector/cluster"
)

// Audit implements [api.Backend].
func (r *Report) Audit(ctx context.Context, q api.Query) (api.Audit, error) {
	c, err := r.collect(ctx, q, cluster.QueryFindings)
	if err != nil {
		return api.Audit{}, err
	}
	document := c.Audit(q)
	if q.Node == "" || q.Node == r.Self.Name {
		last := r.Books.Last()
		document.At, document.Error = last.At.Round(0), text(last.Err)
		document.Books = bookStatus(last)
	}
	return document, nil
}

// uncheckedBooks says to another node what the status of this one has: which books there are not, or cannot be read.
func uncheckedBooks(last audit.Result) (list []string) {
	if last.Err != nil {
		list = append(list, "the books, all or some: "+last.Err.Error())
	} else if len(last.Books) == 0 {
		list = append(list, "everything: no network of its CNI configuration has its addresses from host-local")
	}
	for _, book := range last.Books {
		if book.Err != nil {
			list = append(list, fmt.Sprintf("the book of network %s: %v", book.Network, book.Err))
		}
	}
	return list
}

// bookStatus describes the books of this node.
func bookStatus(last audit.Result) (list []api.BookStatus) {
	for _, book := range last.Books {
		b := api.BookStatus{Kind: book.Book, Network: book.Network, Store: book.Store, Reserved: len(book.Reservations), Error: text(book.Err)}
		for _, covered := range book.Ranges {
			b.Ranges = append(b.Ranges, covered.String())
		}
		if left, ok := book.Left(); ok {
			b.LeftPercent = new(100 * left)
		}
		list = append(list, b)
	}
	return list
}

// books returns what the books of this node say of an address. Call it in the goroutine that owns the parts.
func (r *Report) books(ip netip.Addr) (list []cluster.Book) {
	last := r.Books.Last()
	if last.Err != nil {
		list = append(list, cluster.Book{Kind: "host-local", Error: last.Err.Error()})
	}
	for _, book := range last.Books {
		b := cluster.Book{Kind: book.Book, Network: book.Network, Unreserved: last.Lost(book.Store), Error: text(book.Err)}
		for _, covered := range book.Ranges {
			// The configuration of a network that no pod is in may be left over.
			if covered.Contains(ip) && r.inUse(book.Network) {
				b.First, b.Last = covered.First, covered.Last
			}
		}
		found, reserved := book.Reservations[ip]
		if reserved {
			b.Reserved, b.Since, b.Sandbox = true, found.Since, found.Sandbox[:min(len(found.Sandbox), pods.ShortID)]
		}
		for i := range r.Table.All() {
			if b.Sandbox != "" && i.Pod.Sandbox.ID == b.Sandbox {
				b.Pod = i.Pod.Pod
			}
		}
		if reserved || b.First.IsValid() || b.Error != "" {
			list = append(list, b)
		}
	}
	return list
}

// inUse reports whether the primary interface of any pod is in a network of CNI's configuration.
func (r *Report) inUse(network string) bool {
	for i := range r.Table.All() {
		if audit.NetworkOf(i) == network {
			return true
		}
	}
	return false
}

// bookStats returns what /metrics has of the books.
func (r *Report) bookStats(context.Context) (metrics.BookStats, error) {
	last := r.Books.Last()
	var stats metrics.BookStats
	if !last.At.IsZero() && !last.Blind { // zeros would say that all is well
		stats.Findings = last.Count()
	}
	for _, book := range last.Books {
		if left, ok := book.Left(); ok {
			stats.Left = append(stats.Left, metrics.RangeLeft{Book: book.Book, Network: book.Network, Ratio: left})
		}
	}
	return stats, nil
}
