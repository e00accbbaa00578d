// Package paths follows packets to the addresses that this node keeps, from node to node, by the routes of their kernels. A route that leads
// to another node than the holder's is a wrong book, too: of who writes the routes.
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
	// every is the time between two passes, and at least that between the two that agree. A pass takes one part in share of the time.
	every, share = 10 * time.Second, 500
	// again is after how long the routes of other nodes are asked for again if this node's have not changed.
	again = 30 * time.Second
	// maxKept bounds the addresses of a pass: a node with 50 pods keeps about 150.
	maxKept = 4096
	// maxAsked bounds the questions of a pass to other nodes, because one that many ask answers none; maxAskedOf those about addresses of
	// one node, whose pods may say that they have many. Those that were asked about the longest time ago come first.
	maxAsked, maxAskedOf = 16, 8
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
	// Routes returns a function that returns the routes of this node to an address, none if they are not known. It fails if the agent is
	// starting or stopping.
	Routes func(ctx context.Context) (func(netip.Addr) []document.Route, error)
	// Ask asks the agent of another node, by NodeID, about an address.
	Ask func(ctx context.Context, kind cluster.QueryKind, node string, ip netip.Addr) (document.Answer, bool)
}

// Paths follows packets. Run it once; Last is safe for concurrent use.
type Paths struct {
	opts  Options
	lines *rate.Limiter

	mu   sync.Mutex
	last Result

	doubts map[detector.Key]*doubt // Run's own
}

// Result is what the last pass found. It does not change.
type Result struct {
	// Compared: there was a pass.
	Compared  bool
	Findings  []document.Finding
	Omitted   int
	Unchecked []string // what was not looked for, and why
}

// doubt is an address whose packets do not go straight to its holder's node.
type doubt struct {
	holder detector.HolderID
	routes []document.Route // of this node
	end    *end             // nil if they come there by a relay
	agreed bool             // two passes did
	since  time.Time
	asked  time.Time // for the routes of other nodes
	found  *document.Finding
}

// New returns Paths.
func New(opts Options) *Paths {
	return &Paths{opts: opts, lines: rate.NewLimiter(rate.Every(10*time.Second), 20), doubts: make(map[detector.Key]*doubt)}
}

// Last returns the last result.
func (p *Paths) Last() Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Run follows packets until ctx ends.
func (p *Paths) Run(ctx context.Context) {
	for wait := every; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		p.pass(ctx, began)
		wait = max(every, min(share*time.Since(began), time.Minute))
	}
}

// pass looks at all addresses once.
func (p *Paths) pass(ctx context.Context, now time.Time) {
	own, err := p.opts.Routes(ctx)
	if err != nil {
		return
	}
	seen := make(map[detector.Key]bool)
	hidden, policy := 0, false
	for _, l := range p.opts.Kept(maxKept) {
		holder := l.Binding.Holder.ID
		if l.Key.Network != config.DefaultNetwork || holder.Node == p.opts.Self {
			continue
		}
		routes := own(l.Key.IP)
		policy = policy || slices.ContainsFunc(routes, func(r document.Route) bool { return r.Policy })
		if slices.ContainsFunc(routes, isHidden) {
			hidden++
		}
		strays := func(r document.Route) bool { return r.To == document.ToNode && r.ToNodeID() != holder.Node || r.Ends }
		if !slices.ContainsFunc(routes, strays) {
			continue
		}
		seen[l.Key] = true
		d := p.doubts[l.Key]
		if d == nil || d.holder != holder || !slices.Equal(d.routes, routes) {
			d = &doubt{holder: holder, routes: routes}
			p.doubts[l.Key] = d
		}
	}
	maps.DeleteFunc(p.doubts, func(k detector.Key, _ *doubt) bool { return !seen[k] })
	asked := make(map[string]int)
	for _, key := range slices.SortedFunc(maps.Keys(p.doubts), func(a, b detector.Key) int { return p.doubts[a].asked.Compare(p.doubts[b].asked) }) {
		p.follow(ctx, key.IP, p.doubts[key], now, asked)
	}
	p.tell(hidden, policy)
}

