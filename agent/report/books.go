package report

import (
	"context"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/report/collect"
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

// findings returns what the audit of this node has found, and what it has not looked for.
func (r *Report) findings(q cluster.Query) cluster.Document {
	last := r.Books.Last()
	prefix := q.Only.Prefix
	if q.IP.IsValid() {
		prefix = netip.PrefixFrom(q.IP, q.IP.BitLen())
	}
	only := api.Query{Prefix: prefix, Namespace: q.Only.Namespace, Pod: q.Only.Pod, Network: q.Only.Network}
	var is func(audit.Live) bool
	if pods := (api.Query{Namespace: only.Namespace, Pod: only.Pod}); pods != (api.Query{}) {
		is = func(l audit.Live) bool { return pods.SelectsBinding(api.Binding{Pod: api.NewPod(l.Pod)}) }
	}
	d := cluster.Document{Omitted: last.Omitted, Checked: last.Checked(only.Network, prefix, is)}
	d.Findings = slices.DeleteFunc(slices.Clone(last.Findings), func(f cluster.Finding) bool {
		return !only.SelectsFinding(collect.NewFinding(r.Self, f))
	})
	for _, u := range last.Unchecked {
		if only.Network == "" || u.Network == "" || u.Network == only.Network {
			d.Unchecked = append(d.Unchecked, u.Text)
		}
	}
	return d
}

// ownAudit is what the audit of this node says, without its books.
func (r *Report) ownAudit() api.Audit {
	c := collect.Collection{Self: r.Self}
	c.Add(cluster.Answer{Member: r.Self, Document: r.findings(cluster.Query{})})
	return c.Audit(api.Query{})
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
	if !last.Blind { // zeros would say that all is well
		stats.Findings = last.Count()
		if last.NoUnheld && stats.Findings[cluster.Unheld] == 0 {
			delete(stats.Findings, cluster.Unheld)
		}
	}
	for _, book := range last.Books {
		if left, ok := book.Left(); ok {
			stats.Left = append(stats.Left, metrics.RangeLeft{Book: book.Book, Network: book.Network, Ratio: left})
		}
	}
	return stats, nil
}
