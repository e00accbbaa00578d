package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/report/collect"
	"github.com/dupip/dupip/cmd/reporter/books"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
	"github.com/dupip/dupip/gossip"
	"github.com/dupip/dupip/gossip/members"
)

// member runs a real member of gossip on loopback until the test ends, and calls receive for each of its messages.
func member(t *testing.T, opts members.Options, receive func(cluster.Query)) *gossip.Gossip {
	t.Helper()
	opts.Log, opts.Bind, opts.Boot, opts.Epoch = slog.New(slog.DiscardHandler), "127.0.0.1", "boot", time.Now().UnixNano()
	g, err := gossip.New(gossip.Options{Members: opts})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case m := <-g.Messages():
				if q, ok := m.(cluster.Query); ok {
					receive(q)
				}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return g
}

// TestAskedAtOnce: few documents are made at the same time, a list of all bindings alone; what is remembered waits for none.
func TestAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := newDocuments(cluster.Member{}, nil, merge.Rules{}, books.New(books.Options{}), func() string { return "" }), document.Query{Cluster: true}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.asked.Acquire(ctx, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Bindings(ctx, all); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("bindings beside another document: %v", err)
		}
		if err := d.asked.Acquire(t.Context(), maxAsked-1); err != nil {
			t.Fatal(err)
		}
		known := d.answer(question{cluster.QueryConflicts, all})
		known.doc, known.until = []byte(`{"node":"r1"}`), time.Now().Add(time.Second)
		if doc, err := d.Conflicts(t.Context(), all); err != nil || doc.Node != "r1" {
			t.Errorf("a remembered document: %+v, %v", doc, err)
		}
	})
}

