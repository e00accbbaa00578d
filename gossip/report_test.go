package gossip

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

func (f *fakeNet) startReporter(epoch int64) *fakeNode {
	f.t.Helper()
	return f.startMember(cluster.Member{Name: "reporter", Boot: "pod", Epoch: epoch, Address: "reporter:7951", Role: cluster.Reporter})
}

func (n *fakeNode) conflict(key int, state detector.State) detector.Conflict {
	own := n.binding(1)
	return detector.Conflict{
		ID: fmt.Sprint(key), Key: testKey(key), State: state, Scope: detector.SameNode, SuspectedAt: time.Now(),
		Holders: []detector.Binding{{Key: testKey(key), Holder: own.Holder, Evidence: own.Evidence, FirstSeen: own.FirstSeen, LastSeen: own.LastSeen}},
	}
}

// reported is what a reporter knows in the end: "node-0 10.0.0.1 confirmed", "node-0 2 findings".
func (n *fakeNode) reported() map[string]int {
	all := make(map[string]int)
	reports, _ := messages[cluster.Report](n)
	for _, r := range reports {
		text := cluster.NodeName(r.Node)
		if r.Conflict != nil {
			text += fmt.Sprintf(" %s %s of %d", r.Conflict.Key.IP, r.Conflict.State, len(r.Conflict.Holders))
		} else {
			text += fmt.Sprintf(" %d findings, version %s", r.Summary.Findings["namesake"], r.Summary.Version)
		}
		all[text]++
	}
	return all
}

func expectReports(t *testing.T, n *fakeNode, want ...string) {
	t.Helper()
	got := n.reported()
	for _, text := range want {
		if got[text] != 1 {
			t.Errorf("%q came %d times; all are %v", text, got[text], got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v, want %q", got, want)
	}
	n.forgetMessages()
}

// A reporter receives open conflicts and summaries, each until it acknowledges it; one that joins later receives all that
// is open. It keeps no leases and is no agent.
func TestReporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(2)
		a, b := nodes[0], nodes[1]
		r := f.startReporter(1)
		time.Sleep(time.Second)
		tries := 0
		f.set(func() {
			f.drop = func(from, to string, p wire.Packet) bool {
				if len(p.Reports) > 0 && (to != "reporter" || from == "reporter") {
					t.Errorf("%s sends a report to %s", from, to)
				}
				tries += len(p.Reports)
				return len(p.Reports) > 0 && tries <= 6
			}
		})
		for i := range 20 {
			a.hold(testKey(i), 1)
		}
		a.ReportConflict(a.conflict(1, detector.Suspected))
		b.ReportConflict(b.conflict(2, detector.Suspected))
		a.ReportSummary(cluster.Summary{Version: "2", Findings: map[string]int{"namesake": 3}})
		time.Sleep(20 * time.Second)
		expectReports(t, r, "node-0 10.0.0.1 suspected of 1", "node-1 10.0.0.2 suspected of 1", "node-0 3 findings, version 2")
		f.set(func() {
			if tries != 9 {
				t.Errorf("sent %d times", tries)
			}
		})
		a.ReportConflict(a.conflict(1, detector.Confirmed))
		b.ReportConflict(b.conflict(2, detector.Resolved))
		a.ReportSummary(cluster.Summary{Version: "2"})
		time.Sleep(time.Second)
		expectReports(t, r, "node-0 10.0.0.1 confirmed of 1", "node-1 10.0.0.2 resolved of 1", "node-0 0 findings, version 2")

		late := f.startMember(cluster.Member{Name: "reporter-2", Boot: "pod", Address: "reporter-2:7951", Role: cluster.Reporter})
		f.set(func() { f.drop = nil })
		r.kill()
		again := f.startReporter(2)
		time.Sleep(time.Second)
		for _, n := range []*fakeNode{late, again} {
			expectReports(t, n, "node-0 10.0.0.1 confirmed of 1", "node-0 0 findings, version 2")
			if s := n.Status(); s.Kept != 0 || s.Received["lease"] != 0 {
				t.Errorf("%s keeps %d leases", n.member.Name, s.Kept)
			}
		}
		time.Sleep(10 * time.Minute)
		expectReports(t, late)
		if list := a.Members(); len(list) != 2 || a.Status().Members[cluster.Alive] != 2 {
			t.Errorf("members %+v", list)
		}
		if list := a.Status().Reporters; len(list) != 2 || list[0].Name != "reporter" || list[1].Name != "reporter-2" || list[0].Role != cluster.Reporter {
			t.Errorf("reporters %+v", list)
		}
		if missing, err := a.Query(t.Context(), cluster.Query{Kind: cluster.QueryBindings, Node: "reporter"}, nil); err == nil {
			t.Errorf("the reporter was queried; %v", missing)
		}
	})
}

// The open conflicts that are remembered have a bound, also while a reporter acknowledges nothing. What is known changes
// all the same.
func TestReportsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		a := f.startMany(1)[0]
		const more = 5
		for i := range maxReports + more {
			a.ReportConflict(a.conflict(i, detector.Suspected))
		}
		a.ReportConflict(a.conflict(3, detector.Confirmed))
		synctest.Wait()
		if n := a.dropped(dropReports); n != more {
			t.Errorf("dropped %d", n)
		}
		r := f.startReporter(1)
		f.set(func() { f.delay = time.Millisecond })
		eventually(t, 10*time.Second, "all reports", func() bool { return len(r.reported()) == maxReports })
		if got := r.reported(); got["node-0 10.0.0.3 confirmed of 1"] != 1 {
			t.Error("a change of a conflict that was known got lost")
		}
		f.set(func() { f.cut = func(_, to string) bool { return to == "reporter" } })
		for i := range 2 * reportPolicy.Max {
			a.ReportConflict(a.conflict(i, detector.Resolved))
			if i%1000 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		a.state.Lock()
		n := len(a.queue.RemoveAll(a.roster.ByID(r.member.NodeID())))
		a.state.Unlock()
		if n != reportPolicy.Max || a.dropped(dropQueue) == 0 || len(a.reports) != 0 {
			t.Errorf("%d reports wait, dropped %v, %d are remembered", n, a.Status().Dropped, len(a.reports))
		}
	})
}
