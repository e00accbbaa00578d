package report

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/report/advice"
	"github.com/dupip/dupip/agent/report/merge"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// queryTime is how long a query waits for the answers of other nodes.
	queryTime = 5 * time.Second
	// The reply to another node is limited; the response of this node's own API is not.
	maxReplyBindings  = 16_384
	maxReplyConflicts = 2_048
)

// Bindings implements [api.Backend].
func (r *Report) Bindings(ctx context.Context, q api.Query) (api.Bindings, error) {
	c, err := r.collect(ctx, q, cluster.QueryBindings)
	if err != nil {
		return api.Bindings{}, err
	}
	bindings, omitted := merge.Bindings(c.answers)
	document := api.Bindings{
		Node: r.Self.Name, Bindings: make([]api.Binding, 0, len(bindings)), Coverage: c.covered(omitted),
	}
	for _, b := range bindings {
		if b := api.NewBinding(b); q.SelectsBinding(b) {
			document.Bindings = append(document.Bindings, b)
		}
	}
	return document, nil
}

// Conflicts implements [api.Backend].
func (r *Report) Conflicts(ctx context.Context, q api.Query) (api.Conflicts, error) {
	c, err := r.collect(ctx, q, cluster.QueryConflicts)
	if err != nil {
		return api.Conflicts{}, err
	}
	conflicts, omitted := merge.Conflicts(c.answers, c.rules)
	document := api.Conflicts{
		Node: r.Self.Name, Conflicts: make([]api.Conflict, 0, len(conflicts)), Coverage: c.covered(omitted),
	}
	selected := conflicts[:0]
	for _, conflict := range conflicts {
		one := api.NewConflict(conflict)
		if !q.SelectsConflict(one) {
			continue // without advice, which is limited
		}
		c.advise(&one, conflict)
		document.Conflicts = append(document.Conflicts, one)
		selected = append(selected, conflict)
	}
	for _, pair := range merge.Pairs(selected) {
		document.Pairs = append(document.Pairs, pair.Pair)
	}
	return document, nil
}

// Explain implements [api.Backend].
func (r *Report) Explain(ctx context.Context, q api.Query) (api.Explanation, error) {
	q.Cluster = q.Cluster && !r.alone()
	c, err := r.collect(ctx, q, cluster.QueryStories)
	if err != nil {
		return api.Explanation{}, err
	}
	document := api.Explanation{
		Node: r.Self.Name, BootID: r.Self.Boot, IP: q.IP.String(), Stories: []api.Story{}, Configured: c.configured, Coverage: c.covered(0),
		NeverCompared: neverCompared(q.IP),
	}
	for _, a := range c.answers {
		for _, b := range a.Document.Books {
			document.Books = append(document.Books, newBook(a.Member, b))
		}
	}
	for _, story := range merge.Stories(c.answers, c.rules) {
		document.Stories = append(document.Stories, c.story(story))
	}
	return document, nil
}

// neverCompared says what an address is that the observer passes over, as bpf/parse.h has it; empty for others.
func neverCompared(ip netip.Addr) string {
	switch {
	case ip.IsLoopback():
		return "loopback"
	case ip.IsLinkLocalUnicast():
		return "link-local"
	case ip.IsMulticast():
		return "multicast"
	case ip.IsUnspecified():
		return "unspecified"
	}
	return ""
}

// collection is what this agent and the other members know about a query.
type collection struct {
	answers  []cluster.Answer
	rules    merge.Rules
	coverage api.Coverage
	// routes are this node's, hops those that the other members reported; advised counts the
	// conflicts with advice.
	routes  *routes
	hops    map[detector.Key][]advice.NextHop
	advised int
	// The rest is for stories, and of this node only.
	present    map[detector.HolderID]detector.Holder
	configured []api.Configured
}

func (c *collection) covered(omitted int) api.Coverage {
	c.coverage.Omitted = omitted
	c.coverage.Partial = len(c.coverage.Missing) > 0 || omitted > 0
	return c.coverage
}

