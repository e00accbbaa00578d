package gossip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// binds has a node's agent answer every query with n bindings.
func (n *fakeNode) binds(count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reply = func(cluster.Query) cluster.Document {
		var d cluster.Document
		for i := range count {
			c := n.claim(uint64(i + 1))
			d.Bindings = append(d.Bindings, detector.Binding{
				Key: testKey(i), Holder: c.Holder, Evidence: c.Evidence, FirstSeen: c.FirstSeen, LastSeen: c.LastSeen,
			})
		}
		return d
	}
}

// ask queries as an agent does, for at most that time.
func (n *fakeNode) query(t *testing.T, within time.Duration, q cluster.Query) cluster.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	r, err := n.Query(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// counts returns how many bindings each member answered with.
func counts(r cluster.Result) map[string]int {
	m := make(map[string]int)
	for _, a := range r.Answers {
		m[a.Member.Name] += len(a.Document.Bindings)
	}
	return m
}

func names(members []cluster.Member) []string {
	var list []string
	for _, m := range members {
		list = append(list, m.Name)
	}
	slices.Sort(list)
	return list
}

func (n *fakeNode) dropped(reason string) uint64 { return n.Status().Dropped[reason] }

func TestQueryAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		f.loss = 0.05
		nodes := f.startMany(6)
		want := make(map[string]int)
		for i, n := range nodes {
			n.binds(i * i * 40) // the last has a thousand, on many pages
			want[n.member.Name] = i * i * 40
		}
		start := time.Now()
		r := nodes[2].query(t, time.Minute, cluster.Query{Kind: cluster.QueryBindings})
		t.Logf("took %v", time.Since(start))
		if diff := cmp.Diff(want, counts(r)); diff != "" || len(r.Missing) > 0 {
			t.Errorf("missing %v (-want +got)\n%s", names(r.Missing), diff)
		}
		for _, a := range r.Answers {
			n := f.nodes[wire.MemberIDOf(a.Member.Name, a.Member.Boot, a.Member.Epoch)]
			want := n.reply(cluster.Query{})
			near := cmpopts.EquateApproxTime(time.Since(start))
			if diff := cmp.Diff(want, a.Document, near, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("%s (-want +got)\n%s", a.Member.Name, diff)
			}
		}
	})
}

// TestQueryPauses: a long document comes through a network that is gone most of the time.
func TestQueryPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(2)
		nodes[1].binds(20_000)
		start := time.Now()
		f.cut = func(_, _ string) bool { return time.Since(start)%(500*time.Millisecond) >= 100*time.Millisecond }
		r := nodes[0].query(t, 5*time.Minute, cluster.Query{Kind: cluster.QueryBindings, Node: "node-1"})
		if counts(r)["node-1"] != 20_000 {
			t.Errorf("%d bindings, missing %v", counts(r)["node-1"], names(r.Missing))
		}
		t.Logf("took %v", time.Since(start))
	})
}

func TestQueryTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(2)
		for _, n := range nodes {
			n.binds(1)
		}
		asked := cluster.Query{Kind: cluster.QueryConflicts, IP: testKey(3).IP, All: true}
		nodes[0].query(t, time.Second, asked)
		for _, n := range nodes {
			got, _ := messages[cluster.Query](n)
			if len(got) != 1 || got[0].ID == 0 {
				t.Fatalf("%s was asked %+v", n.member.Name, got)
			}
			got[0].ID = 0
			if got[0] != asked {
				t.Errorf("%s was asked %+v, want %+v", n.member.Name, got[0], asked)
			}
		}
	})
}

func TestQueryOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(3)
		for _, n := range nodes {
			n.binds(2)
		}
		r := nodes[0].query(t, time.Second, cluster.Query{Kind: cluster.QueryBindings, Node: "node-1"})
		if diff := cmp.Diff(map[string]int{"node-1": 2}, counts(r)); diff != "" || len(r.Missing) > 0 {
			t.Errorf("missing %v (-want +got)\n%s", names(r.Missing), diff)
		}
		for _, q := range []cluster.Query{{Kind: cluster.QueryBindings, Node: "node-9"}, {Kind: cluster.QueryStories}} {
			if r, err := nodes[0].Query(t.Context(), q); err == nil {
				t.Errorf("%+v: %+v", q, r)
			}
		}
	})
}

