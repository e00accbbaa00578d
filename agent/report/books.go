package report

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

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
		switch {
		case only.Network != "" && u.Network != "" && u.Network != only.Network:
		case u.NoBook:
			a.NoBook = u.Text
		default:
			a.Unchecked = append(a.Unchecked, u.Text)
		}
	}
	followed, segment := r.paths.Last(), r.lastSegment()
	a.Omitted += followed.Omitted + segment.omitted()
	a.Findings = append(a.Findings, r.followed(only)...)
	for _, f := range segment.list {
		if only.SelectsFinding(f) {
			f.Node, f.BootID = r.Self.Name, r.Self.Boot
			a.Findings = append(a.Findings, f)
		}
	}
	if only.Network == "" {
		a.Unchecked = append(a.Unchecked, followed.Unchecked...)
	}
	return a
}

// followed returns the findings about where packets go.
func (r *Report) followed(only document.Query) (list []document.Finding) {
	for _, f := range r.paths.Last().Findings {
		if only.SelectsFinding(f) {
			f.Node, f.BootID = r.Self.Name, r.Self.Boot
			list = append(list, f)
		}
	}
	return list
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
			for _, id := range found.Sandboxes() {
				b.Reservation.Sandboxes = append(b.Reservation.Sandboxes, id[:min(len(id), pods.ShortID)])
			}
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

// bookStats returns what /metrics has of the books. A finding says that an address will collide, so those of addresses that have are
// counted apart.
func (r *Report) bookStats(open []detector.Conflict) (stats metrics.BookStats) {
	last := r.Books.Last()
	if !last.Blind { // zeros would say that all is well
		stats.Findings = last.Count()
		stats.Findings[document.InConflict] = 0
		collide := r.colliding(open)
		for _, f := range last.Findings {
			if f.Kind != document.Unheld && collide[ownHolder{f.IP, f.Interface}] {
				stats.Findings[f.Kind]--
				stats.Findings[document.InConflict]++
			}
		}
		if last.NoUnheld && stats.Findings[document.Unheld] == 0 {
			delete(stats.Findings, document.Unheld)
		}
	}
	if followed := r.paths.Last(); len(followed.Counts) > 0 {
		if stats.Findings == nil {
			stats.Findings = make(map[string]int)
		}
		maps.Copy(stats.Findings, followed.Counts)
	}
	if found := r.segment.Load(); found != nil {
		if stats.Findings == nil {
			stats.Findings = make(map[string]int)
		}
		maps.Copy(stats.Findings, found.count)
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

// causes are what this node's books said of confirmed conflicts, at the first reading that began when there were two holders: later they
// say something else. It belongs to the goroutine that owns the parts.
type causes struct {
	awaited map[string]detector.Conflict // by id: the books were not read since then
	waits   atomic.Bool                  // there are some; any goroutine may read it
	said    map[string][]document.Book   // by id
}

// cause follows a conflict.
func (r *Report) cause(e detector.Event) {
	if e.Conflict.State == detector.Confirmed {
		r.follow(0)
	}
	if e.Conflict.State == detector.Resolved {
		r.facts.ended(e.Conflict.ID)
	}
	switch {
	case e.Conflict.State != detector.Confirmed:
		delete(r.causes.awaited, e.Conflict.ID)
	case e.Kind == detector.EventConfirmed && r.causes.said[e.Conflict.ID] == nil:
		r.causes.awaited[e.Conflict.ID] = e.Conflict
		r.causes.waits.Store(true) // before it looks at the last reading: a later one asks
		if !r.keepSaid(e.Conflict, r.Books.Last().At) {
			r.Books.Soon()
		}
	default:
		if _, awaited := r.causes.awaited[e.Conflict.ID]; awaited {
			r.causes.awaited[e.Conflict.ID] = e.Conflict
		}
	}
}

// ReadBooks keeps what the last reading of the books says of conflicts that had two holders when it began, and reports whether there are
// any. Call it after each reading, in the goroutine that owns the parts.
func (r *Report) ReadBooks() (kept bool) {
	read := r.Books.Last().At
	for _, c := range r.causes.awaited {
		kept = r.keepSaid(c, read) || kept
	}
	r.causes.waits.Store(len(r.causes.awaited) > 0)
	return kept
}

// AwaitsBooks reports whether ReadBooks may keep something. Any goroutine may call it.
func (r *Report) AwaitsBooks() bool { return r.causes.waits.Load() }

// keepSaid is ReadBooks of one conflict.
func (r *Report) keepSaid(c detector.Conflict, read time.Time) bool {
	if !read.After(c.SecondSeen) {
		return false
	}
	said := r.recentView().books(c.Key.IP)
	document.Clean(&said, 0, time.Time{})
	r.causes.said[c.ID] = said
	delete(r.causes.awaited, c.ID)
	r.tellFacts(c)
	return true
}

// Kept returns what is kept of these conflicts: what the books said, the facts of holders, and who works on them. It forgets that of others.
// Call it in the goroutine that owns the parts.
func (r *Report) Kept(s detector.Snapshot) (map[string][]document.Book, map[string]map[detector.HolderID]*document.Facts, map[string]*document.Ack) {
	acks := make(map[string]*document.Ack)
	for _, c := range s.Open {
		if a := r.acks[c.ID]; a != nil { // also one that has ended, which a reporter may say again; and while the conflict is verified after a restart
			acks[c.ID] = a
		}
	}
	said, known := make(map[string][]document.Book), make(map[string]map[detector.HolderID]*document.Facts)
	for _, list := range [][]detector.Conflict{s.Open, s.History} {
		for _, c := range list {
			if books := r.causes.said[c.ID]; books != nil {
				said[c.ID] = books
			}
			if facts := r.facts.known[c.ID]; facts != nil {
				known[c.ID] = facts
			}
		}
	}
	r.causes.said, r.facts.known, r.acks = said, known, acks
	return maps.Clone(said), maps.Clone(known), maps.Clone(acks)
}

// Restore restores what an earlier agent has kept. Call it before the agent runs.
func (r *Report) Restore(said map[string][]document.Book, known map[string]map[detector.HolderID]*document.Facts, acks map[string]*document.Ack) {
	maps.Copy(r.acks, acks)
	maps.Copy(r.causes.said, said)
	maps.Copy(r.facts.known, known)
}

// named returns books with the pods of reservations: those of holders may not have been known when the books were read.
func named(said []document.Book, holders []document.Binding) []document.Book {
	said = slices.Clone(said)
	for i, b := range said {
		if b.Reservation == nil || b.Reservation.Pod != nil || b.Reservation.Sandbox == "" {
			continue
		}
		for _, h := range holders {
			if p := h.Pod; p != nil && p.Sandbox == b.Reservation.Sandbox {
				of := *b.Reservation // the other one is read by others
				of.Pod = &document.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
				said[i].Reservation = &of
			}
		}
	}
	return said
}
