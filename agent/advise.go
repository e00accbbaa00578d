package agent

import (
	"cmp"
	"slices"

	"github.com/dupip/dupip/agent/advice"
	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/merge"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// maxRoutes bounds the nodes whose routes to one address are told.
const maxRoutes = 16

// conflict makes the document of a conflict, with where packets go and what to do.
func (c *collection) conflict(conflict detector.Conflict) api.Conflict {
	document := api.NewConflict(conflict)
	if conflict.State != detector.Confirmed || c.advised == maxWays {
		return document
	}
	c.advised++
	leads := c.leads(conflict)
	names := nodeNames(conflict, leads)
	for _, l := range leads {
		document.Routes = append(document.Routes, newRoute(conflict, l, names))
	}
	document.Advice = advice.Of(conflict, leads, names)
	if document.Advice != nil {
		c.locate(document.Advice.Remove, conflict)
	}
	return document
}

// locate adds the addresses of the nodes: one cannot log in to a boot.
func (c *collection) locate(removals []api.Removal, conflict detector.Conflict) {
	for n := range removals {
		r := &removals[n]
		at, ok := c.ways.addresses[conflict.Holders[r.Holder].Holder.ID.Node]
		if ok && r.On != "" {
			r.Address = at.String()
		}
	}
}

// leads are what this node says of the way to an address, and what those nodes say that have
// its holders.
func (c *collection) leads(conflict detector.Conflict) []advice.Lead {
	var leads []advice.Lead
	if l, ok := c.ways.lead(conflict); ok {
		leads = append(leads, advice.Lead{Node: c.ways.self, Lead: l})
	}
	others := slices.SortedStableFunc(slices.Values(c.told[conflict.Key]), func(x, y advice.Lead) int {
		return cmp.Compare(x.Node, y.Node)
	})
	for _, told := range others {
		with := slices.ContainsFunc(conflict.Holders, func(b detector.Binding) bool { return b.Holder.ID.Node == told.Node })
		known := slices.ContainsFunc(leads, func(l advice.Lead) bool { return l.Node == told.Node })
		if with && !known && len(leads) < maxRoutes {
			leads = append(leads, told)
		}
	}
	return leads
}

// hear takes in what the answers say of ways.
func (c *collection) hear() {
	c.told = make(map[detector.Key][]advice.Lead)
	for _, a := range c.answers {
		for _, l := range a.Document.Leads[:min(len(a.Document.Leads), maxWays)] {
			c.told[l.Key] = append(c.told[l.Key], advice.Lead{Node: a.Member.NodeID(), Lead: l})
		}
	}
}

// nodeNames names the nodes of a conflict, by their boots where two have one name.
func nodeNames(conflict detector.Conflict, leads []advice.Lead) func(id string) string {
	var ids []string
	for _, b := range conflict.Holders {
		ids = append(ids, b.Holder.ID.Node)
	}
	for _, l := range leads {
		ids = append(ids, l.Node)
		if l.Lead.Node != "" {
			ids = append(ids, l.Lead.Node)
		}
	}
	names := namesOf(ids)
	return func(id string) string { return names[id] }
}

// namesOf gives each id the name of its node.
func namesOf(ids []string) map[string]string {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	names := make(map[string]string)
	for n, name := range merge.Names(ids) {
		names[ids[n]] = name
	}
	return names
}

var routeKinds = map[cluster.LeadKind]string{
	cluster.LeadUnknown: "unknown", cluster.LeadHolder: "holder", cluster.LeadNode: "node", cluster.LeadAway: "away",
	cluster.LeadDevice: "device", cluster.LeadSelf: "self", cluster.LeadNowhere: "nowhere",
}

// newRoute makes the document of a lead. One to a holder that the conflict does not have leads
// to a device, as far as can be told.
func newRoute(conflict detector.Conflict, l advice.Lead, names func(string) string) api.Route {
	r := api.Route{Node: names(l.Node), To: routeKinds[l.Kind], ToNode: names(l.Lead.Node), Device: l.Device}
	if l.Gateway.IsValid() {
		r.Gateway = l.Gateway.String()
	}
	if l.Kind == cluster.LeadHolder {
		n := slices.IndexFunc(conflict.Holders, func(b detector.Binding) bool { return b.Holder.ID == l.Holder })
		if n < 0 {
			r.To = routeKinds[cluster.LeadDevice]
		} else {
			r.Holder = &n
		}
	}
	return r
}

// reply answers the query of another node. The kernel is asked apart from the loop, and for
// few at a time; who comes when that is too much is told the rest.
func (l *loop) reply(q cluster.Query) {
	document := l.document(q)
	var open []detector.Conflict
	for _, c := range document.Conflicts {
		if c.State == detector.Confirmed {
			open = append(open, c)
		}
	}
	for _, s := range document.Stories {
		if s.Conflict != nil && s.Conflict.State == detector.Confirmed {
			open = append(open, *s.Conflict)
		}
	}
	if len(open) > 0 {
		select {
		case l.asking <- struct{}{}:
			ways := l.ways()
			go func() {
				defer func() { <-l.asking }()
				ways.meet(l.cluster.Members())
				document.Leads = ways.leads(open)
				l.cluster.Reply(q.ID, document)
			}()
			return
		default:
		}
	}
	l.cluster.Reply(q.ID, document)
}
