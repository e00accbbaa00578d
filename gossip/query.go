package gossip

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// maxQueries bounds the queries of this node that are under way.
	maxQueries = 8
	// A query asks maxAsking members at the same time, in random order. Each has askTimeout to begin its reply: those
	// that do not answer delay nobody. maxReading replies are read at the same time, which bounds memory.
	maxAsking  = 512
	askTimeout = 2 * time.Second
	maxReading = 16

	// Each document takes a look at all that the agent knows: at most so many at once, and so many per second.
	documentRate, documentBurst = 50, 100
)

var (
	errQueries = errors.New("too many queries are under way; try again in a moment")
	errNobody  = errors.New("no agent of that name is alive")
)

// Query requests documents from the other members, and hands them over as they come, one at a time. It returns the
// members that did not answer before ctx ended, and an error if it cannot ask anybody.
func (g *Gossip) Query(ctx context.Context, asked cluster.Query, answer func(cluster.Answer)) (missing []cluster.Member, err error) {
	if asked.Kind == cluster.QueryStories && !asked.IP.IsValid() {
		return nil, errors.New("querying stories: no address")
	}
	if !g.serving.begin() {
		return nil, errQueries
	}
	defer g.serving.end()
	live, missing := g.queried(asked.Node)
	if len(live)+len(missing) == 0 {
		return nil, fmt.Errorf("querying: %w", errNobody)
	}
	request := wire.Marshal(wire.Query{Kind: asked.Kind, IP: asked.IP, All: asked.All})
	rand.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
	var wg sync.WaitGroup
	var mu sync.Mutex // of missing and answer
	asking, reading := make(chan struct{}, maxAsking), make(chan struct{}, maxReading)
	for _, m := range live {
		asking <- struct{}{}
		wg.Go(func() {
			defer func() { <-asking }()
			d, err := g.query(ctx, m, request, reading)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				g.log.Debug("querying a member", "node", m.Name, "error", err)
				missing = append(missing, m)
				return
			}
			answer(cluster.Answer{Member: m, Document: d})
		})
	}
	wg.Wait()
	return missing, nil
}

// query requests the document of one member.
func (g *Gossip) query(ctx context.Context, m cluster.Member, request []byte, reading chan struct{}) (cluster.Document, error) {
	if ctx.Err() != nil {
		return cluster.Document{}, ctx.Err()
	}
	g.count.send(wire.KindQuery, 1)
	reply, err := g.network.Request(ctx, wire.MemberIDOf(m.Name, m.Boot, m.Epoch), request, reading)
	if err != nil {
		return cluster.Document{}, err
	}
	g.count.receive(wire.KindQueryReply, 1)
	return wire.UnmarshalDocument(reply, m.NodeID(), time.Now())
}

// queried returns the members to ask, those with a node name or all, and those of them that are dead, unless another
// agent of that name is there.
func (g *Gossip) queried(node string) (live, dead []cluster.Member) {
	g.state.Lock()
	defer g.state.Unlock()
	for n := range g.roster.All() {
		switch {
		case n == g.roster.Self(), node != "" && n.Name != node, !n.IsAgent():
		case n.Alive():
			live = append(live, n.Member)
		case n.State == cluster.Dead && g.roster.Namesake(n) == nil:
			dead = append(dead, n.Member)
		}
	}
	return live, dead
}

// serving are the queries of other nodes that wait for the agent, and the number of this node's.
type serving struct {
	mu    sync.Mutex
	own   int
	open  map[uint64]chan cluster.Document
	limit *rate.Limiter
}

func (s *serving) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own >= maxQueries {
		return false
	}
	s.own++
	return true
}

func (s *serving) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own--
}

// serve answers a query of another node. Without an answer it returns nil.
func (g *Gossip) serve(ctx context.Context, request []byte) []byte {
	var q wire.Query
	unknown, err := wire.Unmarshal(request, &q)
	if unknown {
		g.count.drop(dropField)
	}
	if err != nil || q.Kind < cluster.QueryBindings || q.Kind > cluster.QueryStories || q.Kind == cluster.QueryStories && !q.IP.IsValid() {
		g.count.drop(dropMalformed)
		return nil
	}
	g.count.receive(wire.KindQuery, 1)
	s, id, answer := &g.serving, rand.Uint64(), make(chan cluster.Document, 1)
	s.mu.Lock()
	if s.limit == nil {
		s.limit = rate.NewLimiter(documentRate, documentBurst)
	}
	allowed := s.limit.Allow()
	if allowed {
		s.open[id] = answer
	}
	s.mu.Unlock()
	if !allowed {
		g.count.drop(dropQueries)
		return nil
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, id)
	}()
	if !g.deliver(cluster.Query{ID: id, Kind: q.Kind, IP: q.IP, All: q.All}) {
		return nil
	}
	select {
	case d := <-answer:
		g.count.send(wire.KindQueryReply, 1)
		return wire.MarshalDocument(d, g.nodeID, transport.MaxReply, time.Now())
	case <-ctx.Done():
		return nil
	}
}

// Reply answers the [cluster.Query] message with that ID.
func (g *Gossip) Reply(id uint64, d cluster.Document) {
	g.serving.mu.Lock()
	defer g.serving.mu.Unlock()
	if answer := g.serving.open[id]; answer != nil {
		answer <- d // has room: nobody answers twice
		delete(g.serving.open, id)
	}
}
