package report

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/agent/report/route"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// query is what [Cluster.Query] does, with a list of answers.
type query func(cluster.Query) (answers []document.Answer, silent []cluster.Member, err error)

// fakeCluster is a [Cluster] whose members answer with query.
type fakeCluster struct {
	Cluster // the other methods are not called
	members []cluster.Member
	queries []cluster.Query
	query   query
	kept    []cluster.Lease
	// reports encode what was told to reporters.
	reports []func(at time.Time, most int) ([]byte, error)
}

func (o *fakeCluster) ReportConflict(_ detector.Key, _ bool, encode func(time.Time, int) ([]byte, error)) {
	o.reports = append(o.reports, encode)
}

func (o *fakeCluster) Members() []cluster.Member { return o.members }
func (o *fakeCluster) Status() cluster.Status {
	return cluster.Status{Address: "10.0.0.1:7951", Members: map[cluster.State]int{cluster.Alive: len(o.members)}}
}

func (o *fakeCluster) Query(_ context.Context, q cluster.Query, answer func(cluster.Member, []byte) error) ([]cluster.Member, error) {
	o.queries = append(o.queries, q)
	answers, silent, err := o.query(q)
	for _, a := range answers {
		a.At = time.Now()
		packed, err := a.Encode(1 << 20)
		if err == nil {
			err = answer(cluster.Member{Name: a.Node, Boot: a.BootID, State: cluster.Alive}, packed)
		}
		if err != nil {
			return nil, err
		}
	}
	return silent, err
}

// newReport makes the Report of node n1. The caller's goroutine owns the parts, or whatever calls Do.
func newReport(t testing.TB, o *fakeCluster) *Report {
	t.Helper()
	self := cluster.Member{Name: "n1", Boot: "b", Self: true, State: cluster.Alive}
	d := detector.New(detector.Options{Node: self.NodeID()})
	table := observe.New(observe.Options{
		Log: slog.New(slog.DiscardHandler), Host: detector.HolderID{Node: self.NodeID(), Netns: 1 << 40}, GossipAddress: netip.MustParseAddr("192.0.2.1"), Bindings: d.Bindings,
		Pod:       func(uint64) (pods.Change, bool) { return pods.Change{}, false },
		ByHostEnd: func(string) (pods.Change, bool) { return pods.Change{}, false },
		Rescan:    func(uint32) {}, Asked: func([6]byte) (detector.HolderID, time.Time, bool) { return detector.HolderID{}, time.Time{}, false },
	})
	table.Configure(new(config.Config), time.Now())
	table.Update(links.Event{Kind: links.HostAddresses}, time.Now())
	var owned sync.Mutex // the parts, by one goroutine after the other
	opts := Options{
		Log: slog.New(slog.DiscardHandler), Self: self, Detector: d, Table: table,
		Prober: probe.New(probe.Options{}), Exchange: exchange.New(exchange.Options{Node: self.NodeID(), Detector: d}),
		Books: audit.New(audit.Options{}),
		Do: func(_ context.Context, f func()) error {
			owned.Lock()
			defer owned.Unlock()
			f()
			return nil
		},
	}
	if o != nil {
		opts.Cluster = o
	}
	var err error
	if opts.Pods, err = pods.New(pods.Options{Socket: "none"}); err != nil {
		t.Fatal(err)
	}
	r := New(opts)
	r.facts.after = func(time.Duration, func()) {} // the test's goroutine owns the parts
	r.lookup = func(netip.Addr) ([]route.Route, error) { return []route.Route{{Kind: route.Nowhere}}, nil }
	return r
}

// Interfaces in networks that are compared on this node only are counted, besides by state.
func TestNodeOnlyInterfaces(t *testing.T) {
	r := newReport(t, nil)
	for n, l := range []links.Interface{
		{Name: "veth0"}, {Name: "veth1", Master: "docker0"}, {Name: "net1@eth1", Kind: "macvlan", Master: "eth1"},
	} {
		l.Index, l.Generation, l.State = n+1, uint32(n+1), links.Attached
		r.Table.Update(links.Event{Kind: links.Added, Interface: &l}, time.Now())
	}
	if got := r.byState(); got["attached"] != 3 || got["node only"] != 1 {
		t.Errorf("%v, want 3 attached and one of them on this node only", got)
	}
}