// isHidden reports whether a packet goes on by what a BPF program says, and not by a route.
func isHidden(r document.Route) bool {
	return r.To == document.ToDevice && (strings.HasPrefix(r.Device, "cilium_") || strings.HasPrefix(r.Device, "lxc"))
}

// follow follows the packets to an address, when it is time to. asked counts the questions about addresses of each node, and of all by "".
func (p *Paths) follow(ctx context.Context, ip netip.Addr, d *doubt, now time.Time, asked map[string]int) {
	wait := again
	if d.end != nil && !d.agreed {
		wait = every
	}
	if !d.asked.IsZero() && now.Sub(d.asked) < wait {
		return
	}
	refused := false
	ask := func(kind cluster.QueryKind, node string) (document.Answer, bool) {
		if asked[""] == maxAsked || asked[d.holder.Node] == maxAskedOf {
			refused = true
			return document.Answer{}, false
		}
		asked[""]++
		asked[d.holder.Node]++
		return p.opts.Ask(ctx, kind, node, ip)
	}
	w := walk{p.opts.Self, d.holder.Node, func(node string) []document.Route {
		if node == p.opts.Self {
			return d.routes
		}
		answer, _ := ask(cluster.QueryStories, node)
		return answer.Routes
	}}
	found := w.follow(p.opts.Self, nil)
	// What a pod has taken for itself nobody has to route: it counts that its network plugin gave it the address.
	agreed := found != nil && d.end != nil && same(d.end, found)
	var answer document.Answer
	ok := false
	if agreed {
		answer, ok = ask(cluster.QueryBindings, d.holder.Node)
	}
	if refused {
		tooManyAsked.Exceeded(1)
		return // in the next pass
	}
	d.asked, d.end, d.agreed = now, found, agreed
	if !agreed {
		d.since, d.found = now, nil
		return
	}
	i := slices.IndexFunc(answer.Bindings, func(b document.Binding) bool {
		return b.IP == ip && b.Network == config.DefaultNetwork && b.ID() == d.holder && b.Given == detector.GivenYes
	})
	switch {
	case i >= 0:
		d.found = p.finding(answer.Bindings[i], d)
	case ok:
		d.found = nil
	}
}

func same(x, y *end) bool { return x.how == y.how && slices.Equal(x.through, y.through) }

// finding is about an address whose packets do not come to its holder.
func (p *Paths) finding(b document.Binding, d *doubt) *document.Finding {
	f := &document.Finding{Kind: document.Misrouted, IP: b.IP, Book: "routes", Since: d.since.Round(0), End: d.end.how, HeldBy: cluster.NodeName(d.holder.Node)}
	f.Pod = b.Pod
	for _, node := range d.end.through {
		f.Through = append(f.Through, cluster.NodeName(node))
	}
	return f
}

// tell makes the result of a pass, and logs what is new.
func (p *Paths) tell(hidden int, policy bool) {
	r := Result{Compared: true}
	keys := slices.SortedFunc(maps.Keys(p.doubts), func(a, b detector.Key) int { return a.IP.Compare(b.IP) })
	for _, key := range keys {
		switch d := p.doubts[key]; {
		case d.found == nil:
		case len(r.Findings) == maxFindings:
			r.Omitted++
		default:
			r.Findings = append(r.Findings, *d.found)
		}
	}
	if policy {
		r.Unchecked = append(r.Unchecked, "routes to pods of other nodes: rules of the node (ip rule) look at more than the destination")
	}
	if hidden > 0 {
		r.Unchecked = append(r.Unchecked, "routes to pods of other nodes: Cilium's BPF programs send packets on, and not the node's routes")
	}
	before := make(map[netip.Addr]bool)
	for _, f := range p.Last().Findings {
		before[f.IP] = true
	}
	for _, f := range r.Findings {
		if !before[f.IP] && p.lines.Allow() {
			p.opts.Log.Warn("packets to an address go to another node than its holder's; \"dupip audit\" says where", "ip", f.IP, "pod", f.Pod.String(),
				"node", f.HeldBy, "through", f.Through, "end", f.End)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = r
}
