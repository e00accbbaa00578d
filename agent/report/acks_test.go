package report

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// Whoever says that they work on a conflict is in it, at this node and at others, until the time or the conflict is over; also after a
// restart of the agent, while the conflict is verified again.
func TestAcknowledge(t *testing.T) {
	r := newReport(t, new(fakeCluster))
	changed := 0
	r.Changed = func() { changed++ }
	remote := detector.Sighting{Holder: holding("n2", "10.0.0.2", 77).Holder, Evidence: detector.Announced}
	own := detector.Sighting{Holder: holding("n1", "10.0.0.2", 7).Holder, Evidence: detector.Announced}
	own.Holder.ID.Node = r.Table.Host.Node
	r.confirm(t, "10.0.0.2", own, remote)
	r.confirm(t, "10.0.0.3", own, remote)
	ip := netip.MustParseAddr("10.0.0.2")
	say := func(network string, ack cluster.Ack) {
		t.Helper()
		answer := make(chan []byte, 1)
		r.Reply(cluster.Query{Kind: cluster.QueryAck, IP: ip, Only: cluster.Only{Network: network}, Ack: ack, Answer: answer, Limit: 1 << 20})
		a, _, err := document.DecodeAnswer(<-answer, "n1", "b", time.Now())
		if must(t, err); network != "other" && len(a.Conflicts) != 1 {
			t.Errorf("%d conflicts are acknowledged", len(a.Conflicts))
		}
	}
	of := func(ip string) *document.Ack {
		t.Helper()
		doc, err := r.Conflicts(t.Context(), document.Query{IP: netip.MustParseAddr(ip)})
		must(t, err)
		return doc.Conflicts[0].Acknowledged
	}

	say("other", cluster.Ack{By: "alice", Seconds: 3600})
	say("default", cluster.Ack{By: "", Seconds: 3600})
	say("default", cluster.Ack{By: "alice", Seconds: 1})
	if of("10.0.0.2") != nil || changed != 0 {
		t.Fatal("what is not valid, or about another network, is acknowledged")
	}
	say("", cluster.Ack{By: "alice\x1b", Why: "node is replaced", Seconds: 3600, Age: 60})
	a := of("10.0.0.2")
	if left := time.Until(a.Until()); a.By != "alice?" || left < 58*time.Minute || left > 59*time.Minute || of("10.0.0.3") != nil {
		t.Errorf("%+v", a)
	}
	doc, err := r.Conflicts(t.Context(), document.Query{IP: ip})
	must(t, err)
	if text := doc.Conflicts[0].Judgement.Text; !strings.HasPrefix(text, "Acknowledged by alice? until ") || !strings.Contains(text, " UTC: node is replaced. ") {
		t.Error(text)
	}
	say("", cluster.Ack{By: "alice\x1b", Why: "node is replaced", Seconds: 3600, Age: 62})
	if changed != 1 {
		t.Errorf("it was said once more, and %d things changed", changed)
	}

	snapshot := r.Detector.Snapshot()
	next := newReport(t, new(fakeCluster))
	next.Restore(r.Kept(snapshot))
	next.Detector.Restore(snapshot, time.Now())
	if _, _, acks := next.Kept(next.Detector.Snapshot()); len(acks) != 1 {
		t.Errorf("after a restart it is %v", acks)
	}
	next.acknowledge(cluster.Query{IP: ip, Ack: cluster.Ack{By: "bob", Seconds: 60}})
	if a := next.acks[snapshot.Open[0].ID]; a == nil || a.By != "bob" {
		t.Errorf("of one that is not confirmed yet it is %+v", a)
	}

	say("", cluster.Ack{By: "bob", Seconds: 0})
	if of("10.0.0.2") != nil {
		t.Error("it does not end")
	}
	say("", cluster.Ack{By: "alice\x1b", Why: "node is replaced", Seconds: 3600, Age: 100}) // a reporter says it again
	if of("10.0.0.2") != nil {
		t.Error("what has ended begins again")
	}
	if _, _, acks := r.Kept(detector.Snapshot{}); len(acks) != 0 || len(r.acks) != 0 {
		t.Errorf("of conflicts that are over: %v", acks)
	}
}

// Said on one node, all agents are told, and it returns what they have.
func TestAcknowledgeHere(t *testing.T) {
	ip, there := netip.MustParseAddr("10.0.0.2"), newReport(t, new(fakeCluster))
	there.confirm(t, "10.0.0.2", detector.Sighting{Holder: holding("n1", "10.0.0.2", 7).Holder, Evidence: detector.Announced},
		detector.Sighting{Holder: holding("n2", "10.0.0.2", 77).Holder, Evidence: detector.Announced})
	network := &fakeCluster{members: []cluster.Member{member("n2", cluster.Alive)}, query: func(cluster.Query) ([]document.Answer, []cluster.Member, error) {
		return []document.Answer{{Node: "n2", BootID: "b", Conflicts: []document.Conflict{document.NewConflict(there.Detector.Conflicts(false)[0])}}}, nil, nil
	}}
	r := newReport(t, network)
	ack := cluster.Ack{By: "alice", Seconds: 60}
	doc, err := r.Acknowledge(t.Context(), document.Query{IP: ip, Network: "default", Ack: ack})
	if must(t, err); len(doc.Conflicts) != 1 || doc.Asked != 2 {
		t.Errorf("%+v", doc)
	}
	if len(network.queries) != 1 {
		t.Fatalf("the queries are %+v", network.queries)
	}
	if q := network.queries[0]; q.Kind != cluster.QueryAck || q.IP != ip || q.Only.Network != "default" || q.Ack != ack {
		t.Errorf("the query is %+v", q)
	}
}
