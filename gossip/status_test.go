package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/wire"
)

// Problems are logged as they come and go, each once, whatever their figures are.
func TestProblemLog(t *testing.T) {
	now := time.Unix(1e9, 0)
	known := make(problemLog)
	for i, step := range []struct {
		problems []string
		began    []string
	}{
		{[]string{"3 leases are lost: x"}, nil}, // it may be over soon
		{nil, nil},
		{[]string{"3 leases are lost: x"}, nil},
		{[]string{"4 leases are lost: y"}, []string{"4 leases are lost: y"}},
		{[]string{"5 leases are lost: y", "no UDP"}, nil},
		{[]string{"no UDP"}, []string{"no UDP"}},
		{nil, nil},
		{nil, nil},
		{[]string{"6 leases are lost: z"}, nil}, // again, and not worth another line
		{nil, nil},
		// Whoever is tried next has another reason.
		{[]string{"this node is alone: it hung up"}, nil},
		{[]string{"this node is alone: it has other keys"}, []string{"this node is alone: it has other keys"}},
		{[]string{"this node is alone: it hung up"}, nil},
		{nil, nil},
	} {
		now = now.Add(lookEvery)
		if began := known.look(step.problems, now); !slices.Equal(began, step.began) {
			t.Errorf("step %d: began %q", i, began)
		}
	}
	now = now.Add(restsFor)
	known.look(nil, now)
	if len(known) != 0 {
		t.Errorf("%d problems are remembered", len(known))
	}
}

func TestNamesakeProblems(t *testing.T) {
	member := func(name, boot string) cluster.Member {
		return cluster.Member{Name: name, Boot: boot, Address: name + boot}
	}
	var many []cluster.Member
	for i := range 10 {
		many = append(many, member(fmt.Sprint("n", i), "a"), member(fmt.Sprint("n", i), "b"))
	}
	for _, test := range []struct {
		members []cluster.Member
		want    []string
	}{
		{nil, nil},
		{[]cluster.Member{member("n", "a"), member("n", "a")}, []string{"2 agents of node n run on one machine (na, na): stop all but one"}},
		{
			[]cluster.Member{member("n", "a"), member("n", "a"), member("n", "b"), member("n", "c"), member("n", "d")},
			[]string{"5 live nodes have the name n (na, na, nb and 2 more)"},
		},
		{many, []string{"2 live nodes have the name n0 (", "2 live nodes have the name n1 (", "2 live nodes have the name n2 ("}},
	} {
		got := namesakeProblems(test.members)
		if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// logs is a buffer that several goroutines write.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// count counts the lines with a text.
func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// In a quiet cluster each member that comes or goes is a line of the log; a storm of them is not. A problem that lasts is
// a line, too.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, lines := newFakeNet(t), new(logs)
		f.log = slog.New(slog.NewTextHandler(lines, nil))
		n := f.start("node", testBoot, 1)
		f.log = nil
		time.Sleep(time.Minute)
		others := f.startMany(3)
		synctest.Wait()
		others[0].kill()
		others[1].leave()
		synctest.Wait()
		for text, want := range map[string]int{"a node joined": 3, "level=WARN msg=\"a node does not answer any more": 1, "a node left": 1, "level=WARN": 1} {
			if got := lines.count(text); got != want {
				t.Errorf("%q is logged %d times, want %d", text, got, want)
			}
		}
		time.Sleep(10*time.Minute + lookEvery/2) // between two looks
		many := make([]members.Member, 1000)
		for i := range many {
			id := others[2].member.ID + wire.MemberID(100+i)
			many[i] = members.Member{ID: id, Member: cluster.Member{Name: fmt.Sprint("x", i), Boot: "b", Address: fmt.Sprint(i)}}
			n.handler.Joined(many[i])
		}
		synctest.Wait()
		if got := lines.count("a node joined"); got != 13 {
			t.Errorf("%d lines", got)
		}
		for _, m := range many {
			n.handler.Left(m, false)
		}
		time.Sleep(lookEvery)
		synctest.Wait()
		want := `level=WARN msg="log lines about nodes left out; \"dupip nodes\" lists all nodes" joined=990 left=0 dead=1000`
		if got, all := lines.count(want), lines.count("left out"); got != 1 || all != 1 {
			t.Errorf("%d lines of %d count the lines left out", got, all)
		}
		f.set(func() { f.cut = func(_, _ string) bool { return true } })
		n.hold(testKey(1), 1)
		time.Sleep(time.Minute)
		if got := lines.count("leases are not acknowledged by"); got != 1 {
			t.Errorf("a problem is logged %d times", got)
		}
		n.Withdraw(testKey(1), n.binding(1).Holder.ID, nil)
		time.Sleep(time.Minute)
		if got := lines.count("all logged problems are over"); got != 1 {
			t.Errorf("their end is logged %d times", got)
		}
	})
}

func TestOptions(t *testing.T) {
	for name, opts := range map[string]Options{
		"no name": {Members: members.Options{Boot: "b", Bind: "127.0.0.1"}},
		"no boot": {Members: members.Options{Node: "n", Bind: "127.0.0.1"}},
		"a slash": {Members: members.Options{Node: "n/m", Boot: "b", Bind: "127.0.0.1"}},
	} {
		if _, err := New(opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A node that nobody answered may not have noticed that of each of the others; all that it knew before were away.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		a := f.start("a", testBoot, 1)
		f.start("b", testBoot, 1)
		from := time.Now().Add(time.Hour)
		time.Sleep(2 * time.Hour)
		f.start("c", testBoot, 1)
		a.mu.Lock()
		a.cutFrom, a.cutUntil = from, time.Now()
		a.mu.Unlock()
		for _, m := range a.Members() {
			if away := m.AwayFrom.Equal(from) && m.AwayUntil.Equal(time.Now()); away != (m.Name == "b") {
				t.Errorf("%s was away from %v to %v", m.Name, m.AwayFrom, m.AwayUntil)
			}
		}
	})
}
