package report

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/report/collect"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

const (
	// The reply to another node is limited; the response of this node's own API is not.
	maxReplyBindings  = 16_384
	maxReplyConflicts = 2_048
)

// Bindings implements [api.Backend].
func (r *Report) Bindings(ctx context.Context, q document.Query) (document.Bindings, error) {
	return compose(ctx, r, q, cluster.QueryBindings, (*collect.Collection).Bindings)
}

// Conflicts implements [api.Backend].
func (r *Report) Conflicts(ctx context.Context, q document.Query) (document.Conflicts, error) {
	return compose(ctx, r, q, cluster.QueryConflicts, (*collect.Collection).Conflicts)
}

// Spans returns which networks have the pods of several nodes.
func (r *Report) Spans(ctx context.Context) (spans func(network string) bool, err error) {
	err = r.Do(ctx, func() { spans = collect.Rules(r.Table.Config()).ClusterWide })
	if r.alone() {
		spans = func(string) bool { return false }
	}
	return spans, err
}

// Explain implements [api.Backend].
func (r *Report) Explain(ctx context.Context, q document.Query) (document.Explanation, error) {
	q.Cluster = q.Cluster && !r.alone()
	return compose(ctx, r, q, cluster.QueryStories, (*collect.Collection).Explanation)
}

// Captures implements [api.Backend].
func (r *Report) Captures(ctx context.Context, q document.Query) (document.Captures, error) {
	q.Cluster = q.Cluster && !r.alone()
	return compose(ctx, r, q, cluster.QueryCaptures, (*collect.Collection).Captures)
}

// compose collects what a query asks for and makes a document of it.
func compose[T any](ctx context.Context, r *Report, q document.Query, kind cluster.QueryKind, of func(*collect.Collection, document.Query) T) (doc T, err error) {
	c, err := r.collect(ctx, q, kind)
	if err == nil {
		doc = of(c, q)
	}
	return doc, err
}

// collect asks this agent and, if q says so, others.
func (r *Report) collect(ctx context.Context, q document.Query, kind cluster.QueryKind) (*collect.Collection, error) {
	c := &collect.Collection{Self: r.Self}
	local := q.Node == "" || q.Node == r.Self.Name
	var own document.Answer
	var routes *routes
	if local && hasFacts(kind) {
		if err := r.readFacts(ctx); err != nil {
			return nil, err
		}
	}
	err := r.whenReady(ctx, func() {
		c.Rules = collect.Rules(r.Table.Config())
		if hasFacts(kind) {
			routes = r.newRoutes()
		}
		if local {
			own = r.localAnswer(collect.Query(q, kind))
		}
		if local && kind == cluster.QueryStories {
			c.Configured = r.configured(q.IP)
			r.holding(routes, q.IP)
		}
	})
	if err != nil {
		return nil, err
	}
	if routes != nil {
		c.Route = routes.of
		routes.addMembers(r.members())
	}
	if local && kind == cluster.QueryStories && q.IP.IsValid() {
		own.Routes = routes.legs(q.IP)
	}
	if local {
		c.Add(own)
	}
	if r.alone() && !local {
		return nil, fmt.Errorf("%w as %q: this agent is alone, it knows %q only", document.ErrNoSuchNode, q.Node, r.Self.Name)
	}
	if r.alone() {
		c.Alone(q)
		return c, nil
	}
	return c, c.Ask(ctx, r.Cluster, r.members(), q, kind)
}

// hasFacts reports whether answers to such queries have facts of holders.
func hasFacts(kind cluster.QueryKind) bool {
	return kind == cluster.QueryConflicts || kind == cluster.QueryStories
}

// answer returns what this node says to another one, up to the limits.
func (r *Report) answer(q cluster.Query) document.Answer {
	a := r.localAnswer(q)
	if n := len(a.Bindings) - maxReplyBindings; n > 0 {
		a.Bindings, a.Omitted = a.Bindings[:maxReplyBindings], a.Omitted+n
	}
	if n := len(a.Conflicts) - maxReplyConflicts; n > 0 {
		a.Conflicts, a.Omitted = a.Conflicts[:maxReplyConflicts], a.Omitted+n
	}
	return a
}

