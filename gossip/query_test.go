package gossip

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/internal/testneeds"
)

// says has a node's agent answer every query so.
func (n *fakeNode) says(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = func(cluster.Query) []byte { return []byte(text) }
}

// result is what a query brings.
type result struct {
	answers map[string]string // by node name
	at      []time.Duration   // after the query began
	missing []string
	err     error
}

// query queries for at most that time.
func (n *fakeNode) query(t *testing.T, within time.Duration, q cluster.Query) result {
	t.Helper()
	return n.queryBut(t, within, q, "nonsense")
}

// queryBut queries, and refuses answers with that text.
func (n *fakeNode) queryBut(t *testing.T, within time.Duration, q cluster.Query, refused string) result {
	t.Helper()
	synctest.Wait() // until it knows the members
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	began := time.Now()
	r := result{answers: make(map[string]string)}
	var mu sync.Mutex
	missing, err := n.Query(ctx, q, func(m cluster.Member, answer []byte) error {
		mu.Lock()
		defer mu.Unlock()
		if _, twice := r.answers[m.Name]; twice {
			t.Errorf("%s answers twice", m.Name)
		}
		if string(answer) == refused {
			return errors.New("it makes no sense")
		}
		r.answers[m.Name], r.at = string(answer), append(r.at, time.Since(began))
		return nil
	})
	for _, m := range missing {
		r.missing = append(r.missing, m.Name)
	}
	slices.Sort(r.missing)
	r.err = err
	return r
}

func TestQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(6)
		want := make(map[string]string)
		for i, n := range nodes {
			text := strings.Repeat("\x00\xff"+n.member.Name, i*i*1000) // that of node-0 is empty
			n.says(text)
			if n != nodes[2] { // it is not asked by itself
				want[n.member.Name] = text
			}
		}
		r := nodes[2].query(t, time.Minute, cluster.Query{Kind: cluster.QueryBindings})
		if !maps.Equal(want, r.answers) || len(r.missing) > 0 || r.err != nil {
			t.Errorf("%d answers that are not what was said, missing %v, %v", len(r.answers), r.missing, r.err)
		}
		if s := nodes[2].Status(); len(s.Sent) != int(wire.Kinds)-1 || len(s.Received) != len(s.Sent) || s.Sent["query"] != 5 || s.Received["query_reply"] != 5 || nodes[1].Status().Received["query"] != 1 {
			t.Errorf("sent %v, received %v", s.Sent, s.Received)
		}
		// The agent gets the query as it was, without whom it was for.
		asked := cluster.Query{Kind: cluster.QueryConflicts, IP: testKey(3).IP, All: true, Node: "node-1", Only: cluster.Only{Since: 12 * time.Hour}, Ack: cluster.Ack{By: "alice", Seconds: 60}}
		nodes[1].forgetMessages()
		r = nodes[0].query(t, time.Second, asked)
		got, _ := messages[cluster.Query](nodes[1])
		if len(got) != 1 || got[0].Answer == nil || got[0].Limit != transport.MaxReply || len(r.answers) != 1 || len(r.missing) != 0 {
			t.Fatalf("node-1 was asked %+v; %d answers, missing %v", got, len(r.answers), r.missing)
		}
		got[0].Answer, got[0].Limit, asked.Node = nil, 0, ""
		if got[0] != asked {
			t.Errorf("node-1 was asked %+v, want %+v", got[0], asked)
		}
		for _, q := range []cluster.Query{{Kind: cluster.QueryBindings, Node: "node-9"}, {Kind: cluster.QueryBindings, Node: "node-0"}, {Kind: cluster.QueryStories}, {Kind: cluster.QueryCaptures}, {Kind: cluster.QueryAck}} {
			if r := nodes[0].query(t, time.Second, q); r.err == nil {
				t.Errorf("%+v: %+v", q, r)
			}
		}
	})
}

// Members that do not answer delay nobody, and are named at the end of the time; the others' answers come at once.
func TestSilentMembers(t *testing.T) {
	if testneeds.Raced {
		t.Skip("800 members take a minute with the race detector")
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(800)
		silent := func(name string) bool { return len(name) == len("node-100") && name < "node-7" } // 600
		for _, n := range nodes {
			if n.member.Name[5]%2 == 0 || !silent(n.member.Name) { // the others' agents hang
				n.says("three bindings")
			}
		}
		f.set(func() { f.cut = func(_, to string) bool { return silent(to) && to[5]%2 == 0 } })
		r := nodes[799].query(t, 6*time.Second, cluster.Query{Kind: cluster.QueryBindings})
		if len(r.answers) != 199 || len(r.missing) != 600 || slices.ContainsFunc(r.missing, func(name string) bool { return !silent(name) }) {
			t.Fatalf("%d answers, %d missing", len(r.answers), len(r.missing))
		}
		if last := r.at[len(r.at)-1]; last > 2*askTimeout+100*time.Millisecond {
			t.Errorf("the last answer came after %v", last)
		}
		soon := 0
		for _, at := range r.at {
			if at < 100*time.Millisecond {
				soon++
			}
		}
		// Of the 512 that are asked first a quarter answers, and makes room.
		if soon < 100 {
			t.Errorf("%d answers came at once", soon)
		}
	})
}

