package gossip

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

func (f *fakeNet) startReporter(epoch int64) *fakeNode {
	f.t.Helper()
	return f.startMember(cluster.Member{Name: "reporter", Boot: "pod", Epoch: epoch, Address: "reporter:7951", Role: cluster.Reporter})
}

// conflict reports a conflict of the node, which says the address, the state and when it is encoded.
func (n *fakeNode) conflict(t *testing.T, key int, state string) {
	n.ReportConflict(testKey(key), state != "resolved", func(at time.Time, most int) ([]byte, error) {
		if !at.Equal(time.Now()) || most != wire.MaxReport {
			t.Errorf("encoded for %v, which is %v, in %d bytes", at, time.Now(), most)
		}
		return fmt.Appendf(nil, "%s %s|%d", testKey(key).IP, state, at.UnixMicro()), nil
	})
}

// reported is what a reporter knows in the end: "node-0 10.0.0.1 confirmed", "node-0 2 findings". What it received was
// encoded when it was sent, however often that was.
func (n *fakeNode) reported() map[string]int {
	all := make(map[string]int)
	reports, at := messages[cluster.Report](n)
	for i, r := range reports {
		text := cluster.NodeName(r.Node)
		if r.Summary == nil {
			conflict, encoded, _ := strings.Cut(string(r.Conflict), "|")
			micros, _ := strconv.ParseInt(encoded, 10, 64)
			if sent := time.UnixMicro(micros); r.At.After(at[i]) || r.At.Sub(sent) < 0 || r.At.Sub(sent) > 100*time.Millisecond {
				text += fmt.Sprintf(" encoded at %v, received at %v:", sent, r.At)
			}
			text += " " + conflict
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

// A reporter receives open conflicts and summaries, each until it acknowledges it; one that joins later receives what is open, and what has
// ended lately. It keeps no leases and is no agent.
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
		a.conflict(t, 1, "suspected")
		b.conflict(t, 2, "suspected")
		a.ReportSummary(cluster.Summary{Version: "2", Findings: map[string]int{"namesake": 3}})
		time.Sleep(20 * time.Second)
		expectReports(t, r, "node-0 10.0.0.1 suspected", "node-1 10.0.0.2 suspected", "node-0 3 findings, version 2")
		f.set(func() {
			if tries != 9 {
				t.Errorf("sent %d times", tries)
			}
		})
		a.conflict(t, 1, "confirmed")
		b.conflict(t, 2, "resolved")
		a.ReportSummary(cluster.Summary{Version: "2"})
		time.Sleep(time.Second)
		expectReports(t, r, "node-0 10.0.0.1 confirmed", "node-1 10.0.0.2 resolved", "node-0 0 findings, version 2")

		late := f.startMember(cluster.Member{Name: "reporter-2", Boot: "pod", Address: "reporter-2:7951", Role: cluster.Reporter})
		f.set(func() { f.drop = nil })
		r.kill()
		again := f.startReporter(2)
		time.Sleep(time.Second)
		for _, n := range []*fakeNode{late, again} {
			expectReports(t, n, "node-0 10.0.0.1 confirmed", "node-0 0 findings, version 2", "node-1 10.0.0.2 resolved")
			if s := n.Status(); s.Kept != 0 || s.Received["lease"] != 0 {
				t.Errorf("%s keeps %d leases", n.member.Name, s.Kept)
			}
		}
		const pauses = 5
		time.Sleep(pauses * reportPause)
		if got := late.reported(); got["node-0 10.0.0.1 confirmed"] != pauses || got["node-0 0 findings, version 2"] != pauses {
			t.Errorf("in %d pauses it was informed of %v, want what is open each time", pauses, got)
		}
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

// A reporter that was lost for a while is informed of what has ended meanwhile, but not when that is long ago.
func TestEndedWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		a := f.startMany(1)[0]
		r := f.startReporter(1)
		time.Sleep(time.Second)
		for n := range 3 {
			a.conflict(t, n, "confirmed")
		}
		time.Sleep(time.Second)
		expectReports(t, r, "node-0 10.0.0.0 confirmed", "node-0 10.0.0.1 confirmed", "node-0 10.0.0.2 confirmed")
		for n, away := range []time.Duration{time.Minute, keepEnded + time.Second} {
			f.left(r.member, false)
			a.conflict(t, n, "resolved")
			time.Sleep(away)
			f.joined(r.member)
			time.Sleep(time.Second)
			if n == 0 {
				expectReports(t, r, "node-0 10.0.0.0 resolved", "node-0 10.0.0.1 confirmed", "node-0 10.0.0.2 confirmed")
			} else {
				expectReports(t, r, "node-0 10.0.0.2 confirmed")
			}
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
			a.conflict(t, i, "suspected")
		}
		a.conflict(t, 3, "confirmed")
		a.ReportSummary(cluster.Summary{Version: "2"})
		synctest.Wait()
		if n := a.dropped(dropReports); n != more {
			t.Errorf("dropped %d", n)
		}
		r := f.startReporter(1)
		f.set(func() { f.delay = time.Millisecond })
		eventually(t, 10*time.Second, "all reports", func() bool { return len(r.reported()) == maxReports+1 })
		if got := r.reported(); got["node-0 10.0.0.3 confirmed"] != 1 || got["node-0 0 findings, version 2"] != 1 {
			t.Error("a change of a conflict that was known got lost, or the summary")
		}
		f.set(func() { f.cut = func(_, to string) bool { return to == "reporter" } })
		for i := range 2 * reportPolicy.Max {
			a.conflict(t, i, "resolved")
			if i%1000 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		a.state.Lock()
		n := len(a.post.RemoveAll(a.roster.ByID(r.member.NodeID())))
		a.state.Unlock()
		if n != reportPolicy.Max || a.dropped(dropQueue) == 0 || len(a.reports.all) > maxReports+1 {
			t.Errorf("%d reports wait, dropped %v, %d are remembered", n, a.Status().Dropped, len(a.reports.all))
		}
	})
}

// A conflict that cannot be encoded is not sent again and again, and those beside it are there.
func TestReportFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		a := f.startMany(1)[0]
		r := f.startReporter(1)
		synctest.Wait()
		tries := 0
		a.ReportConflict(testKey(1), true, func(time.Time, int) ([]byte, error) {
			tries++
			return nil, errors.New("it is too long")
		})
		a.conflict(t, 2, "confirmed")
		time.Sleep(time.Minute)
		expectReports(t, r, "node-0 10.0.0.2 confirmed")
		a.state.Lock()
		n := len(a.post.RemoveAll(a.roster.ByID(r.member.NodeID())))
		a.state.Unlock()
		if tries != 1 || n != 0 {
			t.Errorf("encoded %d times, %d reports wait", tries, n)
		}
		a.conflict(t, 1, "confirmed") // it is shorter now
		time.Sleep(time.Second)
		expectReports(t, r, "node-0 10.0.0.1 confirmed")
	})
}
