package gossip

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// maxQueries bounds the queries of this node that are under way.
	maxQueries = 8
	// A query asks maxAsking members at the same time, in random order. One that has not replied after askTimeout
	// makes room for another, so that it delays nobody. maxReading replies are in memory at the same time.
	maxAsking  = 512
	askTimeout = 2 * time.Second
	maxReading = 16

	// Each answer takes a look at all that the agent knows: at most so many at once, and so many per second.
	answerRate, answerBurst = 50, 100
)

// queries asks other nodes, and has the agent answer them. It must not know what answers say. Its methods are safe for concurrent use.
type queries struct {
	log     *slog.Logger
	network Network
	peers   *peers
	count   *counters
	own     chan struct{} // of this node, under way
	answers *rate.Limiter // for other nodes
}

// Query requests answers from the other members, and hands them over as they come, by many goroutines. It returns the members that did
// not answer before ctx ended, or whose answer was refused, and an error if it cannot ask anybody.
func (g *Gossip) Query(ctx context.Context, asked cluster.Query, answer func(cluster.Member, []byte) error) (missing []cluster.Member, err error) {
	if needsIP(asked.Kind) && !asked.IP.IsValid() {
		return nil, errors.New("a query about one address has none")
	}
	select {
	case g.queries.own <- struct{}{}:
		defer func() { <-g.queries.own }()
	default:
		return nil, errors.New("too many queries are under way; try again in a moment")
	}
	g.state.Lock()
	live, missing := queried(g.roster, asked.Node)
	g.state.Unlock()
	if len(live)+len(missing) == 0 {
		return nil, errors.New("querying: no other agent of that name is known")
	}
	return append(missing, g.queries.ask(ctx, live, asked, answer)...), nil
}

// ask requests answers from members, and returns those that gave none.
func (g *queries) ask(ctx context.Context, live []cluster.Member, asked cluster.Query, answer func(cluster.Member, []byte) error) (missing []cluster.Member) {
	request := wire.Marshal(wire.Query{Kind: asked.Kind, IP: asked.IP, All: asked.All, Only: asked.Only, Ack: asked.Ack})
	rand.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
	var wg sync.WaitGroup
	var mu sync.Mutex // of missing
	asking, reading := make(chan struct{}, maxAsking), make(chan struct{}, maxReading)
	for _, m := range live {
		asking <- struct{}{}
		next := sync.OnceFunc(func() { <-asking })
		timer := time.AfterFunc(askTimeout, next)
		wg.Go(func() {
			defer timer.Stop()
			defer next()
			err := g.query(ctx, m, request, reading, func(reply []byte) error {
				next()
				err := answer(m, reply)
				if err != nil {
					g.count.drop(dropMalformed)
				}
				return err
			})
			if err == nil {
				return
			}
			g.log.Debug("querying a member failed", "node", m.Name, "error", err)
			mu.Lock()
			defer mu.Unlock()
			missing = append(missing, m)
		})
	}
	wg.Wait()
	return missing
}

// needsIP reports whether queries of a kind are about one address.
func needsIP(k cluster.QueryKind) bool {
	return k == cluster.QueryStories || k == cluster.QueryCaptures || k == cluster.QueryAck
}

// query requests the answer of one member.
func (g *queries) query(ctx context.Context, m cluster.Member, request []byte, reading chan struct{}, answer func([]byte) error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	g.count.send(wire.KindQuery, 1)
	return g.network.Request(ctx, wire.MemberIDOf(m.Name, m.Boot, m.Epoch), request, reading, func(reply []byte) error {
		g.count.receive(wire.KindQueryReply, 1)
		return answer(reply)
	})
}

// queried returns the members to ask, those with a node name or all, and those of them that are dead, unless another
// agent of that name is there.
func queried(r *roster.Roster, node string) (live, dead []cluster.Member) {
	for n := range r.All() {
		switch {
		case n == r.Self(), node != "" && n.Name != node, !n.IsAgent():
		case n.Alive():
			live = append(live, n.Member)
		case n.State == cluster.Dead && !r.HasNamesake(n):
			dead = append(dead, n.Member)
		}
	}
	return live, dead
}

// serve answers a query of another node. Without an answer it returns nil.
func (g *queries) serve(ctx context.Context, request []byte) []byte {
	var q wire.Query
	unknown, err := wire.Unmarshal(request, &q)
	g.count.field(unknown)
	if err != nil || q.Kind < cluster.QueryBindings || q.Kind > cluster.QueryAck || needsIP(q.Kind) && !q.IP.IsValid() {
		g.count.drop(dropMalformed)
		return nil
	}
	g.count.receive(wire.KindQuery, 1)
	if !g.answers.Allow() {
		g.count.drop(dropQueries)
		return nil
	}
	answer := make(chan []byte, 1)
	if !g.peers.deliver(cluster.Query{Kind: q.Kind, Answer: answer, Limit: transport.MaxReply, IP: q.IP, All: q.All, Only: q.Only, Ack: q.Ack}) {
		return nil
	}
	select {
	case reply := <-answer:
		g.count.send(wire.KindQueryReply, 1)
		return reply
	case <-ctx.Done():
		return nil
	}
}
