package gossip

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/internal/testneeds"
)

// binds has a node's agent answer every query with some bindings.
func (n *fakeNode) binds(count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.document = func(cluster.Query) cluster.Document {
		var d cluster.Document
		for i := range count {
			b := n.binding(uint64(i + 1))
			d.Bindings = append(d.Bindings, detector.Binding{
				Key: testKey(i), Holder: b.Holder, Evidence: b.Evidence, FirstSeen: b.FirstSeen, LastSeen: b.LastSeen,
			})
		}
		return d
	}
}

// result is what a query brings.
type result struct {
	answers []cluster.Answer
	at      []time.Duration // after the query began
	missing []string
	err     error
}

// query queries for at most that time.
func (n *fakeNode) query(t *testing.T, within time.Duration, q cluster.Query) (r result) {
	t.Helper()
	synctest.Wait() // until it knows the members
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	began := time.Now()
	missing, err := n.Query(ctx, q, func(a cluster.Answer) {
		r.answers, r.at = append(r.answers, a), append(r.at, time.Since(began))
	})
	for _, m := range missing {
		r.missing = append(r.missing, m.Name)
	}
	slices.Sort(r.missing)
	r.err = err
	return r
}

// counts returns how many bindings each member answered with.
func (r result) counts() map[string]int {
	m := make(map[string]int)
	for _, a := range r.answers {
		m[a.Member.Name] += len(a.Document.Bindings)
	}
	return m
}

func TestQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(6)
		want := make(map[string]int)
		for i, n := range nodes {
			n.binds(i * i * 40)
			if n != nodes[2] { // it is not asked by itself
				want[n.member.Name] = i * i * 40
			}
		}
		start := time.Now()
		r := nodes[2].query(t, time.Minute, cluster.Query{Kind: cluster.QueryBindings})
		if diff := gocmp.Diff(want, r.counts()); diff != "" || len(r.missing) > 0 || r.err != nil {
			t.Errorf("missing %v, %v (-want +got)\n%s", r.missing, r.err, diff)
		}
		for _, a := range r.answers {
			n := f.nodes[wire.MemberIDOf(a.Member.Name, a.Member.Boot, a.Member.Epoch)]
			want := n.document(cluster.Query{})
			near := cmpopts.EquateApproxTime(time.Since(start) + time.Millisecond)
			if diff := gocmp.Diff(want, a.Document, near, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("%s (-want +got)\n%s", a.Member.Name, diff)
			}
		}
		if s := nodes[2].Status(); s.Sent["query"] != 5 || s.Received["query_reply"] != 5 || nodes[1].Status().Received["query"] != 1 {
			t.Errorf("sent %v, received %v", s.Sent, s.Received)
		}
		// The agent gets the query as it was, without whom it was for.
		asked := cluster.Query{Kind: cluster.QueryConflicts, IP: testKey(3).IP, All: true, Node: "node-1"}
		nodes[1].forgetMessages()
		r = nodes[0].query(t, time.Second, asked)
		got, _ := messages[cluster.Query](nodes[1])
		if len(got) != 1 || got[0].Answer == nil || len(r.answers) != 1 || len(r.missing) != 0 {
			t.Fatalf("node-1 was asked %+v; %+v", got, r)
		}
		got[0].Answer, asked.Node = nil, ""
		if got[0] != asked {
			t.Errorf("node-1 was asked %+v, want %+v", got[0], asked)
		}
		for _, q := range []cluster.Query{{Kind: cluster.QueryBindings, Node: "node-9"}, {Kind: cluster.QueryBindings, Node: "node-0"}, {Kind: cluster.QueryStories}} {
			if r := nodes[0].query(t, time.Second, q); r.err == nil {
				t.Errorf("%+v: %+v", q, r)
			}
		}
	})
}