// collect queries this agent and, if q says so, others.
func (r *Report) collect(ctx context.Context, q api.Query, kind cluster.QueryKind) (*collection, error) {
	query := cluster.Query{
		Kind: kind, IP: q.IP, All: q.All, Node: q.Node,
		Only: cluster.Only{Prefix: q.Prefix, Namespace: q.Namespace, Pod: q.Pod, Network: q.Network},
	}
	c := &collection{hops: make(map[detector.Key][]advice.NextHop), present: make(map[detector.HolderID]detector.Holder)}
	local := q.Node == "" || q.Node == r.Self.Name
	var own cluster.Document
	err := r.whenReady(ctx, func() {
		configured := r.Table.Config()
		c.rules = merge.Rules{
			ClusterWide: func(network string) bool { return configured.Scope(network) == config.Cluster },
			Shared:      configured.Shared,
		}
		if kind == cluster.QueryConflicts || kind == cluster.QueryStories {
			c.routes = r.newRoutes()
		}
		if local {
			own = r.localDocument(query)
		}
		if local && kind == cluster.QueryStories {
			r.addLocalDetails(c, q.IP)
		}
	})
	if err != nil {
		return nil, err
	}
	others := r.queriedMembers(q)
	switch {
	case local:
		c.answers = append(c.answers, cluster.Answer{Member: r.Self, Document: own})
	case r.alone():
		return nil, fmt.Errorf("%w as %q: this agent is alone, it knows %q only", api.ErrNoSuchNode, q.Node, r.Self.Name)
	case len(others) == 0:
		return nil, fmt.Errorf("%w as %q: \"dupip nodes\" lists them", api.ErrNoSuchNode, q.Node)
	}
	if q.Cluster || q.Node != "" {
		c.coverage = api.Coverage{Alone: r.alone(), Asked: len(c.answers)}
	}
	if len(others) > 0 {
		r.queryMembers(ctx, c, query, others)
	}
	if c.routes == nil {
		return c, nil
	}
	c.routes.addMembers(r.members())
	for _, a := range c.answers {
		for _, h := range a.Document.NextHops[:min(len(a.Document.NextHops), maxRoutedConflicts)] {
			c.hops[h.Key] = append(c.hops[h.Key], advice.NextHop{Node: a.Member.NodeID(), NextHop: h})
		}
	}
	return c, nil
}

// queriedMembers returns the other members that a query is for, in any state.
func (r *Report) queriedMembers(q api.Query) []cluster.Member {
	if r.alone() || !q.Cluster && q.Node == "" {
		return nil
	}
	return slices.DeleteFunc(r.members(), func(m cluster.Member) bool {
		return m.NodeID() == r.Self.NodeID() || q.Node != "" && m.Name != q.Node
	})
}

// queryMembers adds the answers of the other members and the names of those that did not answer.
func (r *Report) queryMembers(ctx context.Context, c *collection, q cluster.Query, others []cluster.Member) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	answered := map[string]bool{r.Self.NodeID(): true}
	// After an error there are no answers, and all live members are missing.
	silent, _ := r.Cluster.Query(ctx, q, func(answer cluster.Answer) {
		if id := answer.Member.NodeID(); !answered[id] {
			answered[id] = true
			c.answers = append(c.answers, answer)
		}
	})
	var missing []string
	addMissing := func(members []cluster.Member, dead bool) {
		for _, m := range members {
			id := m.NodeID()
			if (dead || live(m)) && !answered[id] && !slices.Contains(missing, id) {
				missing = append(missing, id)
			}
		}
	}
	addMissing(silent, true)
	addMissing(others, q.Node != "" && len(answered)+len(missing) == 1 && !slices.ContainsFunc(others, live))
	c.coverage.Asked = len(c.answers) + len(missing)
	c.coverage.Missing = nameList(missing)
	slices.Sort(c.coverage.Missing)
}

