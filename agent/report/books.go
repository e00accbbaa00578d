package report

import (
	"context"
	"net/netip"

	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/report/collect"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// Audit implements [api.Backend].
func (r *Report) Audit(ctx context.Context, q document.Query) (document.Audit, error) {
	doc, err := compose(ctx, r, q, cluster.QueryFindings, (*collect.Collection).Audit)
	if err == nil && (q.Node == "" || q.Node == r.Self.Name) {
		last := r.Books.Last()
		doc.At, doc.Error, doc.Books = last.At.Round(0), text(last.Err), bookStatus(last)
	}
	return doc, err
}

// findings returns what the audit of this node has found, and what it has not looked for. Any goroutine may call it.
func (r *Report) findings(q cluster.Query) document.Answer {
	last, only := r.Books.Last(), queryOf(q)
	if q.IP.IsValid() {
		only.IP, only.Prefix = netip.Addr{}, netip.PrefixFrom(q.IP, q.IP.BitLen())
	}
	var is func(audit.Live) bool
	if pods := (document.Query{Namespace: only.Namespace, Pod: only.Pod}); pods != (document.Query{}) {
		is = func(l audit.Live) bool { return pods.SelectsPod(document.NewPod(l.Pod)) }
	}
	a := document.Answer{Omitted: last.Omitted, Checked: last.Checked(only.Network, only.Prefix, is)}
	for _, f := range last.Findings {
		if only.SelectsFinding(f) {
			f.Node, f.BootID = r.Self.Name, r.Self.Boot
			a.Findings = append(a.Findings, f)
		}
	}
	for _, u := range last.Unchecked {
		if only.Network == "" || u.Network == "" || u.Network == only.Network {
			a.Unchecked = append(a.Unchecked, u.Text)
		}
	}
	return a
}

// contest marks the findings of this node whose pods are in conflict. Call it in the goroutine that owns the parts.
func (r *Report) contest(findings []document.Finding) {
	if len(findings) == 0 {
		return // most often, and without a copy of all conflicts
	}
	collide := r.colliding(r.judged())
	for i, f := range findings {
		findings[i].Contested = collide[ownHolder{f.IP, f.Interface}]
	}
}

// ownAudit is what the audit of this node says, without its books. Any goroutine may call it.
func (r *Report) ownAudit() document.Audit {
	c := collect.Collection{Self: r.Self}
	c.Add(r.findings(cluster.Query{}))
	return c.Audit(document.Query{})
}

// bookStatus describes the books of this node.
func bookStatus(last audit.Result) (list []document.BookStatus) {
	for _, book := range last.Books {
		b := document.BookStatus{Kind: book.Book, CNINetwork: book.Network, Store: book.Store, Reserved: len(book.Reservations), Error: text(book.Err)}
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

// books returns what the books of this node say of an address now.
func (v *view) books(ip netip.Addr) (list []document.Book) {
	last := v.Books.Last()
	add := func(b document.Book) {
		b.Node, b.BootID = v.Self.Name, v.Self.Boot
		list = append(list, b)
	}
	if last.Err != nil {
		add(document.Book{Kind: "host-local", Error: last.Err.Error()})
	}
	for _, book := range last.Books {
		b := document.Book{Kind: book.Book, CNINetwork: book.Network, Unreserved: last.Lost[book.Store], Error: text(book.Err)}
		for _, covered := range book.Ranges {
			// The configuration of a network that no pod is in may be left over.
			if covered.Contains(ip) && v.inUse[book.Network] {
				b.Covers, b.Range = true, covered.String()
			}
		}
		if found, reserved := book.Reservations[ip]; reserved {
			b.Reservation = &document.Reservation{Sandbox: found.Sandbox[:min(len(found.Sandbox), pods.ShortID)], Since: found.Since.Round(0)}
			if found.Sandbox != "" {
				b.Reservation.Pod = document.NewPod(v.pods[b.Reservation.Sandbox])
			}
		}
		if b.Reservation != nil || b.Covers || b.Error != "" {
			add(b)
		}
	}
	return list
}

// inConflict is the label of findings whose address has collided: a conflict tells of them, with its own alert.
const inConflict = "in_conflict"

// bookStats returns what /metrics has of the books. A finding says that an address will collide, so those of addresses that have are
// counted apart.
func (r *Report) bookStats(open []detector.Conflict) (stats metrics.BookStats) {
	last := r.Books.Last()
	if !last.Blind { // zeros would say that all is well
		stats.Findings = last.Count()
		stats.Findings[inConflict] = 0
		collide := r.colliding(open)
		for _, f := range last.Findings {
			if f.Kind != document.Unheld && collide[ownHolder{f.IP, f.Interface}] {
				stats.Findings[f.Kind]--
				stats.Findings[inConflict]++
			}
		}
		if last.NoUnheld && stats.Findings[document.Unheld] == 0 {
			delete(stats.Findings, document.Unheld)
		}
	}
	for _, book := range last.Books {
		if left, ok := book.Left(); ok {
			stats.Left = append(stats.Left, metrics.RangeLeft{Book: book.Book, Network: book.Network, Ratio: left})
		}
	}
	return stats
}

// ownHolder is what a finding and a holder of this node have in common.
type ownHolder struct {
	ip            netip.Addr
	interfaceName string
}

// colliding returns this node's holders in the confirmed ones of these conflicts.
func (r *Report) colliding(conflicts []detector.Conflict) map[ownHolder]bool {
	holders := make(map[ownHolder]bool)
	for _, c := range conflicts {
		for _, b := range c.Holders {
			if c.State == detector.Confirmed && r.isOwn(&b) {
				holders[ownHolder{c.Key.IP, b.Holder.InterfaceName}] = true
			}
		}
	}
	return holders
}
