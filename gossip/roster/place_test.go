package roster

import (
	"fmt"
	"testing"

	"github.com/dupip/dupip/detector/cluster"
)

// Sixty members at one IP keep what one keeps, the first of them, wherever they were known in another order. Who listens
// on loopback is one of many agents on a machine.
func TestOneIPKeepsOnce(t *testing.T) {
	for format, want := range map[string]int{"10.0.0.9:%d": 1, "[::ffff:10.0.0.9]:%d": 1, "[fd00::9]:%d": 1, "127.0.0.1:%d": 60, "[::1]:%d": 60, "n%d:7951": 60} {
		there, back := newLab(t), newLab(t)
		for i := range 60 {
			for l, i := range map[*lab]int{there: i, back: 59 - i} {
				m := member(fmt.Sprint("many-", 100+i), "b", 1)
				m.Address = fmt.Sprintf(format, 7000+i)
				l.join(m, "came "+m.NodeID())
				if i < 10 {
					n := member(fmt.Sprint("node-", i), "b", 1)
					n.Address = fmt.Sprintf("10.0.1.%d:7951", i)
					l.join(n, "came "+n.NodeID())
				}
			}
		}
		for key := range uint64(100) {
			first, second := there.Keepers(key, 100), back.Keepers(key, 100)
			if len(first) != 11+want || len(second) != len(first) {
				t.Fatalf("%s: %d keepers, %d the other way", format, len(first), len(second))
			}
			for i, n := range first {
				if n.ID != second[i].ID {
					t.Fatalf("%s: the keepers of key %d are not the same: %s, %s", format, key, n.ID, second[i].ID)
				}
				if many := n.Address[:5] != "10.0." && n != there.Self(); want == 1 && many && n.Name != "many-100" {
					t.Errorf("%s: %s keeps something", format, n.Name)
				}
			}
		}
	}
}

// An agent that is started again at another address has other scores: its keys move.
func TestScoresOfAnAddress(t *testing.T) {
	l := newLab(t)
	m := member("n", "b", 1)
	m.Address = "10.0.0.1:7951"
	n := l.join(m, "came n/b")
	before := n.Score(1)
	m.Epoch, m.Address = 2, "10.0.0.1:7952"
	if l.join(m, "renewed n/b"); n.Score(1) != before {
		t.Error("the port counts")
	}
	l.leave(m, "renewed n/b")
	l.leave(n.Member, "went n/b")
	m.Epoch, m.Address = 3, "10.0.0.2:7951"
	if l.join(m, "came n/b"); n.Score(1) == before {
		t.Error("the address does not count")
	}
}

// Somebody at another IP who says that it is a later agent of a node, even many times, does not take its place, also not over
// a restart; its own one at another IP does when no other is there.
func TestHome(t *testing.T) {
	l := newLab(t)
	at := func(epoch int64, ip string) cluster.Member {
		m := member("n", "b", epoch)
		m.Address = ip + ":7951"
		return m
	}
	first, next := at(1, "10.0.0.1"), at(2, "10.0.0.1")
	n := l.join(first, "came n/b")
	for epoch := range int64(2 * maxRuns) {
		l.join(at(100+epoch, "10.0.0.66"), "")
	}
	l.join(next, "renewed n/b")
	l.leave(first, "")
	if l.Sender(id(next)) != n || n.Address != next.Address {
		t.Errorf("the node is at %s", n.Address)
	}
	l.leave(next, "went n/b, came n/b")
	last := at(3, "10.0.0.1")
	l.join(last, "went n/b, came n/b")
	if l.Sender(id(last)) != n {
		t.Error("its own agent does not count")
	}
	if len(n.runs) > maxRuns || len(l.byMember) != len(n.runs)+1 {
		t.Errorf("%d incarnations", len(n.runs))
	}
}
