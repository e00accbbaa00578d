package report

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/report/collect"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
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
	return c.Bindings(q), nil
}

// Conflicts implements [api.Backend].
func (r *Report) Conflicts(ctx context.Context, q api.Query) (api.Conflicts, error) {
	c, err := r.collect(ctx, q, cluster.QueryConflicts)
	if err != nil {
		return api.Conflicts{}, err
	}
	return c.Conflicts(q), nil
}

// Explain implements [api.Backend].
func (r *Report) Explain(ctx context.Context, q api.Query) (api.Explanation, error) {
	q.Cluster = q.Cluster && !r.alone()
	c, err := r.collect(ctx, q, cluster.QueryStories)
	if err != nil {
		return api.Explanation{}, err
	}
	return c.Explanation(q), nil
}

// Evidence implements [api.Backend].
func (r *Report) Evidence(ctx context.Context, q api.Query) (api.Evidence, error) {
	q.Cluster = q.Cluster && !r.alone()
	c, err := r.collect(ctx, q, cluster.QueryEvidence)
	if err != nil {
		return api.Evidence{}, err
	}
	return c.Evidence(q), nil
}

// collect asks this agent and, if q says so, others.
func (r *Report) collect(ctx context.Context, q api.Query, kind cluster.QueryKind) (*collect.Collection, error) {
	c := &collect.Collection{Self: r.Self, Holders: make(map[detector.HolderID]detector.Holder)}
	local := q.Node == "" || q.Node == r.Self.Name
	var own cluster.Document
	var routes *routes
	err := r.whenReady(ctx, func() {
		c.Rules = collect.Rules(r.Table.Config())
		if kind == cluster.QueryConflicts || kind == cluster.QueryStories {
			routes = r.newRoutes()
		}
		if local {
			own = r.localDocument(collect.Query(q, kind))
		}
		if local && kind == cluster.QueryStories {
			r.addLocalDetails(c, q.IP)
		}
	})
	if err != nil {
		return nil, err
	}
	if routes != nil {
		c.NextHop = routes.nextHop
		routes.addMembers(r.members())
	}
	if local {
		c.Add(cluster.Answer{Member: r.Self, Document: own})
	}
	if r.alone() && !local {
		return nil, fmt.Errorf("%w as %q: this agent is alone, it knows %q only", api.ErrNoSuchNode, q.Node, r.Self.Name)
	}
	if r.alone() {
		c.Alone(q)
		return c, nil
	}
	return c, c.Ask(ctx, r.Cluster, r.members(), q, kind)
}

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
	case cluster.QueryEvidence:
		if r.Captured == nil {
			d.Unchecked = []string{"no packets are captured (--evidence=off)"}
			break
		}
		d.Captures, d.Omitted = r.Captured.Of(q.IP)
		for n := range d.Captures {
			h := &d.Captures[n].Holder
			if i := r.Table.Interface(h.Interface); i != nil && i.Holder == h.ID {
				*h = i.Describe(h.MAC) // it may have been named since
			}
		}
	case cluster.QueryFindings:
		d = r.findings(q)
	}
	return d
}

var devices = map[netns.Where]string{netns.OnPeer: "peer", netns.OnLoopback: "loopback", netns.Elsewhere: "elsewhere"}

// addLocalDetails adds the names of this node's holders, and where the address is configured.
func (r *Report) addLocalDetails(c *collect.Collection, ip netip.Addr) {
	for i := range r.Table.All() {
		c.Holders[i.Holder] = detector.Holder{InterfaceName: i.Name, NetnsName: i.NetnsName(), Pod: i.Pod.Pod}
	}
	for _, a := range r.Table.Lists(ip) {
		c.Configured = append(c.Configured, api.Configured{
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
