package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/report/collect"
	"github.com/dupip/dupip/cmd/internal/page"
	"github.com/dupip/dupip/cmd/reporter/books"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
	"github.com/dupip/dupip/gossip"
)

const (
	// A document is not asked for again for rememberFor, or rememberShare times as long as the answers took, up to rememberMost:
	// many pages cost the agents as much as one.
	rememberFor, rememberMost = time.Second, 5 * time.Second
	rememberShare             = 4
	// maxRemembered bounds the documents that are kept, and rememberedSize each of them, in bytes.
	maxRemembered, rememberedSize = 32, 1 << 20
	// maxWatches bounds the watches of all people, for which the documents are remembered.
	maxWatches = 32
	// maxAsked bounds the documents that are made at the same time. A list of the bindings of all nodes takes all the memory that
	// there is for them.
	maxAsked = 4
)

// documents makes the documents of the whole cluster, by asking the agents. It implements [api.Backend] and is safe for concurrent
// use.
type documents struct {
	self   cluster.Member
	gossip *gossip.Gossip
	rules  merge.Rules
	// books are those of the API server; leader returns the identity of the replica that reads them.
	books  *books.Books
	leader func() string

	mu         sync.Mutex
	asked      *semaphore.Weighted // of maxAsked
	remembered map[question]*answer
	summaries  map[string]summary // by NodeID
}

var _ api.Backend = (*documents)(nil)

var errNoCluster = errors.New("a reporter is on no node: add cluster=1, or name a node")

// question is what a document depends on.
type question struct {
	kind  cluster.QueryKind
	query document.Query
}

// answer is a document in JSON, because whoever gets one may change it. Its lock is held while the agents are asked.
type answer struct {
	sync.Mutex
	doc   []byte
	until time.Time
}

// summary is what an agent last said of its node.
type summary struct {
	cluster.Summary
	at time.Time
}

func newDocuments(self cluster.Member, g *gossip.Gossip, rules merge.Rules, b *books.Books, leader func() string) *documents {
	return &documents{self: self, gossip: g, rules: rules, books: b, leader: leader, asked: semaphore.NewWeighted(maxAsked), remembered: make(map[question]*answer), summaries: make(map[string]summary)}
}

// handler serves the documents, and a page of them with commands of the program.
func (d *documents) handler(program string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/", api.LocalOnly(api.NewHandler(d, maxWatches)))
	mux.Handle("/", page.New(d, program))
	return mux
}

// summarize takes what an agent says of its node.
func (d *documents) summarize(node string, s cluster.Summary, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.summaries[node] = summary{s, now}
}

// forget forgets the nodes that are no members any more.
func (d *documents) forget(members []cluster.Member) {
	known := make(map[string]bool, len(members))
	for _, m := range members {
		known[m.NodeID()] = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.summaries, func(node string, _ summary) bool { return !known[node] })
}

func (d *documents) Bindings(ctx context.Context, q document.Query) (document.Bindings, error) {
	return ask(ctx, d, question{cluster.QueryBindings, q}, func(c *collect.Collection) (document.Bindings, error) { return c.Bindings(q), nil })
}

func (d *documents) Conflicts(ctx context.Context, q document.Query) (document.Conflicts, error) {
	return ask(ctx, d, question{cluster.QueryConflicts, q}, func(c *collect.Collection) (document.Conflicts, error) { return c.Conflicts(q), nil })
}

func (d *documents) Explain(ctx context.Context, q document.Query) (document.Explanation, error) {
	return ask(ctx, d, question{cluster.QueryStories, q}, func(c *collect.Collection) (document.Explanation, error) { return c.Explanation(q), nil })
}

func (d *documents) Audit(ctx context.Context, q document.Query) (document.Audit, error) {
	return ask(ctx, d, question{cluster.QueryFindings, q}, func(c *collect.Collection) (document.Audit, error) { return c.Audit(q), nil })
}

func (d *documents) Captures(ctx context.Context, q document.Query) (document.Captures, error) {
	return ask(ctx, d, question{cluster.QueryCaptures, q}, func(c *collect.Collection) (document.Captures, error) { return c.Captures(q), nil })
}

// Status implements [api.Backend], for the agent of q.Node.
func (d *documents) Status(ctx context.Context, q document.Query) (document.Status, error) {
	if q.Node == "" {
		return document.Status{}, fmt.Errorf("%w: a status is that of one node, name it with node=", document.ErrNoSuchNode)
	}
	return ask(ctx, d, question{cluster.QueryStatus, q}, func(c *collect.Collection) (document.Status, error) { return c.Status(q.Node) })
}

// Nodes implements [api.Backend].
func (d *documents) Nodes(_ context.Context, q document.Query) (document.Nodes, error) {
	status := d.gossip.Status()
	members := append(d.gossip.Members(), status.Reporters...)
	doc := document.Nodes{Node: d.self.Name, Nodes: make([]document.Node, 0, len(members)), Cluster: document.ClusterStatus{Status: status}}
	doc.Leader, _, _ = strings.Cut(d.leader(), "_")
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range members {
		if q.State != "" && q.State != string(m.State) {
			continue
		}
		node := document.Node{Member: m}
		if s, ok := d.summaries[m.NodeID()]; ok {
			node.Interfaces, node.Findings = maps.Clone(s.Interfaces), maps.Clone(s.Findings)
			node.Audit, node.Reported = s.Audit, s.at.Round(0)
		}
		doc.Nodes = append(doc.Nodes, node)
	}
	return doc, nil
}

// WatchConflicts implements [api.Backend]. The agents have the events: a watch of the whole cluster asks them again and again.
func (d *documents) WatchConflicts(context.Context) (<-chan document.ConflictEvent, error) {
	return nil, errNoCluster
}

// ask asks the agents that a question is about, unless they were asked just now.
func ask[T any](ctx context.Context, d *documents, about question, compose func(*collect.Collection) (T, error)) (doc T, err error) {
	if !about.query.Cluster && about.query.Node == "" {
		return doc, errNoCluster
	}
	a := d.answer(about)
	a.Lock()
	defer a.Unlock()
	if time.Now().Before(a.until) { // without a turn: it is small
		return doc, json.Unmarshal(a.doc, &doc)
	}
	weight := int64(1)
	if about.kind == cluster.QueryBindings && about.query.Cluster {
		weight = maxAsked
	}
	if err := d.asked.Acquire(ctx, weight); err != nil {
		return doc, err
	}
	defer d.asked.Release(weight)
	began := time.Now()
	c := &collect.Collection{Self: d.self, Rules: d.rules, Books: d.books}
	if err = c.Ask(ctx, d.gossip, d.gossip.Members(), about.query, about.kind); err != nil {
		return doc, err
	}
	if c.Empty() && about.query.Cluster {
		// It would look as if all were well.
		return doc, errors.New("no agent answers: check the gossip port and key between this reporter and the nodes, or try again in a moment")
	}
	// A client that has gone has stopped the query.
	if doc, err = compose(c); err != nil || ctx.Err() != nil {
		return doc, err
	}
	now := time.Now()
	text, err := json.Marshal(doc)
	if a.doc = nil; len(text) <= rememberedSize {
		a.doc, a.until = text, now.Add(min(max(rememberFor, rememberShare*now.Sub(began)), rememberMost))
	}
	return doc, err
}

// answer returns where the answer to a question is kept.
func (d *documents) answer(about question) *answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.remembered[about]; a != nil {
		return a
	}
	if len(d.remembered) >= maxRemembered {
		clear(d.remembered) // rather than some of them: this is rare
	}
	a := new(answer)
	d.remembered[about] = a
	return a
}