// Members that do not answer delay nobody, and are named at the end of the time; the others' documents come at once.
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
				n.binds(3)
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
				n.binds(50)
			}
		}
		f.set(func() { f.cut = func(_, to string) bool { return to == "node-4" } })
		nodes[5].kill()
		nodes[6].leave()
		start := time.Now()
		r := nodes[0].query(t, 5*time.Second, cluster.Query{Kind: cluster.QueryBindings})
		if diff := gocmp.Diff(map[string]int{"node-1": 50, "node-2": 50}, r.counts()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if want := []string{"node-3", "node-4", "node-5"}; !slices.Equal(r.missing, want) {
			t.Errorf("missing %v, want %v", r.missing, want)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("took %v", took)
		}
		f.start("node-5", "another", 1).binds(1)
		r = nodes[0].query(t, 5*time.Second, cluster.Query{Kind: cluster.QueryBindings})
		if slices.Contains(r.missing, "node-5") || r.counts()["node-5"] != 1 {
			t.Errorf("missing %v, answered %v: node-5 is back", r.missing, r.counts())
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
		nodes[1].binds(1)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		var answers atomic.Int32
		for range maxQueries + 1 {
			go func() {
				_, err := n.Query(ctx, cluster.Query{Kind: cluster.QueryBindings}, func(cluster.Answer) { answers.Add(1) })
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
		n.binds(1)
		request := wire.Marshal(wire.Query{Kind: cluster.QueryBindings})
		served := 0
		for range 2 * documentBurst {
			if n.handler.Serve(t.Context(), request) != nil {
				served++
			}
		}
		if served != documentBurst || n.dropped(dropQueries) != documentBurst {
			t.Errorf("served %d, dropped %v", served, n.Status().Dropped)
		}
		time.Sleep(time.Minute)
		for _, request := range [][]byte{
			nil, []byte("hello"), wire.Marshal(wire.Query{}), wire.Marshal(wire.Query{Kind: cluster.QueryEvidence + 1}), wire.Marshal(wire.Query{Kind: cluster.QueryStories}),
		} {
			if reply := n.handler.Serve(t.Context(), request); reply != nil {
				t.Errorf("%x is answered", request)
			}
		}
		if n.dropped(dropMalformed) != 5 {
			t.Errorf("dropped %v", n.Status().Dropped)
		}
		if n.handler.Serve(t.Context(), wire.Marshal(map[int]any{1: 1, 99: "new"})) == nil || n.dropped(dropField) != 1 {
			t.Error("a query with a field that is not known is refused or not counted")
		}
		// A document that is too large has what fits.
		n.binds(20000)
		reply := n.handler.Serve(t.Context(), request)
		d, _, err := wire.UnmarshalDocument(reply, n.member.NodeID(), time.Now())
		if len(reply) > transport.MaxReply || err != nil || len(d.Bindings)+d.Omitted != 20000 || d.Omitted == 0 {
			t.Errorf("%d bytes, %d bindings, %d omitted, %v", len(reply), len(d.Bindings), d.Omitted, err)
		}
		// Nobody answers.
		n.mu.Lock()
		n.document = nil
		n.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n.handler.Serve(ctx, request) != nil {
			t.Error("nobody answered, and there is a document")
		}
	})
}

// What is more than one query may hold is counted as omitted.
func TestQueryTooMuch(t *testing.T) {
	if testneeds.Raced {
		t.Skip("half a million bindings take a minute with the race detector")
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(25)
		for _, n := range nodes[1:] {
			n.binds(20_000) // more than a reply has room for
		}
		r := nodes[0].query(t, time.Minute, cluster.Query{Kind: cluster.QueryBindings})
		held, omitted := 0, 0
		for _, a := range r.answers {
			if len(a.Document.Bindings) > 0 {
				held++
			}
			omitted += a.Document.Omitted + len(a.Document.Bindings)
		}
		if held > maxBytes>>20 || held < maxBytes>>20*3/4 || omitted != 24*20_000 || len(r.answers) != 24 {
			t.Errorf("%d documents are held, %d bindings or omitted, missing %v", held, omitted, r.missing)
		}
	})
}
