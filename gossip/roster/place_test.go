package roster

import (
	"fmt"
	"testing"
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
	m.Epoch, m.Address = 3, "10.0.0.2:7951"
	if l.join(m, "went n/b, came n/b"); n.Score(1) == before {
		t.Error("the address does not count")
	}
}