func holding(node, ip string, netns uint64) detector.Binding {
	now := time.Now().Add(-time.Hour) // what others say is never later than now
	return detector.Binding{
		Key:       detector.Key{Network: config.DefaultNetwork, IP: netip.MustParseAddr(ip)},
		Holder:    detector.Holder{ID: detector.HolderID{Node: cluster.NodeID(node, "b"), Netns: netns}, Interface: detector.Interface{Ifindex: uint32(netns)}},
		Evidence:  detector.Announced,
		FirstSeen: now,
		LastSeen:  now,
	}
}

func (r *Report) observe(b detector.Binding) {
	r.Detector.Observe(detector.Sighting{Key: b.Key, Holder: b.Holder, Evidence: b.Evidence, At: time.Now()}, time.Now())
}

func member(name string, state cluster.State) cluster.Member {
	return cluster.Member{Name: name, Boot: "b", State: state}
}

func holdersOf(bindings []document.Binding) string {
	var parts []string
	for _, b := range bindings {
		parts = append(parts, fmt.Sprintf("%s@%s/%d", b.IP, b.Node, b.NetnsCookie))
	}
	return strings.Join(parts, " ")
}

func TestQueryCluster(t *testing.T) {
	result := func(silent ...cluster.Member) query {
		return func(q cluster.Query) (answers []document.Answer, _ []cluster.Member, _ error) {
			for n, name := range []string{"n1", "n2", "n3"} {
				b := holding(name, "10.0.0.9", 9)
				b.FirstSeen = b.FirstSeen.Add(time.Duration(n) * time.Minute) // in this order
				gone := slices.ContainsFunc(silent, func(m cluster.Member) bool { return m.Name == name })
				if !gone && (q.Node == "" || q.Node == name) {
					// n1 is this node: its own answer wins.
					answers = append(answers, document.Answer{Node: name, BootID: "b", Bindings: []document.Binding{
						document.NewBinding(b),
					}})
				}
			}
			return answers, silent, nil
		}
	}
	failing := func(cluster.Query) ([]document.Answer, []cluster.Member, error) {
		return nil, nil, errors.New("the query fails")
	}
	empty := func(cluster.Query) ([]document.Answer, []cluster.Member, error) { return nil, nil, nil }
	three := []cluster.Member{member("n3", cluster.Alive), member("n2", cluster.Alive)}
	for _, test := range []struct {
		name     string
		others   *fakeCluster
		query    document.Query
		want     string
		coverage string
		fails    string
	}{
		{name: "only this one", others: &fakeCluster{members: three}, want: "10.0.0.1@n1/1 10.0.0.2@n1/2", coverage: "asked 0"},
		{name: "one address", query: document.Query{IP: netip.MustParseAddr("10.0.0.2")}, want: "10.0.0.2@n1/2", coverage: "asked 0"},
		{
			name: "all", others: &fakeCluster{members: three, query: result()}, query: document.Query{Cluster: true},
			want: "10.0.0.1@n1/1 10.0.0.2@n1/2 10.0.0.9@n2/9 10.0.0.9@n3/9", coverage: "asked 3",
		},
		{
			name: "one does not answer", others: &fakeCluster{members: three, query: result(member("n2", cluster.Alive))}, query: document.Query{Cluster: true},
			want: "10.0.0.1@n1/1 10.0.0.2@n1/2 10.0.0.9@n3/9", coverage: "asked 3 missing n2",
		},
		{
			name: "the query fails", others: &fakeCluster{members: append(three, member("n4", cluster.Left)), query: failing}, query: document.Query{Cluster: true},
			want: "10.0.0.1@n1/1 10.0.0.2@n1/2", coverage: "asked 3 missing n2,n3",
		},
		{
			name: "some do not answer", others: &fakeCluster{members: append(three, member("n4", cluster.Dead)), query: empty}, query: document.Query{Cluster: true},
			want: "10.0.0.1@n1/1 10.0.0.2@n1/2", coverage: "asked 3 missing n2,n3",
		},
		{
			name: "another node", others: &fakeCluster{members: three, query: result()}, query: document.Query{Node: "n2"},
			want: "10.0.0.9@n2/9", coverage: "asked 1",
		},
		{
			name: "this node by its name", others: &fakeCluster{members: three, query: failing}, query: document.Query{Node: "n1"},
			want: "10.0.0.1@n1/1 10.0.0.2@n1/2", coverage: "asked 1",
		},
		{
			name: "a node that is gone", others: &fakeCluster{members: []cluster.Member{member("n5", cluster.Dead)}, query: empty}, query: document.Query{Node: "n5"},
			coverage: "asked 1 missing n5",
		},
		{name: "a node that never was", others: &fakeCluster{members: three}, query: document.Query{Node: "n9"}, fails: "dupip nodes"},
		{name: "alone", query: document.Query{Cluster: true}, want: "10.0.0.1@n1/1 10.0.0.2@n1/2", coverage: "asked 1 alone"},
		{name: "alone, another node", query: document.Query{Node: "n2"}, fails: "alone"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newReport(t, test.others)
			r.observe(holding("n1", "10.0.0.1", 1))
			r.observe(holding("n1", "10.0.0.2", 2))
			got, err := r.Bindings(t.Context(), test.query)
			if test.fails != "" {
				if !errors.Is(err, document.ErrNoSuchNode) || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("error %v, want one with %q", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			coverage := fmt.Sprint("asked ", got.Asked)
			if len(got.Missing) > 0 {
				coverage += " missing " + strings.Join(got.Missing, ",")
			}
			if got.Alone {
				coverage += " alone"
			}
			if holdersOf(got.Bindings) != test.want || coverage != test.coverage || got.Partial != (len(got.Missing) > 0) || got.Missing != nil && len(got.Missing) == 0 {
				t.Errorf("got %s; %s; want %s; %s", holdersOf(got.Bindings), coverage, test.want, test.coverage)
			}
		})
	}
}

// In a conflict across nodes the local table has the remote holder, too. It is not listed with this
// node's bindings, but with the conflict.
func TestRemoteHoldersAreNoBindings(t *testing.T) {
	r := newReport(t, nil)
	r.observe(holding("n1", "10.0.0.1", 1))
	far := holding("n2", "10.0.0.1", 2)
	far.Holder.Pod = detector.Pod{Namespace: "shop", Name: "web-1"}
	r.observe(far)
	bindings, err := r.Bindings(t.Context(), document.Query{})
	if err != nil || holdersOf(bindings.Bindings) != "10.0.0.1@n1/1" {
		t.Errorf("bindings %s, %v", holdersOf(bindings.Bindings), err)
	}
	conflicts, err := r.Conflicts(t.Context(), document.Query{})
	if err != nil || len(conflicts.Conflicts) != 1 || holdersOf(conflicts.Conflicts[0].Holders) != "10.0.0.1@n1/1 10.0.0.1@n2/2" {
		t.Errorf("conflicts %+v, %v", conflicts, err)
	}
	for _, gone := range []bool{false, true} {
		if gone {
			r.Detector.Withdraw(far.Key, far.Holder.ID, "its node: it has gone", time.Now())
		}
		story, err := r.Explain(t.Context(), document.Query{IP: netip.MustParseAddr("10.0.0.1"), Cluster: true})
		if err != nil || story.Alone || len(story.Stories) != 1 || len(story.Stories[0].Bindings) != map[bool]int{false: 2, true: 1}[gone] {
			t.Fatalf("story %+v, %v", story, err)
		}
		named := slices.ContainsFunc(story.Stories[0].Notes, func(n document.Note) bool {
			return n.Node == "n1" && n.Holder != nil && n.Holder.Node == "n2" && n.Holder.Pod != nil && n.Holder.Pod.Name == "web-1"
		})
		if !named {
			t.Errorf("gone %t: no note names the pod on the other node: %+v", gone, story.Stories[0].Notes)
		}
	}
}

func TestConflictsOfTheCluster(t *testing.T) {
	here, there := holding("n1", "10.0.0.1", 1), holding("n2", "10.0.0.1", 2)
	confirmed := detector.Conflict{
		ID: "x-1", Key: here.Key, State: detector.Confirmed, Scope: detector.CrossNode,
		SuspectedAt: time.Now(), ConfirmedAt: time.Now(), Holders: []detector.Binding{here, there},
	}
	o := &fakeCluster{
		members: []cluster.Member{member("n2", cluster.Alive)},
		query: func(cluster.Query) ([]document.Answer, []cluster.Member, error) {
			return []document.Answer{{Node: "n2", BootID: "b", Conflicts: []document.Conflict{document.NewConflict(confirmed)}, Omitted: 4}}, nil, nil
		},
	}
	r := newReport(t, o)
	r.observe(here)
	r.observe(there)
	got, err := r.Conflicts(t.Context(), document.Query{Cluster: true, All: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Conflicts) != 1 || got.Conflicts[0].State != detector.Confirmed || got.Conflicts[0].Scope != detector.CrossNode || got.Omitted != 4 || !got.Partial {
		t.Errorf("got %+v", got)
	}
	if len(got.Pairs) != 1 || got.Pairs[0].Addresses != 1 || !slices.Equal(got.Pairs[0].Nodes, []string{"n1", "n2"}) {
		t.Errorf("pairs %+v", got.Pairs)
	}
	if want := (cluster.Query{Kind: cluster.QueryConflicts, All: true}); len(o.queries) != 1 || o.queries[0] != want {
		t.Errorf("queries %+v, want %+v", o.queries, want)
	}
	if got, err := r.Conflicts(t.Context(), document.Query{}); err != nil || len(got.Pairs) != 0 || got.Conflicts[0].State != detector.Suspected {
		t.Errorf("this node alone: %+v, %v", got, err)
	}
}

// A reply has only this node's own holders, and is limited.
func TestAnswer(t *testing.T) {
	r := newReport(t, nil)
	r.observe(holding("n1", "10.0.0.1", 1))
	r.observe(holding("n2", "10.0.0.1", 2))
	for n := range maxReplyBindings {
		r.observe(holding("n1", netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}).String(), 3+uint64(n%100)))
	}
	ip := netip.MustParseAddr("10.0.0.1")
	all := r.answer(cluster.Query{Kind: cluster.QueryBindings})
	if len(all.Bindings) != maxReplyBindings || all.Omitted != 1 || len(all.Conflicts)+len(all.Stories) != 0 {
		t.Errorf("%d bindings, %d omitted", len(all.Bindings), all.Omitted)
	}
	one := r.answer(cluster.Query{Kind: cluster.QueryBindings, IP: ip})
	if len(one.Bindings) != 1 || one.Bindings[0].NodeID() != "n1/b" {
		t.Errorf("bindings of one address: %+v", one.Bindings)
	}
	conflicts := r.answer(cluster.Query{Kind: cluster.QueryConflicts, IP: ip})
	if len(conflicts.Conflicts) != 1 || len(conflicts.Conflicts[0].Holders) != 2 {
		t.Errorf("conflicts: %+v", conflicts.Conflicts)
	}
	if d := r.answer(cluster.Query{Kind: cluster.QueryConflicts, IP: ip.Next()}); len(d.Conflicts) != 0 {
		t.Errorf("conflicts of another address: %+v", d.Conflicts)
	}
	if d := r.answer(cluster.Query{Kind: cluster.QueryStories, IP: ip}); len(d.Stories) != 1 {
		t.Errorf("stories: %+v", d.Stories)
	}
	for _, nonsense := range []cluster.Query{{}, {Kind: 99}, {Kind: cluster.QueryStories}} {
		if d := r.answer(nonsense); len(d.Bindings)+len(d.Conflicts)+len(d.Stories) != 0 {
			t.Errorf("%+v is answered: %+v", nonsense, d)
		}
	}
}