// TestQueryMissing: who is dead, unreachable, without an agent or restarted meanwhile is
// named, and the others' answers are there.
func TestQueryMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(7)
		for i, n := range nodes {
			if i != 3 { // its agent is busy
				n.binds(50)
			}
		}
		f.cut = func(_, to string) bool { return to == "node-4" }
		nodes[5].kill()
		nodes[6].leave()
		start := time.Now()
		r := nodes[0].query(t, time.Minute, cluster.Query{Kind: cluster.QueryBindings})
		if diff := cmp.Diff(map[string]int{"node-0": 50, "node-1": 50, "node-2": 50}, counts(r)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if got, want := names(r.Missing), []string{"node-3", "node-4", "node-5"}; !slices.Equal(got, want) {
			t.Errorf("missing %v, want %v", got, want)
		}
		if took := time.Since(start); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("took %v", took)
		}
		f.start("node-5", testBoot, 2).binds(1)
		r = nodes[0].query(t, time.Minute, cluster.Query{Kind: cluster.QueryBindings})
		if got := names(r.Missing); slices.Contains(got, "node-5") || counts(r)["node-5"] != 1 {
			t.Errorf("missing %v, answered %v: node-5 is back", got, counts(r))
		}
	})
}

// TestQueryEnds: what there is when the time is over is given, and nothing is left behind.
func TestQueryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(3)
		nodes[0].binds(1)
		nodes[1].binds(1)
		start := time.Now()
		r := nodes[0].query(t, 500*time.Millisecond, cluster.Query{Kind: cluster.QueryBindings})
		if took := time.Since(start); took != 500*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if len(r.Answers) != 2 || !slices.Equal(names(r.Missing), []string{"node-2"}) {
			t.Errorf("answered %v, missing %v", counts(r), names(r.Missing))
		}
		nodes[0].state.Lock()
		defer nodes[0].state.Unlock()
		if n := len(nodes[0].queries.open); n != 0 {
			t.Errorf("%d queries are open", n)
		}
	})
}

func TestQueryTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		n := f.startMany(2)[0]
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		for range maxQueries + 1 {
			go func() {
				_, err := n.Query(ctx, cluster.Query{Kind: cluster.QueryBindings})
				done <- err
			}()
		}
		if err := <-done; !errors.Is(err, errQueries) {
			t.Errorf("the first to end: %v", err)
		}
		cancel()
		for range maxQueries {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestQueryManyMembers: the answers do not come all at once.
func TestQueryManyMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(300)
		for _, n := range nodes {
			n.binds(30)
		}
		start := time.Now()
		f.cut = func(_, to string) bool { return to == "node-0" && time.Since(start) < 100*time.Millisecond }
		time.AfterFunc(100*time.Millisecond, func() {
			if asked := nodes[0].Status().Sent["query"]; asked != maxFlight { // the own agent has answered
				t.Errorf("%d were asked at once, want %d", asked, maxFlight)
			}
		})
		r := nodes[0].query(t, time.Minute, cluster.Query{Kind: cluster.QueryBindings})
		if len(r.Answers) != 300 || len(r.Missing) > 0 {
			t.Errorf("%d answers, missing %v", len(r.Answers), names(r.Missing))
		}
		t.Logf("took %v", time.Since(start))
		if n := nodes[0].dropped(dropInbox); n > 0 {
			t.Errorf("%d dropped", n)
		}
	})
}

// TestQueryTooMuch: what is more than one query may hold is counted as omitted.
func TestQueryTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		f.delay = time.Millisecond
		nodes := f.startMany(20)
		long := strings.Repeat("x", 200)
		held, total := 0, 0
		for _, n := range nodes[1:] {
			n.binds(4000)
			d := n.reply(cluster.Query{})
			for i := range d.Bindings {
				d.Bindings[i].Holder.Pod = detector.Pod{Namespace: "shop", Name: long, UID: "u"}
			}
			n.reply = func(cluster.Query) cluster.Document { return d }
			total += len(d.Bindings)
		}
		r := nodes[0].query(t, time.Minute, cluster.Query{Kind: cluster.QueryBindings})
		omitted := 0
		for _, a := range r.Answers {
			held += len(a.Document.Bindings)
			omitted += a.Document.Omitted
		}
		if size := held * 250; size > maxFurther*3/2 || size < maxFurther/2 {
			t.Errorf("%d bindings are held", held)
		}
		if got := held + omitted; omitted < total/4 || got < total*9/10 || got > total*11/10 {
			t.Errorf("%d held and %d omitted, of %d", held, omitted, total)
		}
		t.Logf("%d held, %d omitted", held, omitted)
	})
}

