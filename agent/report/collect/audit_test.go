package collect

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector/cluster"
)

// others are the agents of other nodes; those without a document do not answer.
type others map[string]*cluster.Document

func (o others) members() (list []cluster.Member) {
	for name := range o {
		list = append(list, cluster.Member{Name: name, Boot: "b", State: cluster.Alive})
	}
	return list
}

// Query implements [Cluster].
func (o others) Query(_ context.Context, q cluster.Query, answer func(cluster.Answer)) (silent []cluster.Member, err error) {
	for _, m := range o.members() {
		if q.Node != "" && q.Node != m.Name {
			continue
		}
		if d := o[m.Name]; d != nil {
			answer(cluster.Answer{Member: m, Document: *d})
		} else {
			silent = append(silent, m)
		}
	}
	return silent, nil
}

// Only what was compared can agree: the verdict of all answers together.
func TestVerdict(t *testing.T) {
	document := func(changes ...func(*cluster.Document)) *cluster.Document {
		d := &cluster.Document{Checked: []string{"pods"}}
		for _, c := range changes {
			c(d)
		}
		return d
	}
	because := func(why string) func(*cluster.Document) {
		return func(d *cluster.Document) { d.Unchecked = append(d.Unchecked, why) }
	}
	nothing := func(d *cluster.Document) { d.Checked = nil }
	omitted := func(d *cluster.Document) { d.Omitted = 1 }
	found := func(d *cluster.Document) {
		d.Findings = []cluster.Finding{{Kind: cluster.Unreserved, IP: netip.MustParseAddr("10.1.2.5"), Network: "pods"}}
	}
	none := document(nothing, because("everything: no network in /etc/cni/net.d"))
	all := api.Query{Cluster: true}
	const missed = "what was asked for: it is in no book that dupip reads"
	for name, test := range map[string]struct {
		own     *cluster.Document // nil for a reporter
		others  others
		q       api.Query
		verdict string
		texts   string // unchecked
	}{
		"one node":                   {document(), nil, api.Query{}, "agree", "[]"},
		"a node without a book":      {none, nil, api.Query{}, "not checked", "[everything: no network in /etc/cni/net.d]"},
		"a part of a node":           {document(because("network cbr0")), nil, api.Query{}, "partly checked", "[network cbr0]"},
		"a finding beside that":      {document(found, because("network cbr0")), nil, api.Query{}, "findings", "[network cbr0]"},
		"a finding of another pod":   {document(found), nil, api.Query{Pod: "web"}, "agree", "[]"},
		"left out":                   {document(omitted), nil, api.Query{}, "partly checked", "[]"},
		"all nodes":                  {document(), others{"n2": document()}, all, "agree", "[]"},
		"a silent node":              {document(), others{"n2": nil}, all, "partly checked", "[]"},
		"a silent node by its name":  {nil, others{"n2": nil, "n3": document()}, api.Query{Node: "n2"}, "not checked", "[]"},
		"one node without a book":    {document(), others{"n2": none}, all, "partly checked", "[on node n2, everything: no network in /etc/cni/net.d]"},
		"that node by its name":      {nil, others{"n2": none, "n3": document()}, api.Query{Node: "n2"}, "not checked", "[on node n2, everything: no network in /etc/cni/net.d]"},
		"no node has a book":         {none, others{"n2": none}, all, "not checked", "[everything: no network in /etc/cni/net.d on node n2, everything: no network in /etc/cni/net.d]"},
		"all nodes are silent":       {nil, others{"n1": nil, "n2": nil}, all, "not checked", "[]"},
		"no such network":            {document(nothing), nil, api.Query{Network: "typo"}, "not checked", "[" + missed + "]"},
		"a network of another node":  {document(nothing), others{"n2": document()}, api.Query{Cluster: true, Network: "pods"}, "agree", "[]"},
		"no such network on any":     {document(nothing), others{"n2": document(nothing)}, api.Query{Cluster: true, Network: "typo"}, "not checked", "[" + missed + "]"},
		"left out on another node":   {document(), others{"n2": document(omitted)}, all, "partly checked", "[]"},
		"a finding on another node":  {none, others{"n2": document(found)}, all, "findings", "[everything: no network in /etc/cni/net.d]"},
		"a reporter":                 {nil, others{"n1": document(), "n2": document()}, all, "agree", "[]"},
		"an agent that says nothing": {nil, others{"n1": new(cluster.Document)}, all, "not checked", "[" + missed + "]"},
	} {
		c := &Collection{Self: cluster.Member{Name: "n1", Boot: "b", Self: true, State: cluster.Alive}}
		if test.own == nil {
			c.Self = cluster.Member{Name: "r1", Boot: "b", Role: cluster.Reporter}
		} else {
			c.Add(cluster.Answer{Member: c.Self, Document: *test.own})
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