func TestNodes(t *testing.T) {
	alone, err := newReport(t, nil).Nodes(t.Context(), document.Query{})
	if err != nil || !alone.Cluster.Alone || len(alone.Nodes) != 1 || !alone.Nodes[0].Self || alone.Nodes[0].Name != "n1" {
		t.Errorf("alone: %+v, %v", alone, err)
	}
	o := &fakeCluster{members: []cluster.Member{member("n3", cluster.Dead), {Name: "n0", Boot: "x", State: cluster.Alive, Namesake: true}}}
	r := newReport(t, o)
	got, err := r.Nodes(t.Context(), document.Query{})
	var names []string
	for _, n := range got.Nodes {
		names = append(names, n.Name+" "+string(n.State))
	}
	if want := []string{"n0 alive", "n1 alive", "n3 dead"}; err != nil || !slices.Equal(names, want) || got.Cluster.Alone {
		t.Errorf("%v, %v; want %v", names, err, want)
	}
}

// Another node gets what it asks for, before any limit.
func TestAnswerOfSome(t *testing.T) {
	r := newReport(t, nil)
	for n, name := range []string{"web-0", "web-1"} {
		b := holding("n1", fmt.Sprint("10.0.", n, ".1"), uint64(n+1))
		b.Holder.Pod = detector.Pod{Namespace: "shop", Name: name}
		r.observe(b)
	}
	network := holding("n1", "10.0.0.1", 1).Key.Network
	for only, want := range map[cluster.Only]int{
		{}:                  2,
		{Namespace: "shop"}: 2,
		{Namespace: "a"}:    0,
		{Pod: "web-1"}:      1,
		{Prefix: netip.MustParsePrefix("10.0.1.0/24")}: 1,
		{Network: network}:   2,
		{Network: "storage"}: 0,
	} {
		d := r.answer(cluster.Query{Kind: cluster.QueryBindings, Only: only})
		if len(d.Bindings) != want {
			t.Errorf("%+v: %d bindings, want %d", only, len(d.Bindings), want)
		}
	}
}