func live(m cluster.Member) bool { return m.State == cluster.Alive || m.State == cluster.Suspect }

// document returns the reply to another node: this node's own holders, up to the limits.
func (r *Report) document(q cluster.Query) cluster.Document {
	d := r.localDocument(q)
	if n := len(d.Bindings) - maxReplyBindings; n > 0 {
		d.Bindings, d.Omitted = d.Bindings[:maxReplyBindings], d.Omitted+n
	}
	if n := len(d.Conflicts) - maxReplyConflicts; n > 0 {
		d.Conflicts, d.Omitted = d.Conflicts[:maxReplyConflicts], d.Omitted+n
	}
	return d
}

// localDocument returns all that this agent knows about a query.
func (r *Report) localDocument(q cluster.Query) cluster.Document {
	var d cluster.Document
	other := func(key detector.Key) bool {
		return q.IP.IsValid() && key.IP != q.IP || q.Only.Prefix.IsValid() && !q.Only.Prefix.Contains(key.IP) ||
			q.Only.Network != "" && q.Only.Network != key.Network
	}
	pods := api.Query{Namespace: q.Only.Namespace, Pod: q.Only.Pod}
	anyPod := pods == api.Query{}
	selected := func(b *detector.Binding) bool {
		return anyPod || pods.SelectsBinding(api.Binding{Pod: api.NewPod(b.Holder.Pod)})
	}
	switch q.Kind {
	case cluster.QueryBindings:
		node := r.Self.NodeID()
		// The table also has the holders on other nodes that are in conflict with this node's.
		d.Bindings = r.Detector.Bindings(func(b *detector.Binding) bool {
			return b.Holder.ID.Node == node && !other(b.Key) && selected(b)
		})
	case cluster.QueryConflicts:
		d.Conflicts = slices.DeleteFunc(r.Detector.Conflicts(q.All), func(c detector.Conflict) bool {
			return other(c.Key) || !anyPod && !slices.ContainsFunc(c.Holders, func(b detector.Binding) bool { return selected(&b) })
		})
	case cluster.QueryStories:
		if q.IP.IsValid() {
			d.Stories, d.Books = r.Detector.Explain(q.IP), r.books(q.IP)
		}
	case cluster.QueryFindings:
		last := r.Books.Last()
		d.Findings = slices.DeleteFunc(slices.Clone(last.Findings), func(f cluster.Finding) bool {
			return other(detector.Key{Network: f.Network, IP: f.IP}) || !pods.SelectsFinding(newFinding(r.Self, f))
		})
		if d.Omitted, d.Unchecked = last.Omitted, last.Unchecked; last.At.IsZero() {
			d.Unchecked = []string{"everything: the books are not read, because the agent has just started, or with --cni-conf-dir off"}
		}
	}
	return d
}

var devices = map[netns.Where]string{netns.OnPeer: "peer", netns.OnLoopback: "loopback", netns.Elsewhere: "elsewhere"}

// addLocalDetails adds the names of this node's holders, and where the address is configured.
func (r *Report) addLocalDetails(c *collection, ip netip.Addr) {
	for i := range r.Table.All() {
		c.present[i.Holder] = detector.Holder{InterfaceName: i.Name, NetnsName: i.NetnsName(), Pod: i.Pod.Pod}
	}
	for _, a := range r.Table.Lists(ip) {
		c.configured = append(c.configured, api.Configured{
			Network:    a.Key.Network,
			Interface:  a.Interface.Name,
			Netns:      a.Interface.NetnsName(),
			Pod:        api.NewPod(a.Interface.Pod.Pod),
			Device:     devices[a.Where],
			Settled:    a.Valid,
			Lost:       a.Lost,
			Unanswered: r.Prober.Unanswered(a.Interface.Ref, a.Key.IP, a.VLAN),
		})
	}
}