// Who is dead, cannot be reached or restarted meanwhile is named, and the others' answers are there.
func TestQueryMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(7)
		for i, n := range nodes {
			if i != 3 { // its agent hangs
				n.says(n.member.Name)
			}
		}
		f.set(func() { f.cut = func(_, to string) bool { return to == "node-4" } })
		nodes[5].kill()
		nodes[6].leave()
		start := time.Now()
		r := nodes[0].query(t, 5*time.Second, cluster.Query{Kind: cluster.QueryBindings})
		if want := map[string]string{"node-1": "node-1", "node-2": "node-2"}; !maps.Equal(want, r.answers) {
			t.Errorf("answers %v, want %v", r.answers, want)
		}
		if want := []string{"node-3", "node-4", "node-5"}; !slices.Equal(r.missing, want) {
			t.Errorf("missing %v, want %v", r.missing, want)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("took %v", took)
		}
		f.start("node-5", "another", 1).says("hello")
		r = nodes[0].query(t, 5*time.Second, cluster.Query{Kind: cluster.QueryBindings})
		if slices.Contains(r.missing, "node-5") || r.answers["node-5"] != "hello" {
			t.Errorf("missing %v, answered %v: node-5 is back", r.missing, r.answers)
		}
		if !slices.Equal(nodes[0].query(t, time.Second, cluster.Query{Kind: cluster.QueryBindings, Node: "node-4"}).missing, []string{"node-4"}) {
			t.Error("one that was asked for by name is not named")
		}
	})
}

// Nothing is left when a query is over, on either side, and too many at a time are refused.
func TestTooManyQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(3)
		n := nodes[0]
		nodes[1].says("hello")
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		var answers atomic.Int32
		for range maxQueries + 1 {
			go func() {
				_, err := n.Query(ctx, cluster.Query{Kind: cluster.QueryBindings}, func(cluster.Member, []byte) error {
					answers.Add(1)
					return nil
				})
				done <- err
			}()
		}
		if err := <-done; err == nil || !strings.Contains(err.Error(), "too many queries") {
			t.Errorf("the first to end: %v", err)
		}
		time.Sleep(time.Second)
		cancel()
		for range maxQueries {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if answers.Load() != maxQueries {
			t.Errorf("%d answers", answers.Load())
		}
		if r := n.query(t, time.Second, cluster.Query{Kind: cluster.QueryBindings, Node: "node-1"}); r.err != nil || len(r.answers) != 1 {
			t.Errorf("afterwards: %+v", r)
		}
	})
}

// What others may request has a rate, and what makes no sense is refused.
func TestServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNet(t).start("node", testBoot, 1)
		n.says("hello")
		request := wire.Marshal(wire.Query{Kind: cluster.QueryBindings})
		served := 0
		for range 2 * answerBurst {
			if n.handler.Serve(t.Context(), request) != nil {
				served++
			}
		}
		if served != answerBurst || n.dropped(dropQueries) != answerBurst {
			t.Errorf("served %d, dropped %v", served, n.Status().Dropped)
		}
		time.Sleep(time.Minute)
		for _, request := range [][]byte{
			nil, []byte("hello"), wire.Marshal(wire.Query{}), wire.Marshal(wire.Query{Kind: cluster.QueryAck + 1}), wire.Marshal(wire.Query{Kind: cluster.QueryAck}), wire.Marshal(wire.Query{Kind: cluster.QueryStories}),
		} {
			if reply := n.handler.Serve(t.Context(), request); reply != nil {
				t.Errorf("%x is answered", request)
			}
		}
		if n.dropped(dropMalformed) != 6 {
			t.Errorf("dropped %v", n.Status().Dropped)
		}
		if n.handler.Serve(t.Context(), wire.Marshal(map[int]any{1: 1, 99: "new"})) == nil || n.dropped(dropField) != 1 {
			t.Error("a query with a field that is not known is refused or not counted")
		}
		// Nobody answers.
		n.mu.Lock()
		n.answer = nil
		n.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n.handler.Serve(ctx, request) != nil {
			t.Error("nobody answered, and there is an answer")
		}
	})
}

// An answer that is refused counts as malformed and its member as missing. One that takes long to read delays no other.
func TestQueryRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(6)
		for _, n := range nodes {
			n.says("a word of " + n.member.Name)
		}
		nodes[3].says("nonsense")
		nodes[5].says("nonsense")
		r := nodes[0].queryBut(t, time.Second, cluster.Query{Kind: cluster.QueryBindings}, "nonsense")
		if want := []string{"node-3", "node-5"}; !slices.Equal(r.missing, want) || len(r.answers) != 3 || r.err != nil {
			t.Errorf("missing %v, want %v; answers %v, %v", r.missing, want, r.answers, r.err)
		}
		if n := nodes[0].dropped(dropMalformed); n != 2 {
			t.Errorf("dropped %v", nodes[0].Status().Dropped)
		}
		nodes[4].kill() // who does not answer sent nothing that is malformed
		r = nodes[0].queryBut(t, time.Second, cluster.Query{Kind: cluster.QueryBindings}, "nonsense")
		if want := []string{"node-3", "node-4", "node-5"}; !slices.Equal(r.missing, want) || nodes[0].dropped(dropMalformed) != 4 {
			t.Errorf("missing %v, want %v; dropped %v", r.missing, want, nodes[0].Status().Dropped)
		}
		start := time.Now()
		var answers atomic.Int32
		if _, err := nodes[0].Query(t.Context(), cluster.Query{Kind: cluster.QueryBindings}, func(cluster.Member, []byte) error {
			answers.Add(1)
			time.Sleep(time.Second)
			return nil
		}); err != nil || answers.Load() != 4 || time.Since(start) > 1100*time.Millisecond {
			t.Errorf("%d answers in %v, %v", answers.Load(), time.Since(start), err)
		}
	})
}