// An agent sends the conflicts that were open at some time since then, and a document has no others: an agent of an older version
// sends all.
func TestConflictsSince(t *testing.T) {
	ended := func(node, other, ip string, ago time.Duration) detector.Conflict {
		at, key := time.Now().Add(-ago), holding(node, ip, 1).Key
		sum := sha256.Sum256([]byte(key.Network + "|" + ip))
		return detector.Conflict{
			ID: fmt.Sprintf("%x-1", sum[:4]), Key: key, State: detector.Resolved, Scope: detector.CrossNode,
			SuspectedAt: at.Add(-time.Minute), ConfirmedAt: at.Add(-time.Minute), ResolvedAt: at,
			Holders: []detector.Binding{holding(node, ip, 1), holding(other, ip, 2)},
		}
	}
	old := &fakeCluster{
		members: []cluster.Member{member("n2", cluster.Alive)},
		query: func(cluster.Query) ([]document.Answer, []cluster.Member, error) {
			return []document.Answer{{Node: "n2", BootID: "b", Conflicts: []document.Conflict{
				document.NewConflict(ended("n2", "n3", "10.0.0.4", 11*time.Hour)), document.NewConflict(ended("n2", "n3", "10.0.0.5", 12*time.Hour+time.Minute)),
			}}}, nil, nil
		},
	}
	r := newReport(t, old)
	r.Detector.Restore(detector.Snapshot{History: []detector.Conflict{
		ended("n1", "n2", "10.0.0.3", 13*time.Hour), ended("n1", "n2", "10.0.0.2", 12*time.Hour+time.Minute), ended("n1", "n2", "10.0.0.1", time.Hour),
	}}, time.Now())
	r.observe(holding("n1", "10.0.0.9", 1))
	r.observe(holding("n1", "10.0.0.9", 2))
	ips := func(conflicts []document.Conflict) (list []string) {
		for _, c := range conflicts {
			list = append(list, c.IP.String())
		}
		return list
	}
	for since, want := range map[time.Duration][]string{
		0:              {"10.0.0.9", "10.0.0.1", "10.0.0.2", "10.0.0.3"},
		12 * time.Hour: {"10.0.0.9", "10.0.0.1"},
		math.MaxInt64:  {"10.0.0.9", "10.0.0.1", "10.0.0.2", "10.0.0.3"},
		-time.Hour:     {"10.0.0.9"}, // no agent sends it
		math.MinInt64:  {"10.0.0.9"},
	} {
		a := r.answer(cluster.Query{Kind: cluster.QueryConflicts, All: true, Only: cluster.Only{Since: since}})
		if got := ips(a.Conflicts); !slices.Equal(got, want) {
			t.Errorf("since %v: %q, want %q", since, got, want)
		}
	}
	got, err := r.Conflicts(t.Context(), document.Query{Cluster: true, All: true, Since: 12 * time.Hour})
	if want := []string{"10.0.0.9", "10.0.0.1", "10.0.0.4"}; err != nil || !slices.Equal(ips(got.Conflicts), want) {
		t.Errorf("%q, %v, want %q", ips(got.Conflicts), err, want)
	}
	// The other node may know a little earlier that a conflict is over.
	if asked := old.queries[0]; !asked.All || asked.Only.Since <= 12*time.Hour || asked.Only.Since > 13*time.Hour {
		t.Errorf("asked for %+v", asked)
	}
}
