package report

import (
	"context"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/dupip/dupip/agent/paths"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// askTime is how long the agent of another node may take to say where it sends packets, or whose an address is.
const askTime = 3 * time.Second

// FollowPaths looks where this node sends packets to pods, until ctx ends. An agent alone looks at its own.
func (r *Report) FollowPaths(ctx context.Context) {
	changed, err := r.watch(ctx)
	if err != nil { // else the looks that come without a change find all
		r.Log.Warn("changes of routes are seen up to 10 s late", "error", err)
	}
	r.paths.Run(ctx, changed)
}

// shadows are those that the last list of routes had, with these members.
type shadows struct {
	list  []paths.Range
	nodes map[netip.Addr]string
}

// lookAround returns what this node knows now. It is for one goroutine. changed says that routes may have changed.
func (r *Report) lookAround(ctx context.Context, changed bool) (*paths.View, error) {
	var s *routes
	v := paths.View{Own: make(map[netip.Addr]bool)}
	err := r.whenReady(ctx, func() {
		s = r.newRoutes()
		disputed := make(map[detector.Key]bool)
		for _, c := range r.Detector.Conflicts(false) {
			disputed[c.Key] = true
		}
		for _, b := range r.holding(s, netip.Addr{}) {
			if v.Own[b.Key.IP] = true; !disputed[b.Key] {
				v.Pods = append(v.Pods, document.NewBinding(b))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	s.addMembers(r.members())
	if changed || !maps.Equal(s.nodes, r.shadows.nodes) {
		list, whole := s.shadows()
		if !whole { // the next change comes at once, and has the others
			list = append(list, r.shadows.list...)
		}
		r.shadows = shadows{list[:min(len(list), paths.MaxRanges)], s.nodes}
	}
	v.Routes, v.Shadows = s.legs, r.shadows.list
	return &v, nil
}

// ask asks the agent of another node about addresses.
func (r *Report) ask(ctx context.Context, kind cluster.QueryKind, node string, about netip.Prefix) (found document.Answer, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	q := cluster.Query{Kind: kind, Node: cluster.NodeName(node), Only: cluster.Only{Prefix: about}}
	if about.IsSingleIP() {
		q.IP, q.Only.Prefix = about.Addr(), netip.Prefix{}
	}
	var mu sync.Mutex
	// Of namesakes both answer.
	_, _ = r.Cluster.Query(ctx, q, func(m cluster.Member, packed []byte) error {
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
