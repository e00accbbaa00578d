// Package paths looks where packets to pods go. This node may divert them itself, see [diversion]. Those to the addresses that it keeps
// are followed from node to node, by the routes of their kernels: a route that leads to another node than the holder's is a wrong book,
// too, of who writes the routes.
//
// Most often the next hop is the holder's node, and nobody else is asked.
package paths

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/bounds"
)

const (
	// every is the time between two whole passes, and at least that between the two that agree. The lookups of a pass take one part in
	// share of the time. When routes have changed, the node looks at its own at once, and then no sooner than after rest: that takes one
	// part in shareChanged.
	every, share       = 10 * time.Second, 500
	rest, shareChanged = time.Second, 100
	// again is after how long the routes of other nodes are asked for again if this node's have not changed; of packets that are not
	// known to go wrong twice as long each time, up to seldom. What is found is kept for so long if nobody answers.
	again, seldom, kept = 30 * time.Second, 10 * time.Minute, 5 * time.Minute
	// settled is after how many passes there would be findings.
	settled = 3
	// maxKept bounds the addresses of a pass: a node with 50 pods keeps about 150.
	maxKept = 4096
	// maxAsked bounds the questions of a pass to other nodes, maxAskedOf those to one node, and maxAskedAbout those about addresses of one
	// node, whose pods may say that they have many. Second looks come first, then what nobody was asked about for the longest time.
	maxAsked, maxAskedOf, maxAskedAbout = 16, 12, 8
	// maxFindings bounds the findings that are told.
	maxFindings = 64
)

var tooManyAsked = bounds.New("too many routes to follow at once")

// Options configures [Paths]. All fields must be set.
type Options struct {
	Log  *slog.Logger
	Self string // NodeID
	// Kept returns leases that this node keeps, of addresses that one holder has.
	Kept func(most int) []cluster.Lease
	// View returns what this node knows now. changed says that its routes may have changed. It fails if the agent is starting or stopping.
	View func(ctx context.Context, changed bool) (*View, error)
	// Ask asks the agent of another node, by NodeID, about addresses.
	Ask func(ctx context.Context, kind cluster.QueryKind, node string, about netip.Prefix) (document.Answer, bool)
}

// View is what this node knows at one time.
type View struct {
	// Pods are the bindings of the default network of this node's pods that nobody else has. Own has all addresses that are on this node.
	Pods []document.Binding
	Own  map[netip.Addr]bool
	// Routes returns the routes of this node to an address, none if they are not known.
	Routes func(netip.Addr) []document.Route
	// Shadows are what its routes take from ranges that others of them send to nodes.
	Shadows []Range
}

// Paths follows packets. Run it once; Last is safe for concurrent use.
type Paths struct {
	opts  Options
	lines *rate.Limiter

	mu   sync.Mutex
	last Result

	// Run's own.
	doubts    map[detector.Key]*doubt
	passes    int            // in which routes led to nodes
	unchecked []string       // by the last whole pass
	asked     map[string]int // since the last whole pass, see [Paths.questions]
	diversions
}

// Result is what the last pass found. It does not change.
type Result struct {
	// Counts has the number of findings by kind, of those kinds of which there would be findings if there were any.
	Counts    map[string]int
	Findings  []document.Finding
	Omitted   int
	Unchecked []string // what was not looked for, and why
}

// doubt is an address whose packets do not go straight to its holder's node.
type doubt struct {
	holder detector.HolderID
	routes []document.Route // of this node
	end    *end             // nil if they come there by a relay, or nobody knows
	since  time.Time        // when it was seen first
	seen   time.Time        // and last
	asked  time.Time        // for the routes of other nodes
	wait   time.Duration    // until they are asked again
	found  *document.Finding
}

// isSecond reports whether packets were seen to go wrong once.
func (d *doubt) isSecond() bool { return d.end != nil && d.wait == every }

// New returns Paths.
func New(opts Options) *Paths {
	return &Paths{opts: opts, lines: rate.NewLimiter(rate.Every(10*time.Second), 20), doubts: make(map[detector.Key]*doubt), asked: make(map[string]int), diversions: newDiversions()}
}

// Last returns the last result.
func (p *Paths) Last() Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Run looks and follows packets until ctx ends. changed has a value when routes have changed.
func (p *Paths) Run(ctx context.Context, changed <-chan struct{}) {
	began := time.Now()
	whole, free := began.Add(every), began.Add(rest) // when the next whole pass is, and when changes matter again
	for stale := true; ; {
		events, wake := changed, p.due(whole, time.Now())
		if earliest := began.Add(rest); wake.Before(earliest) {
			wake = earliest
		}
		isDue := true
		if time.Now().Before(free) {
			if events = nil; free.Before(wake) {
				wake, isDue = free, false
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(wake)):
			if !isDue {
				continue
			}
		case _, watched := <-events:
			if stale = true; !watched {
				changed = nil
			}
		}
		began = time.Now()
		isWhole := !began.Before(whole)
		stale = stale || changed == nil && isWhole // nobody tells of changes
		took, err := p.pass(ctx, began, isWhole, stale)
		stale = stale && err != nil
		free = time.Now().Add(max(min(shareChanged*took, time.Minute), rest))
		if isWhole {
			whole = began.Add(max(every, min(share*took, time.Minute)))
		}
	}
}