// TestDocuments: the reporter asks an agent once for what several clients want now, and each gets a copy of its own.
func TestDocuments(t *testing.T) {
	key := detector.Key{Network: "default", IP: netip.MustParseAddr("10.0.0.7")}
	holding := func(node string, netns uint64) detector.Binding {
		return detector.Binding{
			Key: key, Holder: detector.Holder{ID: detector.HolderID{Node: cluster.NodeID(node, "boot"), Netns: netns}},
			Evidence: detector.Announced, FirstSeen: time.Now(), LastSeen: time.Now(),
		}
	}
	conflict := detector.Conflict{
		ID: "x-1", Key: key, State: detector.Confirmed, Scope: detector.CrossNode, SuspectedAt: time.Now(), ConfirmedAt: time.Now(),
		Holders: []detector.Binding{holding("n1", 1), holding("n2", 2)},
	}
	var queries atomic.Int64
	agent := member(t, members.Options{Node: "n1"}, func(q cluster.Query) {
		queries.Add(1)
		answers := map[cluster.QueryKind]document.Answer{
			cluster.QueryConflicts: {Conflicts: []document.Conflict{document.NewConflict(conflict)}},
			cluster.QueryCaptures: {Captures: []document.Capture{{
				Conflict: "x-1", Network: key.Network, IP: key.IP, Holder: document.NewHolder(holding("n1", 1).Holder),
				Frames: []document.Frame{{At: time.Now(), Length: 42, Data: []byte{7}}},
			}}, Unchecked: []string{"nothing"}},
			cluster.QueryFindings: {Findings: []document.Finding{{Kind: document.Unreserved, IP: key.IP, Holder: document.NewHolder(holding("n1", 1).Holder), Contested: true}}},
			cluster.QueryStatus:   {Status: &document.Status{Node: "another", Version: "0.2.0"}},
		}
		answer := answers[q.Kind]
		answer.At = time.Now()
		packed, err := answer.Encode(q.Limit)
		if err != nil {
			t.Error(err)
		}
		q.Answer <- packed
	})
	reporter := member(t, members.Options{Node: "r1", Role: cluster.Reporter, Join: []string{agent.Status().Address}}, func(cluster.Query) {})
	for deadline := time.Now().Add(time.Minute); len(reporter.Members()) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the reporter sees no agent")
		}
	}
	d := newDocuments(cluster.Member{Name: "r1", Boot: "boot", Role: cluster.Reporter}, reporter, collect.Rules(new(config.Config)), books.New(books.Options{}), func() string { return "" })
	first, err := d.Conflicts(t.Context(), document.Query{Cluster: true})
	if err != nil || len(first.Conflicts) != 1 || first.Node != "r1" || first.Asked != 1 || first.Partial || first.Conflicts[0].Judgement == nil {
		t.Fatalf("%+v, %v", first, err)
	}
	first.Conflicts[0].Holders[0].Node = "changed"
	// The same question is remembered for a while, and asked again after that.
	d.answer(question{cluster.QueryConflicts, document.Query{Cluster: true}}).until = time.Now().Add(time.Hour)
	again, err := d.Conflicts(t.Context(), document.Query{Cluster: true})
	if err != nil || again.Conflicts[0].Holders[0].Node != "n1" || queries.Load() != 1 {
		t.Errorf("%+v, %v after %d queries", again, err, queries.Load())
	}
	d.answer(question{cluster.QueryConflicts, document.Query{Cluster: true}}).until = time.Now()
	if _, err := d.Conflicts(t.Context(), document.Query{Cluster: true}); err != nil || queries.Load() != 2 {
		t.Errorf("%v after %d queries", err, queries.Load())
	}

	captures, err := d.Captures(t.Context(), document.Query{Cluster: true, IP: key.IP})
	if err != nil || len(captures.Captures) != 1 || captures.Captures[0].Node != "n1" || captures.Captures[0].Frames[0].Data[0] != 7 ||
		captures.Unchecked[0] != "on node n1, nothing" {
		t.Errorf("%+v, %v", captures, err)
	}
	if _, err := d.Captures(t.Context(), document.Query{IP: key.IP}); !errors.Is(err, errNoCluster) {
		t.Errorf("of no node: %v", err)
	}

	// A node's status is that of the node that answered, whatever it says.
	status, err := d.Status(t.Context(), document.Query{Node: "n1"})
	if err != nil || status.Node != "n1" || status.Version != "0.2.0" {
		t.Errorf("%+v, %v", status, err)
	}
	for node, want := range map[string]string{"": "name it with node=", "n9": "no such node"} {
		if _, err := d.Status(t.Context(), document.Query{Node: node}); !errors.Is(err, document.ErrNoSuchNode) || !strings.Contains(err.Error(), want) {
			t.Errorf("of %q: %v, want %q", node, err, want)
		}
	}

	// Agents and reporters, and what agents said of their nodes.
	said := time.Now()
	d.summarize("n1/boot", cluster.Summary{Interfaces: map[string]int{"attached": 7}}, said)
	d.summarize("gone/boot", cluster.Summary{}, said)
	d.forget(reporter.Members())
	nodes, err := d.Nodes(t.Context(), document.Query{})
	if err != nil || len(nodes.Nodes) != 2 || nodes.Nodes[0].Interfaces["attached"] != 7 || !nodes.Nodes[0].Reported.Equal(said) || nodes.Nodes[1].Role != "reporter" {
		t.Errorf("%+v, %v", nodes, err)
	}
	if len(d.summaries) != 1 {
		t.Errorf("%d summaries", len(d.summaries))
	}
	// The page is there, and other sites do not read anything.
	for _, tt := range []struct {
		host, path, word string
		code             int
	}{
		{"127.0.0.1:9953", "/v1/conflicts?cluster=1", `"ip":"10.0.0.7"`, 200},
		{"127.0.0.1:9953", "/v1/conflicts", "add cluster=1", 503},
		{"127.0.0.1:9953", "/v1/bindings?watch=1", "add cluster=1", 503},
		{"localhost:40000", "/", "10.0.0.7", 200},
		{"localhost:40000", "/audit", "&#34;kubectl dupip --dupip-namespace net explain 10.0.0.7&#34;", 200},
		{"rebound.example", "/v1/conflicts", "localhost", 403},
		{"rebound.example", "/", "localhost", 403},
	} {
		answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, tt.path, nil)
		request.Host = tt.host
		if d.handler("kubectl dupip --dupip-namespace net").ServeHTTP(answer, request); answer.Code != tt.code || !strings.Contains(answer.Body.String(), tt.word) {
			t.Errorf("%s%s: %d %s", tt.host, tt.path, answer.Code, answer.Body)
		}
	}
	// The number of remembered documents is bounded.
	for n := range 3 * maxRemembered {
		d.answer(question{cluster.QueryBindings, document.Query{Pod: strings.Repeat("p", n)}})
	}
	if len(d.remembered) > maxRemembered {
		t.Errorf("%d are remembered", len(d.remembered))
	}
}
