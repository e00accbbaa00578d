package collect

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// others are the agents of other nodes; those without an answer say nothing.
type others map[string]*document.Answer

func (o others) members() (list []cluster.Member) {
	for name := range o {
		list = append(list, cluster.Member{Name: name, Boot: "b", State: cluster.Alive})
	}
	return list
}

// Query implements [Cluster].
func (o others) Query(_ context.Context, q cluster.Query, answer func(cluster.Member, []byte) error) (silent []cluster.Member, err error) {
	for _, m := range o.members() {
		if q.Node != "" && q.Node != m.Name {
			continue
		}
		if d := o[m.Name]; d != nil {
			packed, err := d.Encode(1 << 20)
			if err == nil {
				err = answer(m, packed)
			}
			if err != nil {
				return nil, err
			}
		} else {
			silent = append(silent, m)
		}
	}
	return silent, nil
}

// Only what was compared can agree: the verdict of all answers together.
func TestVerdict(t *testing.T) {
	doc := func(changes ...func(*document.Answer)) *document.Answer {
		d := &document.Answer{Checked: []string{"pods"}}
		for _, c := range changes {
			c(d)
		}
		return d
	}
	because := func(why string) func(*document.Answer) {
		return func(d *document.Answer) { d.Unchecked = append(d.Unchecked, why) }
	}
	nothing := func(d *document.Answer) { d.Checked = nil }
	omitted := func(d *document.Answer) { d.Omitted = 1 }
	found := func(d *document.Answer) {
		d.Findings = []document.Finding{{Kind: document.Unreserved, IP: netip.MustParseAddr("10.1.2.5"), CNINetwork: "pods"}}
	}
	none := doc(nothing, because("everything: no network in /etc/cni/net.d"))
	all := document.Query{Cluster: true}
	const missed = "what was asked for: it is in no book that dupip reads"
	for name, test := range map[string]struct {
		own     *document.Answer // nil for a reporter
		others  others
		q       document.Query
		verdict string
		texts   string // unchecked
	}{
		"one node":                   {doc(), nil, document.Query{}, "agree", "[]"},
		"a node without a book":      {none, nil, document.Query{}, "not checked", "[everything: no network in /etc/cni/net.d]"},
		"a part of a node":           {doc(because("network cbr0")), nil, document.Query{}, "partly checked", "[network cbr0]"},
		"a finding beside that":      {doc(found, because("network cbr0")), nil, document.Query{}, "findings", "[network cbr0]"},
		"a finding of another pod":   {doc(found), nil, document.Query{Pod: "web"}, "agree", "[]"},
		"left out":                   {doc(omitted), nil, document.Query{}, "partly checked", "[]"},
		"all nodes":                  {doc(), others{"n2": doc()}, all, "agree", "[]"},
		"a silent node":              {doc(), others{"n2": nil}, all, "partly checked", "[]"},
		"a silent node by its name":  {nil, others{"n2": nil, "n3": doc()}, document.Query{Node: "n2"}, "not checked", "[]"},
		"one node without a book":    {doc(), others{"n2": none}, all, "partly checked", "[on node n2, everything: no network in /etc/cni/net.d]"},
		"that node by its name":      {nil, others{"n2": none, "n3": doc()}, document.Query{Node: "n2"}, "not checked", "[on node n2, everything: no network in /etc/cni/net.d]"},
		"no node has a book":         {none, others{"n2": none}, all, "not checked", "[everything: no network in /etc/cni/net.d on node n2, everything: no network in /etc/cni/net.d]"},
		"all nodes are silent":       {nil, others{"n1": nil, "n2": nil}, all, "not checked", "[]"},
		"no such network":            {doc(nothing), nil, document.Query{Network: "typo"}, "not checked", "[" + missed + "]"},
		"a network of another node":  {doc(nothing), others{"n2": doc()}, document.Query{Cluster: true, Network: "pods"}, "agree", "[]"},
		"no such network on any":     {doc(nothing), others{"n2": doc(nothing)}, document.Query{Cluster: true, Network: "typo"}, "not checked", "[" + missed + "]"},
		"left out on another node":   {doc(), others{"n2": doc(omitted)}, all, "partly checked", "[]"},
		"a finding on another node":  {none, others{"n2": doc(found)}, all, "findings", "[everything: no network in /etc/cni/net.d]"},
		"a reporter":                 {nil, others{"n1": doc(), "n2": doc()}, all, "agree", "[]"},
		"an agent that says nothing": {nil, others{"n1": new(document.Answer)}, all, "not checked", "[" + missed + "]"},
	} {
		c := &Collection{Self: cluster.Member{Name: "n1", Boot: "b", Self: true, State: cluster.Alive}}
		if test.own == nil {
			c.Self = cluster.Member{Name: "r1", Boot: "b", Role: cluster.Reporter}
		} else {
			c.Add(*test.own)
		}
		if err := c.Ask(t.Context(), test.others, test.others.members(), test.q, cluster.QueryFindings); err != nil {
			t.Fatal(name, err)
		}
		a := c.Audit(test.q)
		if got := fmt.Sprint(a.Unchecked); a.Verdict != test.verdict || got != test.texts {
			t.Errorf("%s: %s, %s; want %s, %s", name, a.Verdict, got, test.verdict, test.texts)
		}
	}
}

