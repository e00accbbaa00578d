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
	// queryTime is how long other nodes may take for their answers.
	queryTime = 5 * time.Second
	// The reply to another node is bounded; a query to this node itself is not.
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
		Node:     r.Self.Name,
		Bindings: make([]api.Binding, 0, len(bindings)),
		Coverage: c.coverage(omitted),
	}
	for _, b := range bindings {
		document.Bindings = append(document.Bindings, api.NewBinding(b))
	}
	return document, nil
}

// Conflicts implements [api.Backend].
func (r *Report) Conflicts(ctx context.Context, q api.Query) (api.Conflicts, error) {
	c, err := r.collect(ctx, q, cluster.QueryConflicts)
	if err != nil {
		return api.Conflicts{}, err
	}
	conflicts, omitted := merge.Conflicts(c.answers, c.rules())
	document := api.Conflicts{
		Node:      r.Self.Name,
		Conflicts: make([]api.Conflict, 0, len(conflicts)),
		Coverage:  c.coverage(omitted),
	}
	for _, conflict := range conflicts {
		document.Conflicts = append(document.Conflicts, c.conflict(conflict))
	}
	var received []cluster.Pair
	if !r.alone() && q.Cluster && q.Node == "" && !q.IP.IsValid() {
		received = r.Cluster.Pairs()
	}
	for _, p := range merge.Pairs(conflicts, received) {
		document.Pairs = append(document.Pairs, newPair(p))
	}
	return document, nil
}

// newPair makes the document of a pair. Two nodes of one name are told apart by their boots.
func newPair(p cluster.Pair) api.Pair {
	document := api.NewPair(p)
	document.Nodes = merge.Names([]string{p.A, p.B})
	return document
}

// Explain implements [api.Backend].
func (r *Report) Explain(ctx context.Context, q api.Query) (api.Explanation, error) {
	if r.alone() {
		q.Cluster = false
	}
	c, err := r.collect(ctx, q, cluster.QueryStories)
	if err != nil {
		return api.Explanation{}, err
	}
	document := api.Explanation{
		Node: r.Self.Name, IP: q.IP.String(), Stories: []api.Story{}, Configured: c.configured, Coverage: c.coverage(0),
	}
	for _, story := range merge.Stories(c.answers, c.rules()) {
		document.Stories = append(document.Stories, c.story(story))
	}
	return document, nil
}

// collection is what those who were asked have answered.
type collection struct {
	answers []cluster.Answer
	config  *config.Config
	missing []string
	// asked counts who was asked; 0 where only the own agent was to be.
	asked int
	alone bool
	// Where packets go, by this node's routes and by what others reply; for how many conflicts
	// there is advice.
	routes  *routes
	hops    map[detector.Key][]advice.NextHop
	advised int
	// The rest is for stories, and of this node only.
	present    map[detector.HolderID]holderName
	configured []api.Configured
}

// named is how people know a holder.
type holderName struct {
	iface, netns string
	pod          detector.Pod
}

func (c *collection) rules() merge.Rules {
	return merge.Rules{
		ClusterWide: func(network string) bool { return c.config.Scope(network) == config.Cluster },
		Shared:      c.config.Shared,
	}
}

func (c *collection) coverage(omitted int) api.Coverage {
	return api.Coverage{
		Alone:   c.alone,
		Asked:   c.asked,
		Missing: c.missing,
		Omitted: omitted,
		Partial: len(c.missing) > 0 || omitted > 0,
	}
}

// collect asks this agent and, where q says so, others.
func (r *Report) collect(ctx context.Context, q api.Query, kind cluster.QueryKind) (*collection, error) {
	query := cluster.Query{Kind: kind, IP: q.IP, All: q.All, Node: q.Node}
	c := new(collection)
	var own cluster.Document
	err := r.whenReady(ctx, func() {
		c.config = r.Table.Config()
		if kind != cluster.QueryBindings {
			c.routes = r.newRoutes()
		}
		if q.Node != "" && q.Node != r.Self.Name {
			return
		}
		own = r.localDocument(query)
		if kind == cluster.QueryStories {
			r.addLocalDetails(c, q.IP)
		}
	})
	if err != nil {
		return nil, err
	}
	others := r.queriedMembers(q)
	if q.Node == "" || q.Node == r.Self.Name {
		c.answers = append(c.answers, cluster.Answer{Member: r.Self, Document: own})
	} else if len(others) == 0 {
		return nil, r.noSuchNode(q.Node)
	}
	if q.Cluster || q.Node != "" {
		c.alone = r.alone()
		c.asked = len(c.answers)
	}
	if len(others) > 0 {
		r.queryMembers(ctx, c, query, others)
	}
	if c.routes != nil {
		c.routes.addMembers(r.members())
		c.collectHops()
	}
	return c, nil
}

