package paths

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/bounds"
)

const (
	// MaxRanges bounds the ranges about which nodes are asked.
	MaxRanges = 64
	// MaxPods bounds the pods of this node that are looked up, and those of answers.
	MaxPods = 1024
	// askAgain is after how long a node is asked again at the latest.
	askAgain = time.Minute
)

var (
	tooManyRanges = bounds.New("too many ranges that routes divert")
	tooManyPods   = bounds.New("too many pods that routes may divert")
)

// Range is addresses of a node's pods, by NodeID.
type Range struct {
	Node   string
	Prefix netip.Prefix
}

// diversion is an address of a live pod whose packets this node does not send there, or attracts, by what its own kernel says. The pods are
// its own, and those that other nodes have in a Range: that of a shadow, or of a route that takes an address which this node keeps.
type diversion struct {
	pod   document.Binding
	route document.Route
	since time.Time
	found *document.Finding // after two looks
}

// inquiry is what a node says of its pods in a range.
type inquiry struct {
	wanted, asked, answered time.Time
	wait                    time.Duration // after asked
	pods                    []document.Binding
}

type diversions struct {
	all    map[netip.Addr]*diversion
	ranges map[Range]*inquiry
	looks  int // in which there was something to look at
}

func newDiversions() diversions {
	return diversions{all: make(map[netip.Addr]*diversion), ranges: make(map[Range]*inquiry)}
}

// due returns when the next pass is: sooner than a whole one if a second look is.
func (d *diversions) due(whole, now time.Time) time.Time {
	for _, q := range d.ranges {
		if at := q.asked.Add(q.wait); !q.asked.IsZero() && q.wait < every && at.Before(whole) {
			whole = at
		}
	}
	for _, one := range d.all {
		if at := one.since.Add(rest); one.found == nil && now.Sub(one.since) < every && at.Before(whole) {
			whole = at
		}
	}
	return whole
}

// diverts returns which of the routes to an address condemns this node, and how; nil for none. own is the binding of its own pod, nil for one
// of that node's. No route of the node leads to pods without an end there (macvlan), or by a bridge on which it has no address.
func diverts(routes []document.Route, own *document.Binding, holder string) (r *document.Route, how string) {
	for _, r := range routes {
		isNode := r.To == document.ToNode
		isRelay := isNode && r.ToNodeID() == holder
		switch {
		case r.To == document.ToSelf:
			return &r, document.EndsAtSelf
		case own != nil && own.Ifindex != 0 && isNode && r.Prefix.Bits() > 0:
			return &r, document.EndsAtNode
		case r.Ends:
			return &r, document.EndsAtPods
		case own == nil && r.Proxy != "" && !isRelay:
			return &r, r.ProxyBy
		}
	}
	return nil, ""
}

// collect finds about which ranges nodes have to be asked.
func (p *Paths) collect(v *View, leases []cluster.Lease, now time.Time) {
	want := func(r Range) {
		switch q := p.ranges[r]; {
		case q != nil:
			q.wanted = now
		case len(p.ranges) == MaxRanges:
			tooManyRanges.Exceeded(1)
		default:
			p.ranges[r] = &inquiry{wanted: now}
		}
	}
	for _, r := range v.Shadows {
		want(r)
	}
	others := 0
	for _, l := range leases {
		node := l.Binding.Holder.ID.Node
		if l.Key.Network != config.DefaultNetwork || node == p.opts.Self || l.Binding.Evidence == detector.Host || v.Own[l.Key.IP] {
			continue
		}
		others++
		switch r, how := diverts(v.Routes(l.Key.IP), nil, node); {
		case r == nil:
		case how != document.EndsAtSelf && how != document.EndsAtPods || !r.Prefix.IsValid():
			want(Range{node, netip.PrefixFrom(l.Key.IP, l.Key.IP.BitLen())})
		default:
			want(Range{node, r.Prefix})
		}
	}
	if p.looks++; len(v.Pods)+len(v.Shadows)+others == 0 {
		p.looks = 0
	}
	maps.DeleteFunc(p.ranges, func(_ Range, q *inquiry) bool {
		return !q.wanted.Equal(now) && (len(leases) < maxKept || now.Sub(q.wanted) > kept) // else other leases are looked at in other passes
	})
}

