package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/advice"
	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/merge"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// queryTime is how long other nodes may take for their answers.
	queryTime = 5 * time.Second
	// What one agent tells another is bounded; who wants more asks that one itself.
	maxToldBindings  = 16_384
	maxToldConflicts = 2_048
)

// Bindings implements [api.Backend].
func (a *Agent) Bindings(ctx context.Context, q api.Query) (api.Bindings, error) {
	c, err := a.collect(ctx, q, cluster.QueryBindings)
	if err != nil {
		return api.Bindings{}, err
	}
	bindings, omitted := merge.Bindings(c.answers)
	document := api.Bindings{
		Node:     a.node.Name,
		Bindings: make([]api.Binding, 0, len(bindings)),
		Coverage: c.coverage(omitted),
	}
	for _, b := range bindings {
		document.Bindings = append(document.Bindings, api.NewBinding(b))
	}
	return document, nil
}

// Conflicts implements [api.Backend].
func (a *Agent) Conflicts(ctx context.Context, q api.Query) (api.Conflicts, error) {
	c, err := a.collect(ctx, q, cluster.QueryConflicts)
	if err != nil {
		return api.Conflicts{}, err
	}
	conflicts, omitted := merge.Conflicts(c.answers, c.rules())
	document := api.Conflicts{
		Node:      a.node.Name,
		Conflicts: make([]api.Conflict, 0, len(conflicts)),
		Coverage:  c.coverage(omitted),
	}
	for _, conflict := range conflicts {
		document.Conflicts = append(document.Conflicts, c.conflict(conflict))
	}
	var told []cluster.Pair
	if a.cluster != nil && q.Cluster && q.Node == "" && !q.IP.IsValid() {
		told = a.cluster.Pairs()
	}
	for _, p := range merge.Pairs(conflicts, told) {
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
func (a *Agent) Explain(ctx context.Context, q api.Query) (api.Explanation, error) {
	alone := a.cluster == nil
	if alone {
		q.Cluster = false
	}
	c, err := a.collect(ctx, q, cluster.QueryStories)
	if err != nil {
		return api.Explanation{}, err
	}
	document := api.Explanation{
		Node: a.node.Name, IP: q.IP.String(), Stories: []api.Story{}, Configured: c.configured, Coverage: c.coverage(0),
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
	// Where packets go, as this node sees it and as others tell; of how many conflicts.
	ways    *ways
	told    map[detector.Key][]advice.Lead
	advised int
	// The rest is for stories, and of this node only.
	present    map[detector.HolderID]named
	configured []api.Configured
}

// named is how people know a holder.
type named struct {
	iface, netns string
	pod          detector.Pod
}

func (c *collection) rules() merge.Rules {
	return merge.Rules{
		Wide:   func(network string) bool { return c.config.Scope(network) == config.Cluster },
		Shared: c.config.Shared,
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
func (a *Agent) collect(ctx context.Context, q api.Query, kind cluster.QueryKind) (*collection, error) {
	question := cluster.Query{Kind: kind, IP: q.IP, All: q.All, Node: q.Node}
	c := new(collection)
	var own cluster.Document
	err := a.loop.ask(ctx, func() {
		c.config = a.loop.config
		if kind != cluster.QueryBindings {
			c.ways = a.loop.ways()
		}
		if q.Node != "" && q.Node != a.node.Name {
			return
		}
		own = a.loop.known(question)
		if kind == cluster.QueryStories {
			a.loop.surroundings(c, q.IP)
		}
	})
	if err != nil {
		return nil, err
	}
	others := a.candidates(q)
	if q.Node == "" || q.Node == a.node.Name {
		c.answers = append(c.answers, cluster.Answer{Member: a.self(), Document: own})
	} else if len(others) == 0 {
		return nil, a.noSuchNode(q.Node)
	}
	if q.Cluster || q.Node != "" {
		c.alone = a.cluster == nil
		c.asked = len(c.answers)
	}
	if len(others) > 0 {
		a.askOthers(ctx, c, question, others)
	}
	if c.ways != nil {
		c.ways.meet(a.members())
		c.hear()
	}
	return c, nil
}

// candidates are the other members that a query is for, whatever their state.
func (a *Agent) candidates(q api.Query) []cluster.Member {
	if a.cluster == nil || !q.Cluster && q.Node == "" {
		return nil
	}
	return slices.DeleteFunc(a.members(), func(m cluster.Member) bool {
		return m.NodeID() == a.node.ID() || q.Node != "" && m.Name != q.Node
	})
}

func (a *Agent) noSuchNode(name string) error {
	if a.cluster == nil {
		return fmt.Errorf("%w as %q: this agent is alone, it knows %q only", api.ErrNoSuchNode, name, a.node.Name)
	}
	return fmt.Errorf("%w as %q: \"dupip nodes\" lists them", api.ErrNoSuchNode, name)
}

// askOthers asks the other members and notes who does not answer.
func (a *Agent) askOthers(ctx context.Context, c *collection, q cluster.Query, others []cluster.Member) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	// An error says that nobody could be asked: then all that should be there are missing.
	result, _ := a.cluster.Query(ctx, q)
	answered := map[string]bool{a.node.ID(): true}
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

// document is what this node tells another that asks: of its own holders, and bounded.
// To be called once the loop is ready: before, no answer is better than an empty one.
func (l *loop) document(q cluster.Query) cluster.Document {
	d := l.known(q)
	if n := len(d.Bindings) - maxToldBindings; n > 0 {
		d.Bindings, d.Omitted = d.Bindings[:maxToldBindings], d.Omitted+n
	}
	if n := len(d.Conflicts) - maxToldConflicts; n > 0 {
		d.Conflicts, d.Omitted = d.Conflicts[:maxToldConflicts], d.Omitted+n
	}
	return d
}

// known is all that this agent knows of what a query asks for.
func (l *loop) known(q cluster.Query) cluster.Document {
	var d cluster.Document
	other := func(key detector.Key) bool { return q.IP.IsValid() && key.IP != q.IP }
	switch q.Kind {
	case cluster.QueryBindings:
		node := l.node.ID()
		// The table also has other nodes' holders, as far as they are in conflict with ours.
		d.Bindings = l.detector.Bindings(func(b *detector.Binding) bool {
			return b.Holder.ID.Node == node && !other(b.Key)
		})
	case cluster.QueryConflicts:
		d.Conflicts = slices.DeleteFunc(l.detector.Conflicts(q.All), func(c detector.Conflict) bool { return other(c.Key) })
	case cluster.QueryStories:
		if q.IP.IsValid() {
			d.Stories = l.detector.Explain(q.IP)
		}
	}
	return d
}

// surroundings notes the names of the holders that are there, and who is configured to
// have an address.
func (l *loop) surroundings(c *collection, ip netip.Addr) {
	c.present = make(map[detector.HolderID]named)
	for _, i := range l.interfaces {
		c.present[i.holder] = named{i.Name, i.Place.Label(), i.pod}
		for _, address := range i.View.Addresses {
			if address.IP == ip {
				c.configured = append(c.configured, l.configured(i, address))
			}
		}
	}
	slices.SortFunc(c.configured, func(x, y api.Configured) int { return cmp.Compare(x.Interface, y.Interface) })
}
