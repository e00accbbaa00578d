package report

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// askTime is how long the agent of another node may take to say where it sends packets, or whose an address is.
const askTime = 3 * time.Second

// FollowPaths follows packets to addresses of other nodes' pods, until ctx ends. An agent alone has none.
func (r *Report) FollowPaths(ctx context.Context) { r.paths.Run(ctx) }

// ownRoutes returns a function that returns where this node sends packets to an address. It is for one goroutine.
func (r *Report) ownRoutes(ctx context.Context) (func(netip.Addr) []document.Route, error) {
	var routes *routes
	var looked lookedAt
	if err := r.whenReady(ctx, func() { routes, looked = r.newRoutes(), r.look(time.Now()) }); err != nil {
		return nil, err
	}
	routes.addMembers(r.members())
	r.findSegment(looked, routes.nodes)
	return routes.legs, nil
}

// ask asks the agent of another node about an address.
func (r *Report) ask(ctx context.Context, kind cluster.QueryKind, node string, ip netip.Addr) (found document.Answer, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var mu sync.Mutex
	// Of namesakes both answer.
	_, _ = r.Cluster.Query(ctx, cluster.Query{Kind: kind, Node: cluster.NodeName(node), IP: ip}, func(m cluster.Member, packed []byte) error {
		a, _, err := document.DecodeAnswer(packed, m.Name, m.Boot, time.Now())
		if err == nil && m.NodeID() == node {
			mu.Lock()
			defer mu.Unlock()
			found, ok = a, true
		}
		return err
	})
	return found, ok
}