// readBooks are books of the API server that have these names.
type readBooks struct {
	Books
	names []string
}

func (b readBooks) Findings() document.Answer { return document.Answer{Checked: b.names} }

// TestNoBook: nodes without a book of their own are checked if the reporter has read that of their IPAM.
func TestNoBook(t *testing.T) {
	none := &document.Answer{NoBook: "everything: no network in /etc/cni/net.d"}
	gaps := &document.Answer{NoBook: none.NoBook, Unchecked: []string{"routes"}}
	for name, test := range map[string]struct {
		books   Books
		others  others
		verdict string
		texts   string
	}{
		"no reporter":        {nil, others{"n1": none}, "not checked", "[on node n1, everything: no network in /etc/cni/net.d]"},
		"pods and nodes":     {readBooks{names: []string{"kubernetes"}}, others{"n1": none}, "partly checked", "[on node n1, everything: no network in /etc/cni/net.d]"},
		"a book of the IPAM": {readBooks{names: []string{"kubernetes", "calico"}}, others{"n1": none, "n2": none}, "agree", "[]"},
		"and something else": {readBooks{names: []string{"kubernetes", "calico"}}, others{"n1": gaps}, "partly checked", "[on node n1, routes]"},
	} {
		c := &Collection{Self: cluster.Member{Name: "r1", Boot: "b", Role: cluster.Reporter}, Books: test.books}
		q := document.Query{Cluster: true}
		if err := c.Ask(t.Context(), test.others, test.others.members(), q, cluster.QueryFindings); err != nil {
			t.Fatal(name, err)
		}
		if a := c.Audit(q); a.Verdict != test.verdict || fmt.Sprint(a.Unchecked) != test.texts {
			t.Errorf("%s: %s, %s; want %s, %s", name, a.Verdict, a.Unchecked, test.verdict, test.texts)
		}
	}
}

// TestDivertedOnce: where a node says that it diverts an address, nobody's walk through it is told; other ways are.
func TestDivertedOnce(t *testing.T) {
	ip := netip.MustParseAddr("10.1.2.5")
	pod := document.Holder{Pod: &document.Pod{Namespace: "shop", Name: "web", UID: "1"}}
	walk := func(ip netip.Addr, through ...string) *document.Answer {
		return &document.Answer{
			Findings: []document.Finding{{Kind: document.Misrouted, IP: ip, Holder: pod, HeldBy: "n9", Through: through, End: document.EndsAtPods}, {Kind: document.Unreserved, IP: ip}},
			Routes:   []document.Route{{To: document.ToAway, Device: "eth0", Ends: true, Policy: true}},
		}
	}
	diverting := &document.Answer{
		Findings: []document.Finding{{Kind: document.Diverted, IP: ip, Holder: pod, HeldBy: "n9", End: document.EndsAtPods, Device: "veth1"}},
		Routes:   []document.Route{{To: document.ToDevice, Device: "veth1", Proxy: "eth0"}},
	}
	all := others{"n1": diverting, "n2": walk(ip, "n4", "n1"), "n3": walk(ip, "n4"), "n4": walk(ip.Next(), "n1")}
	collect := func(kind cluster.QueryKind, q document.Query) *Collection {
		c := &Collection{Self: cluster.Member{Name: "n0", Boot: "b"}}
		if err := c.Ask(context.Background(), all, all.members(), q, kind); err != nil {
			t.Fatal(err)
		}
		return c
	}
	list := func(findings []document.Finding) (said []string) {
		for _, f := range findings {
			if f.Kind != document.Unreserved {
				said = append(said, fmt.Sprint(f.Node, " ", f.Kind, " ", f.IP))
			}
		}
		slices.Sort(said)
		return said
	}
	q := document.Query{Cluster: true}
	if got, want := list(collect(cluster.QueryFindings, q).Audit(q).Findings), []string{"n1 diverted 10.1.2.5", "n3 misrouted 10.1.2.5", "n4 misrouted 10.1.2.6"}; !slices.Equal(got, want) {
		t.Errorf("the audit has %q, want %q", got, want)
	}
	q.IP = ip
	e := collect(cluster.QueryStories, q).Explanation(q)
	if got, want := list(e.Findings), []string{"n1 diverted 10.1.2.5", "n3 misrouted 10.1.2.5"}; !slices.Equal(got, want) || len(e.Findings) != len(want) {
		t.Errorf("explain has %q, want %q", got, want)
	}
	for _, r := range e.Routes {
		if r.Ends || r.Policy || (r.Proxy != "") != (r.Node == "n1") {
			t.Errorf("route %+v", r)
		}
	}
	if len(e.Routes) != len(all) {
		t.Errorf("%d routes", len(e.Routes))
	}
}