// TestQueryManyThings: short records take far more room here than on their way.
func TestQueryManyThings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		f.delay = time.Millisecond
		nodes := f.startMany(13)
		for _, n := range nodes[1:] {
			n.binds(12_000)
		}
		nodes[0].binds(1)
		r := nodes[0].query(t, time.Minute, cluster.Query{Kind: cluster.QueryBindings})
		held, omitted := 0, 0
		for _, a := range r.Answers {
			held += len(a.Document.Bindings)
			omitted += a.Document.Omitted
		}
		if held > maxThings+1 || held+omitted != 12*12_000+1 || len(r.Answers) != 13 {
			t.Errorf("%d held and %d omitted of %d, missing %v", held, omitted, 12*12_000+1, names(r.Missing))
		}
	})
}

// TestQueryHostile: pages that nobody asked for, or that are no pages, do no harm.
func TestQueryHostile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(3)
		asker, liar := nodes[0], nodes[1]
		asker.binds(1)
		nodes[2].binds(1)
		result := make(chan cluster.Result)
		go func() { result <- asker.query(t, time.Minute, cluster.Query{Kind: cluster.QueryBindings}) }()
		var asked cluster.Query
		eventually(t, time.Second, "asked", func() bool {
			m, _ := messages[cluster.Query](asker)
			if len(m) > 0 {
				asked = m[0]
			}
			return len(m) > 0
		})
		say := func(from *fakeNode, a wire.Answer) {
			a.ID = asked.ID // the own agent is asked by the number of the query
			asker.handler.Packet(wire.Encode(from.id, a))
		}
		say(liar, wire.Answer{Page: 3, Pages: 5})
		say(liar, wire.Answer{Page: 0, Pages: wire.MaxPages, Entries: []byte{99}})
		say(liar, wire.Answer{Page: 1, Pages: 2})
		synctest.Wait()
		if got := asker.dropped(dropUnasked); got != 2 {
			t.Errorf("%d answers dropped, want the first and the third", got)
		}
		say(liar, wire.Answer{Page: 0, Pages: wire.MaxPages, Entries: []byte{98}})
		for page := 1; page < wire.MaxPages; page++ {
			say(liar, wire.Answer{Page: page, Pages: wire.MaxPages})
			synctest.Wait()
		}
		r := <-result
		if !slices.Equal(names(r.Missing), []string{"node-1"}) || len(r.Answers) != 2 {
			t.Errorf("answered %v, missing %v", counts(r), names(r.Missing))
		}
		if asker.dropped(dropUnasked) != 3 || asker.dropped("malformed") != 1 {
			t.Errorf("dropped %v", asker.Status().Dropped)
		}
		asker.Reply(asked.ID, cluster.Document{})
		asker.Reply(12, cluster.Document{})
		synctest.Wait()
		if got := asker.dropped(dropNoDocument); got != 2 {
			t.Errorf("%d replies to nothing are counted", got)
		}
	})
}

func TestQueryAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(2)
		nodes[0].binds(1)
		nodes[1].binds(4000)
		result := make(chan cluster.Result)
		go func() { result <- nodes[0].query(t, time.Minute, cluster.Query{Kind: cluster.QueryBindings}) }()
		eventually(t, time.Second, "some pages", func() bool { return nodes[0].Status().Received["query_reply"] > 10 })
		nodes[1].kill()
		again := f.start("node-1", testBoot, 2)
		again.binds(3)
		synctest.Wait()
		id, _ := messages[cluster.Query](nodes[0])
		pages := wire.SplitDocument(nodes[1].reply(cluster.Query{}), nodes[1].member.NodeID(), time.Now())
		for i := range pages {
			nodes[0].handler.Packet(wire.Encode(again.id, wire.Answer{ID: id[0].ID, Page: i, Pages: len(pages), Entries: pages[i]}))
			synctest.Wait()
		}
		r := <-result
		if fmt.Sprint(names(r.Missing)) != "[node-1]" {
			t.Errorf("answered %v, missing %v", counts(r), names(r.Missing))
		}
	})
}