// candidates are the other members that a query is for, whatever their state.
func (r *Report) queriedMembers(q api.Query) []cluster.Member {
	if r.alone() || !q.Cluster && q.Node == "" {
		return nil
	}
	return slices.DeleteFunc(r.members(), func(m cluster.Member) bool {
		return m.NodeID() == r.Self.NodeID() || q.Node != "" && m.Name != q.Node
	})
}

func (r *Report) noSuchNode(name string) error {
	if r.alone() {
		return fmt.Errorf("%w as %q: this agent is alone, it knows %q only", api.ErrNoSuchNode, name, r.Self.Name)
	}
	return fmt.Errorf("%w as %q: \"dupip nodes\" lists them", api.ErrNoSuchNode, name)
}

// askOthers asks the other members and notes who does not answer.
func (r *Report) queryMembers(ctx context.Context, c *collection, q cluster.Query, others []cluster.Member) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	// An error says that nobody could be asked: then all that should be there are missing.
	result, _ := r.Cluster.Query(ctx, q)
	answered := map[string]bool{r.Self.NodeID(): true}
	for _, answer := range result.Answers {
		if id := answer.Member.NodeID(); !answered[id] {
			answered[id] = true
			c.answers = append(c.answers, answer)
		}
	}
	var missing []string
	miss := func(m cluster.Member) {
		if id := m.NodeID(); !answered[id] && !slices.Contains(missing, id) {
			missing = append(missing, id)
		}
	}
	for _, m := range result.Missing {
		miss(m)
	}
	for _, m := range others {
		if m.State == cluster.Alive || m.State == cluster.Suspect {
			miss(m)
		}
	}
	if q.Node != "" && len(answered)+len(missing) == 1 {
		for _, m := range others { // all that have that name are gone
			miss(m)
		}
	}
	c.asked = len(c.answers) + len(missing)
	if len(missing) > 0 {
		c.missing = merge.Names(missing)
		slices.Sort(c.missing)
	}
}

// document is the reply to another node: about this node's own holders, and bounded.
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

// known is all that this agent knows of what a query asks for.
func (r *Report) localDocument(q cluster.Query) cluster.Document {
	var d cluster.Document
	other := func(key detector.Key) bool { return q.IP.IsValid() && key.IP != q.IP }
	switch q.Kind {
	case cluster.QueryBindings:
		node := r.Self.NodeID()
		// The table also has other nodes' holders, as far as they are in conflict with ours.
		d.Bindings = r.Detector.Bindings(func(b *detector.Binding) bool {
			return b.Holder.ID.Node == node && !other(b.Key)
		})
	case cluster.QueryConflicts:
		d.Conflicts = slices.DeleteFunc(r.Detector.Conflicts(q.All), func(c detector.Conflict) bool { return other(c.Key) })
	case cluster.QueryStories:
		if q.IP.IsValid() {
			d.Stories = r.Detector.Explain(q.IP)
		}
	}
	return d
}

// describe adds the names of the holders that are there, and who has the address configured.
func (r *Report) addLocalDetails(c *collection, ip netip.Addr) {
	c.present = make(map[detector.HolderID]holderName)
	for i := range r.Table.All() {
		c.present[i.Holder] = holderName{i.Name, i.Netns.Label(), i.Pod.Pod}
	}
	for _, a := range r.Table.Lists(ip) {
		c.configured = append(c.configured, api.Configured{
			Network:    a.Key.Network,
			Interface:  a.Interface.Name,
			Netns:      a.Interface.Netns.Label(),
			Pod:        api.NewPod(a.Interface.Pod.Pod),
			Device:     devices[a.Where],
			Settled:    a.Valid,
			Unanswered: r.Prober.Unanswered(a.Interface.Ref, a.Key.IP, a.VLAN),
		})
	}
}

var devices = map[netns.Where]string{netns.OnPeer: "peer", netns.OnLoopback: "loopback", netns.Elsewhere: "elsewhere"}