// ask asks nodes about ranges, when it is time to: those first that nobody was asked about for the longest time.
func (p *Paths) ask(ctx context.Context, now time.Time) {
	for _, r := range slices.SortedFunc(maps.Keys(p.ranges), func(a, b Range) int { return p.ranges[a].asked.Compare(p.ranges[b].asked) }) {
		q := p.ranges[r]
		if now.Sub(q.asked) < q.wait {
			continue
		}
		questions := p.questions(r.Node)
		answer, ok := questions.ask(ctx, cluster.QueryBindings, r.Node, r.Prefix)
		if questions.refused {
			tooManyAsked.Exceeded(1)
			continue // in a later pass
		}
		q.asked, q.wait = now, min(max(2*q.wait, rest), askAgain)
		switch {
		case ok:
			q.answered = now
			q.pods = slices.DeleteFunc(answer.Bindings, func(b document.Binding) bool { return !r.Prefix.Contains(b.IP) || !hasToBeRouted(b) })
			room := MaxPods
			for _, other := range p.ranges {
				if other != q {
					room -= len(other.pods)
				}
			}
			if n := len(q.pods) - room; n > 0 {
				tooManyPods.Exceeded(n)
				q.pods = q.pods[:room]
			}
		case now.Sub(q.answered) > kept:
			q.pods = nil
		}
	}
}

// look looks where packets to pods go.
func (p *Paths) look(v *View, now time.Time) {
	before := p.all
	p.all = make(map[netip.Addr]*diversion)
	look := func(b document.Binding, own *document.Binding, said time.Time) (sure bool) {
		routes := v.Routes(b.IP)
		r, how := diverts(routes, own, b.NodeID())
		if r == nil {
			return true
		}
		d := before[b.IP]
		if d == nil || d.pod.ID() != b.ID() || d.route != *r {
			d = &diversion{route: *r, since: now}
		}
		if d.pod = b; d.found != nil || now.Sub(d.since) >= rest && said.Sub(d.since) >= rest {
			d.found = d.finding(how, len(routes) > 1)
		}
		p.all[b.IP] = d
		return d.found != nil
	}
	tooManyPods.Exceeded(max(len(v.Pods)-MaxPods, 0))
	for _, b := range v.Pods[:min(len(v.Pods), MaxPods)] {
		if hasToBeRouted(b) {
			look(b, &b, now)
		}
	}
	for _, q := range p.ranges {
		sure, some := true, false
		for _, b := range q.pods {
			if !v.Own[b.IP] {
				sure = look(b, nil, q.answered) && sure
				some = some || p.all[b.IP] != nil
			}
		}
		switch {
		case !sure && q.asked.Equal(now) && q.answered.Equal(now):
			q.wait = rest
		case some:
			q.wait = min(q.wait, again)
		}
	}
}

// finding is about an address whose packets this node diverts.
func (d *diversion) finding(how string, partly bool) *document.Finding {
	f := &document.Finding{
		Kind: document.Diverted, IP: d.pod.IP, Book: "routes", Since: d.since.Round(0), End: how, Partly: partly, HeldBy: cluster.NodeName(d.pod.NodeID()),
		Device: d.route.Device, Route: d.route.Prefix, Table: d.route.Table, Protocol: d.route.Protocol,
	}
	f.Pod = d.pod.Pod
	if how == document.EndsAtNode {
		f.Through = []string{d.route.ToNode}
	}
	if d.route.Proxy != "" && how == d.route.ProxyBy {
		f.Device = d.route.Proxy
	}
	return f
}
