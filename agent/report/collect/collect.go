// Package collect asks the agents of a cluster and makes the documents of the API from their answers. An agent does so
// for its own API, and the reporter for the whole cluster: it knows nothing of Linux, and nothing of who asks.
package collect

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/judge"
	"github.com/dupip/dupip/document/merge"
)

const (
	// queryTime is how long a query waits for the answers of other nodes.
	queryTime = 5 * time.Second
	// MaxRouted limits the conflicts of one document whose routes are looked up.
	MaxRouted = 64
	// room is for the answers of other nodes, in bytes of JSON: of those that come later only the number of elements is known.
	room = 48 << 20
	// maxDecoding bounds the answers that are decoded at the same time.
	maxDecoding = 2
	// early is how much further back other nodes are asked for conflicts that have ended: a question takes time, and a conflict
	// may have ended on one node before it has on another one.
	early = 2 * time.Minute
)

// Cluster asks the agents of other nodes. Its method is safe for concurrent use.
type Cluster interface {
	// Query queries the other members and calls answer for each answer, a packed [document.Answer], as it comes, by many goroutines. It
	// returns those that had not answered when ctx ended, or whose answer was refused; it fails only if it cannot query anybody.
	Query(ctx context.Context, q cluster.Query, answer func(cluster.Member, []byte) error) (silent []cluster.Member, err error)
}

// Books are the books of the API server. Their methods are safe for concurrent use.
type Books interface {
	// Findings returns what they and the wire say differently, and what is not compared.
	Findings() document.Answer
	// Of returns what they say of an address, About adds that to a conflict, and what the API server says of its holders.
	Of(ip netip.Addr) []document.Book
	About(c *document.Conflict)
}

// Collection is what is known about a query: first [Collection.Add] and [Collection.Ask], then one document. It belongs to one
// goroutine.
type Collection struct {
	// Self is who asks.
	Self  cluster.Member
	Rules merge.Rules
	// Route returns where the asking node sends packets to the address of a conflict, false if that is unknown. It is nil
	// if Self is not the agent of a node.
	Route func(document.Conflict) (document.Route, bool)
	// Configured is where the asking node has the address of a story.
	Configured []document.Configured
	// Books are those of the API server; nil if Self reads none.
	Books Books

	answers  []document.Answer
	coverage document.Coverage
	// addresses are those of live agents, away the absences that other nodes know of, both by NodeID. around is what Self knows of members.
	// judged counts the conflicts with a judgement.
	addresses map[string]netip.Addr
	away      map[string][]document.Absence
	around    judge.Context
	judged    int
}

// Rules returns what a configuration says about merging.
func Rules(c *config.Config) merge.Rules {
	return merge.Rules{
		ClusterWide: func(network string) bool { return c.Scope(network) == config.Cluster },
		Shared:      c.Shared,
	}
}

// Query returns what to ask agents for an answer to q.
func Query(q document.Query, kind cluster.QueryKind) cluster.Query {
	asked := cluster.Query{
		Kind: kind, IP: q.IP, All: q.All, Node: q.Node, Ack: q.Ack,
		Only: cluster.Only{Prefix: q.Prefix, Namespace: q.Namespace, Pod: q.Pod, Network: q.Network},
	}
	if q.Since > 0 {
		asked.Only.Since = q.Since + early
	}
	return asked
}

// Add adds what the asking node's own agent answers.
func (c *Collection) Add(a document.Answer) {
	a.Node, a.BootID, a.Self = c.Self.Name, c.Self.Boot, true
	c.answers = append(c.answers, a)
}

// Empty reports whether nobody has answered.
func (c *Collection) Empty() bool { return len(c.answers) == 0 }

// Alone notes that there are no agents to ask.
func (c *Collection) Alone(q document.Query) {
	if q.Cluster || q.Node != "" {
		c.coverage = document.Coverage{Alone: true, Asked: len(c.answers)}
	}
}

// Ask asks those of the members, agents in any state, that q is about and that have not been added, and adds their answers.
// The error is [document.ErrNoSuchNode] if there are none, and none was added.
func (c *Collection) Ask(ctx context.Context, network Cluster, members []cluster.Member, q document.Query, kind cluster.QueryKind) error {
	c.addMembers(members)
	if !q.Cluster && q.Node == "" {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(members), func(m cluster.Member) bool {
		return m.NodeID() == c.Self.NodeID() || q.Node != "" && m.Name != q.Node
	})
	if len(c.answers)+len(others) == 0 && q.Node != "" {
		return fmt.Errorf("%w as %q: \"dupip nodes\" lists them", document.ErrNoSuchNode, q.Node)
	}
	c.coverage.Asked = len(c.answers)
	if len(others) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	// After an error there are no answers, and all live members are missing.
	var mu sync.Mutex // of c
	var used atomic.Int64
	decoding := make(chan struct{}, maxDecoding)
	silent, _ := network.Query(ctx, Query(q, kind), func(m cluster.Member, packed []byte) error {
		came := time.Now()
		decoding <- struct{}{}
		defer func() { <-decoding }()
		decode := document.DecodeAnswer
		if used.Load() > room {
			decode = document.CountAnswer
		}
		a, size, err := decode(packed, m.Name, m.Boot, came)
		if err != nil {
			return err
		}
		used.Add(int64(size))
		mu.Lock()
		defer mu.Unlock()
		c.answers = append(c.answers, a)
		c.away[m.NodeID()] = a.Absences
		return nil
	})
	c.answers = merge.Join(c.answers)
	answered := make(map[string]bool)
	for _, a := range c.answers {
		answered[a.NodeID()] = true
	}
	// If a node that was asked for by name has no live agent, its dead ones are missing.
	dead := q.Node != "" && len(c.answers) == c.coverage.Asked && !slices.ContainsFunc(others, cluster.Member.Live)
	var missing []string
	for n, m := range slices.Concat(silent, others) {
		id := m.NodeID()
		if (n < len(silent) || dead && len(silent) == 0 || m.Live()) && !answered[id] && !slices.Contains(missing, id) {
			missing = append(missing, id)
		}
	}
	c.coverage.Asked = len(c.answers) + len(missing)
	c.coverage.Missing = merge.NameList(missing)
	slices.Sort(c.coverage.Missing)
	return nil
}

func (c *Collection) addMembers(members []cluster.Member) {
	c.addresses, c.away, c.around = make(map[string]netip.Addr), make(map[string][]document.Absence), judge.Around(members)
	for _, m := range members {
		if at, err := netip.ParseAddrPort(m.Address); err == nil && m.Live() {
			c.addresses[m.NodeID()] = at.Addr().Unmap()
		}
	}
}

// covered returns who answered, and that so many elements were omitted.
func (c *Collection) covered(omitted int) document.Coverage {
	c.coverage.Omitted = omitted
	c.coverage.Partial = len(c.coverage.Missing) > 0 || omitted > 0
	return c.coverage
}