// localAnswer returns all that this agent knows about a query.
func (r *Report) localAnswer(q cluster.Query) (a document.Answer) {
	only := queryOf(q)
	switch q.Kind {
	case cluster.QueryBindings:
		node := r.Self.NodeID()
		// The table also has the holders on other nodes that are in conflict with this node's.
		for _, b := range r.Detector.Bindings(func(b *detector.Binding) bool {
			return b.Holder.ID.Node == node && only.SelectsKey(b.Key)
		}) {
			if doc := document.NewBinding(b); only.SelectsBinding(doc) {
				a.Bindings = append(a.Bindings, doc)
			}
		}
	case cluster.QueryConflicts, cluster.QueryAck:
		if q.Kind == cluster.QueryAck {
			r.acknowledge(q)
		}
		all := r.Detector.Conflicts(q.All)
		view := r.newView(all)
		for _, c := range all {
			if doc := view.conflict(c); only.SelectsConflict(doc) {
				a.Conflicts = append(a.Conflicts, doc)
			}
		}
	case cluster.QueryStories:
		if q.IP.IsValid() {
			view := r.newView(r.Detector.Conflicts(false))
			a.Stories, a.Books, a.Findings = view.stories(q.IP), view.books(q.IP), r.followed(document.Query{IP: q.IP})
		}
	case cluster.QueryCaptures:
		if r.Captured == nil {
			a.Unchecked = []string{"no packets are captured (--capture=off)"}
			break
		}
		a.Captures, a.Omitted = r.Captured.Of(q.IP, func(h detector.Holder) detector.Holder {
			if i := r.interfaceOf(h); i != nil {
				return i.Describe(h.MAC) // it may have been named since
			}
			return h
		})
	case cluster.QueryFindings:
		a = r.findings(q)
		r.contest(a.Findings)
	}
	return a
}

// queryOf is what another node asks for.
func queryOf(q cluster.Query) document.Query {
	return document.Query{
		IP: q.IP, Prefix: q.Only.Prefix, Namespace: q.Only.Namespace, Pod: q.Only.Pod, Network: q.Only.Network, Since: q.Only.Since,
	}
}

// stories returns what the detector knows of an address, with the present names of this node's holders.
func (v *view) stories(ip netip.Addr) (list []document.Story) {
	names := make(map[detector.HolderID]detector.Holder)
	for i := range v.Table.All() {
		names[i.Holder] = detector.Holder{InterfaceName: i.Name, NetnsName: i.Netns.Label(), Pod: i.Pod.Pod}
	}
	for _, s := range v.Detector.Explain(ip) {
		for n := range s.Notes {
			h := &s.Notes[n].Holder
			if now := names[h.ID]; now.Pod != (detector.Pod{}) {
				h.Pod, h.NetnsName, h.InterfaceName = now.Pod, now.NetnsName, now.InterfaceName
			}
		}
		doc := document.NewStory(v.Self, s)
		if s.Conflict != nil {
			doc.Conflict = new(v.conflict(*s.Conflict))
		}
		list = append(list, doc)
	}
	return list
}

var devices = map[netns.Where]string{netns.OnPeer: "peer", netns.OnLoopback: "loopback", netns.Elsewhere: "elsewhere"}

// configured returns where this node's pods have an address.
func (r *Report) configured(ip netip.Addr) (list []document.Configured) {
	for _, a := range r.Table.Lists(ip) {
		list = append(list, document.Configured{
			Network:    a.Key.Network,
			Interface:  a.Interface.Name,
			Netns:      a.Interface.Netns.Label(),
			Pod:        document.NewPod(a.Interface.Pod.Pod),
			Device:     devices[a.Where],
			Settled:    a.Valid,
			Lost:       a.Lost,
			Unanswered: r.Prober.Unanswered(a.Interface.Ref, a.Key.IP, a.VLAN),
		})
	}
	return list
}

// Nodes implements [api.Backend].
func (r *Report) Nodes(_ context.Context, q document.Query) (document.Nodes, error) {
	members := r.members()
	doc := document.Nodes{Node: r.Self.Name, Nodes: make([]document.Node, 0, len(members)), Cluster: r.clusterStatus()}
	if !r.alone() {
		members = append(members, r.Cluster.Status().Reporters...)
	}
	for _, m := range members {
		if q.State == "" || q.State == string(m.State) {
			doc.Nodes = append(doc.Nodes, document.Node{Member: m})
		}
	}
	return doc, nil
}

// members returns the agents that are or were in the cluster, always with this one, by node name.
func (r *Report) members() []cluster.Member {
	if r.alone() {
		return []cluster.Member{r.Self}
	}
	members := slices.Clone(r.Cluster.Members())
	if !slices.ContainsFunc(members, func(m cluster.Member) bool { return m.Self }) {
		members = append(members, r.Self)
	}
	slices.SortFunc(members, func(x, y cluster.Member) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.Boot, y.Boot), cmp.Compare(x.Epoch, y.Epoch))
	})
	return members
}

func (r *Report) clusterStatus() document.ClusterStatus {
	if r.alone() {
		return document.ClusterStatus{Alone: true}
	}
	return document.ClusterStatus{Status: r.Cluster.Status()}
}