// pass looks at all addresses once, and follows packets if it is a whole one. It returns how long that took, without what other nodes were
// asked.
func (p *Paths) pass(ctx context.Context, now time.Time, whole, changed bool) (took time.Duration, err error) {
	began := time.Now()
	v, err := p.opts.View(ctx, changed)
	if err != nil {
		return 0, err
	}
	leases, known, lookup := p.opts.Kept(maxKept), make(map[netip.Addr][]document.Route), v.Routes
	v.Routes = func(ip netip.Addr) []document.Route { // once each
		routes, ok := known[ip]
		if !ok {
			routes = lookup(ip)
			known[ip] = routes
		}
		return routes
	}
	if whole {
		p.asked = make(map[string]int)
	}
	p.collect(v, leases, now)
	took = time.Since(began)
	p.ask(ctx, now)
	began = time.Now()
	p.look(v, now)
	if !whole {
		p.tell()
		return took + time.Since(began), nil
	}
	own := v.Routes
	seen := make(map[detector.Key]bool)
	hidden, policy, led := 0, false, false
	for _, l := range leases {
		holder := l.Binding.Holder.ID
		if l.Key.Network != config.DefaultNetwork || holder.Node == p.opts.Self {
			continue
		}
		routes := own(l.Key.IP)
		policy = policy || slices.ContainsFunc(routes, func(r document.Route) bool { return r.Policy })
		if slices.ContainsFunc(routes, isHidden) {
			hidden++
		}
		led = led || slices.ContainsFunc(routes, func(r document.Route) bool { return r.To == document.ToNode })
		// A node without a route of its own to other nodes' pods sends nothing astray.
		strays := func(r document.Route) bool { return r.To == document.ToNode && r.ToNodeID() != holder.Node }
		if !slices.ContainsFunc(routes, strays) {
			continue
		}
		seen[l.Key] = true
		d := p.doubts[l.Key]
		if d == nil && len(p.doubts) < maxKept || d != nil && (d.holder != holder || !slices.Equal(d.routes, routes)) {
			p.doubts[l.Key] = &doubt{holder: holder, routes: routes}
		}
	}
	took += time.Since(began)
	if len(leases) < maxKept { // else others are looked at in other passes
		maps.DeleteFunc(p.doubts, func(k detector.Key, _ *doubt) bool { return !seen[k] })
	}
	if !led {
		p.passes = 0
	} else {
		p.passes++
	}
	for _, key := range slices.SortedFunc(maps.Keys(p.doubts), p.order) {
		p.follow(ctx, key.IP, p.doubts[key], now)
	}
	p.unchecked = nil
	if policy {
		p.unchecked = append(p.unchecked, "routes to pods of other nodes: rules of the node (ip rule) look at more than the destination")
	}
	if hidden > 0 {
		p.unchecked = append(p.unchecked, "routes to pods of other nodes: Cilium's BPF programs send packets on, and not the node's routes")
	}
	p.tell()
	return took, nil
}

// order is that in which other nodes are asked.
func (p *Paths) order(x, y detector.Key) int {
	a, b := p.doubts[x], p.doubts[y]
	switch {
	case a.isSecond() == b.isSecond():
		return a.asked.Compare(b.asked)
	case a.isSecond():
		return -1
	}
	return 1
}

// isHidden reports whether a packet goes on by what a BPF program says, and not by a route.
func isHidden(r document.Route) bool {
	return r.To == document.ToDevice && strings.HasPrefix(r.Device, "cilium_")
}

// follow follows the packets to an address, when it is time to.
func (p *Paths) follow(ctx context.Context, ip netip.Addr, d *doubt, now time.Time) {
	if now.Sub(d.asked) < d.wait {
		return
	}
	q, about := p.questions(d.holder.Node), netip.PrefixFrom(ip, ip.BitLen())
	w := walk{self: p.opts.Self, holder: d.holder.Node, routes: map[string][]document.Route{p.opts.Self: d.routes}, ask: func(node string) []document.Route {
		answer, _ := q.ask(ctx, cluster.QueryStories, node, about)
		return answer.Routes
	}}
	found := w.follow(p.opts.Self, nil)
	agreed := found.is(d.end)
	var holder *document.Binding
	if agreed {
		holder, w.silent = q.holder(ctx, ip, d.holder)
	}
	if q.refused && !q.first {
		tooManyAsked.Exceeded(1)
		return // in the next pass
	}
	d.asked = now
	switch {
	case agreed && holder != nil:
		d.seen, d.wait, d.found = now, again, p.finding(*holder, d)
	case (found == nil || agreed) && w.silent && d.end != nil && now.Sub(d.seen) < kept:
		d.wait = again
	case agreed: // the address is not one that has to be routed
		d.wait, d.found = min(max(again, 2*d.wait), seldom), nil
	case found != nil:
		d.end, d.since, d.seen, d.wait, d.found = found, now, now, every, nil
	default:
		d.end, d.wait, d.found = nil, min(max(again, 2*d.wait), seldom), nil
	}
}

// questions are those about one address. They are counted by who is asked, by whose the address is, and all.
type questions struct {
	paths          *Paths
	about          string // NodeID
	asked          map[string]int
	first, refused bool // first: nothing was asked before in this pass
}

func (p *Paths) questions(about string) *questions {
	return &questions{paths: p, about: about, asked: p.asked, first: p.asked[""] == 0}
}

func (q *questions) ask(ctx context.Context, kind cluster.QueryKind, node string, prefix netip.Prefix) (document.Answer, bool) {
	about, to := "about "+q.about, "to "+node
	if q.asked[""] == maxAsked || q.asked[about] == maxAskedAbout || q.asked[to] == maxAskedOf {
		q.refused = true
		return document.Answer{}, false
	}
	q.asked[""]++
	q.asked[about]++
	q.asked[to]++
	return q.paths.opts.Ask(ctx, kind, node, prefix)
}

// holder asks the node of a holder whether the address has to be routed there: what a pod has taken for itself nobody has to route, but that
// which its network plugin gave it, while it runs. silent: it does not answer.
func (q *questions) holder(ctx context.Context, ip netip.Addr, id detector.HolderID) (b *document.Binding, silent bool) {
	answer, ok := q.ask(ctx, cluster.QueryBindings, id.Node, netip.PrefixFrom(ip, ip.BitLen()))
	i := slices.IndexFunc(answer.Bindings, func(b document.Binding) bool { return b.IP == ip && b.ID() == id && hasToBeRouted(b) })
	if i < 0 {
		return nil, !ok
	}
	return &answer.Bindings[i], false
}

func hasToBeRouted(b document.Binding) bool {
	return b.Network == config.DefaultNetwork && b.Given == detector.GivenYes && b.Pod != nil && !b.Pod.IsContainer() && !b.Pod.Stopped
}

// finding is about an address whose packets do not come to its holder.
func (p *Paths) finding(b document.Binding, d *doubt) *document.Finding {
	f := &document.Finding{
		Kind: document.Misrouted, IP: b.IP, Book: "routes", Since: d.since.Round(0), End: d.end.how, Partly: d.end.partly, HeldBy: cluster.NodeName(d.holder.Node),
	}
	f.Pod = b.Pod
	for _, node := range d.end.through {
		f.Through = append(f.Through, cluster.NodeName(node))
	}
	return f
}

// tell makes the result of a pass, and logs what is new. What this node diverts nobody has to follow.
func (p *Paths) tell() {
	r := Result{Counts: make(map[string]int), Unchecked: p.unchecked}
	if p.looks >= 2 {
		r.Counts[document.Diverted] = 0
	}
	if p.passes >= settled {
		r.Counts[document.Misrouted] = 0
	}
	add := func(f *document.Finding) {
		if f == nil {
			return
		}
		if r.Counts[f.Kind]++; r.Counts[f.Kind] > maxFindings {
			r.Omitted++
			return
		}
		r.Findings = append(r.Findings, *f)
	}
	for _, ip := range slices.SortedFunc(maps.Keys(p.all), netip.Addr.Compare) {
		add(p.all[ip].found)
	}
	keys := slices.SortedFunc(maps.Keys(p.doubts), func(a, b detector.Key) int { return a.IP.Compare(b.IP) })
	for _, key := range keys {
		if d := p.all[key.IP]; d == nil || d.found == nil {
			add(p.doubts[key].found)
		}
	}
	type told struct {
		kind string
		ip   netip.Addr
	}
	before := make(map[told]bool)
	for _, f := range p.Last().Findings {
		before[told{f.Kind, f.IP}] = true
	}
	for _, f := range r.Findings {
		if before[told{f.Kind, f.IP}] || !p.lines.Allow() {
			continue
		}
		text := "packets to an address go to another node than its holder's; \"dupip audit\" says where"
		if f.Kind == document.Diverted {
			text = "this node diverts packets to an address from its holder; \"dupip audit\" says what to do"
		}
		p.opts.Log.Warn(text, "ip", f.IP, "pod", f.Pod.String(), "node", f.HeldBy, "through", f.Through, "end", f.End, "device", f.Device, "route", f.Route)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = r
}
