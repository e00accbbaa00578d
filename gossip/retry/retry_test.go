package retry

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

var (
	start = time.Unix(1e9, 0)

	forEver   = &Policy{Pauses: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second}}
	forASpell = &Policy{Pauses: []time.Duration{time.Second}, GiveUp: 2500 * time.Millisecond, Max: 3}
	urgent    = &Policy{Pauses: []time.Duration{time.Second}, Urgent: true}
)

type message struct {
	name   string
	policy *Policy
	text   string
}

func (m message) Identity() any   { return m.name }
func (m message) Policy() *Policy { return m.policy }

// nodes returns some nodes.
func nodes(n int) (list []*roster.Node) {
	self := cluster.Member{Name: "self", Boot: "b"}
	r := roster.New(wire.MemberIDOf("self", "b", 0), self, start)
	for i := range n {
		m := cluster.Member{Name: fmt.Sprint("n", i), Boot: "b", Address: fmt.Sprint("n", i)}
		if _, err := r.Join(wire.MemberIDOf(m.Name, m.Boot, 0), m, start); err != nil {
			panic(err)
		}
		list = append(list, r.ByID(m.NodeID()))
	}
	return list
}

func after(d time.Duration) time.Time { return start.Add(d) }

// names are those of messages, in their order; a message that was given up begins with an exclamation mark.
func names(due []Due) (list []string) {
	for _, d := range due {
		name := d.Message.(message).name
		if d.GaveUp {
			name = "!" + name
		}
		list = append(list, name)
	}
	return list
}

func expect(t *testing.T, due []Due, want ...string) {
	t.Helper()
	if got := names(due); !slices.Equal(got, want) {
		t.Errorf("due are %q, want %q", got, want)
	}
}

// sent runs a queue until a time and returns when a message was due.
func sent(q *Queue, until time.Duration) (at []string) {
	for next := q.Next(); !next.IsZero() && !next.After(after(until)); next = q.Next() {
		for _, d := range q.Due(next, 1) {
			at = append(at, fmt.Sprint(next.Sub(start), d.GaveUp))
		}
	}
	return at
}

func TestPauses(t *testing.T) {
	for _, test := range []struct {
		policy *Policy
		until  time.Duration
		want   []string
	}{
		{forEver, 4 * time.Second, []string{"0s false", "100ms false", "400ms false", "1.4s false", "2.4s false", "3.4s false"}},
		{forASpell, time.Minute, []string{"0s false", "1s false", "2s false", "2.5s true"}},
	} {
		q := New(start)
		q.Put(nodes(1)[0], message{"m", test.policy, ""}, 0, start)
		if got := sent(q, test.until); !slices.Equal(got, test.want) {
			t.Errorf("sent at %q, want %q", got, test.want)
		}
	}
}

// A message that is due later is not given up before it was sent.
func TestLater(t *testing.T) {
	q := New(start)
	q.Put(nodes(1)[0], message{"m", forASpell, ""}, 10*time.Second+time.Millisecond, start)
	expect(t, q.Due(after(10*time.Second), 9))
	if next := q.Next(); !next.Equal(after(10250 * time.Millisecond)) {
		t.Errorf("next after %v: it is not rounded up to a quarter of a second", next.Sub(start))
	}
	if got := sent(q, time.Minute); len(got) != 4 || got[0] != "10.25s false" || got[3] != "12.75s true" {
		t.Errorf("sent at %q", got)
	}
	if !q.Next().IsZero() {
		t.Error("something is left")
	}
}

func TestAcknowledge(t *testing.T) {
	q, list := New(start), nodes(2)
	a, b := list[0], list[1]
	q.Put(a, message{"m", forEver, "one"}, 0, start)
	if q.Waiting(a, 1) != nil {
		t.Error("it is acknowledged before it was sent")
	}
	q.Put(b, message{"m", forEver, "two"}, 0, start)
	due := q.Due(start, 9)
	expect(t, due, "m", "m")
	if due[0].Seq != 1 || due[1].Seq != 2 || q.Waiting(b, 1) != nil || q.Waiting(a, 3) != nil {
		t.Errorf("due are %+v; or the wrong node acknowledges", due)
	}
	if m := q.Waiting(a, 1); m != due[0].Message {
		t.Errorf("%+v is acknowledged", m)
	}
	if m, sent := q.Remove(a, "m"); m != due[0].Message || !sent {
		t.Errorf("removed %+v, sent is %v", m, sent)
	}
	if m, _ := q.Remove(a, "m"); m != nil || q.Waiting(a, 1) != nil || q.Waiting(b, 2) == nil {
		t.Error("it is removed twice, or the other one too")
	}
	expect(t, q.Due(after(time.Second), 9), "m")
}

// A message replaces the one with the same identity: what acknowledges that one says nothing of this.
func TestReplace(t *testing.T) {
	q, a := New(start), nodes(1)[0]
	q.Put(a, message{"m", forEver, "one"}, 0, start)
	q.Due(start, 9)
	q.Put(a, message{"m", forASpell, "two"}, 0, start)
	due := q.Due(start, 9)
	if len(due) != 1 || due[0].Message.(message).text != "two" || due[0].Seq != 2 || q.Waiting(a, 1) != nil {
		t.Errorf("due are %+v", due)
	}
	q.Put(a, message{"m", forEver, "three"}, 0, start)
	if m, sent := q.Remove(a, "m"); m.(message).text != "three" || sent {
		t.Errorf("removed %+v, sent is %v", m, sent)
	}
	if q.due.Len()+len(q.byID)+len(q.bySeq)+q.count[forEver]+q.count[forASpell] != 0 {
		t.Error("something is left")
	}
}

// Urgent messages go before others that are due for longer, in the order in which they were put.
func TestUrgent(t *testing.T) {
	q, a := New(start), nodes(1)[0]
	for _, name := range []string{"1", "2"} {
		q.Put(a, message{name, forEver, ""}, 0, start)
	}
	for _, name := range []string{"u1", "u2"} {
		q.Put(a, message{name, urgent, ""}, 0, after(time.Second))
	}
	expect(t, q.Due(after(time.Second), 3), "u1", "u2", "1")
	expect(t, q.Due(after(time.Second), 3), "2")
	if at := q.Next(); !at.Equal(after(1100 * time.Millisecond)) {
		t.Errorf("next after %v", at.Sub(start))
	}
}

// Of a kind with a bound there are no more, whatever becomes of them.
func TestMax(t *testing.T) {
	q, list := New(start), nodes(2)
	put := func(to int, name string, policy *Policy) bool {
		return q.Put(list[to], message{name, policy, ""}, 0, start)
	}
	for i := range 100 {
		if got, want := put(i%2, fmt.Sprint(i), forASpell), i < forASpell.Max; got != want {
			t.Fatalf("message %d: %v", i, got)
		}
		if !put(i%2, fmt.Sprint("other", i), forEver) {
			t.Fatal("another kind has no room")
		}
	}
	if !put(0, "0", forASpell) || put(0, "0", forEver) != true || !put(1, "3", forASpell) || put(1, "4", forASpell) {
		t.Error("a message that is replaced takes room")
	}
	q.RemoveAll(list[1])
	if !put(0, "5", forASpell) || !put(0, "6", forASpell) {
		t.Error("messages that were removed take room")
	}
	q.Due(start, 1000)
	for _, d := range q.Due(after(forASpell.GiveUp), 1000) {
		if d.GaveUp != (d.Message.(message).policy == forASpell) {
			t.Errorf("%+v", d)
		}
	}
	if q.count[forASpell] != 0 {
		t.Errorf("%d messages take room after they were given up", q.count[forASpell])
	}
}

func TestRemoveAll(t *testing.T) {
	q, list := New(start), nodes(2)
	for i := range 100 {
		q.Put(list[i%2], message{fmt.Sprint(i), forEver, ""}, time.Duration(i%7)*time.Second, start)
	}
	if got := q.RemoveAll(list[0]); len(got) != 50 {
		t.Errorf("removed %d messages", len(got))
	}
	for _, d := range q.Due(after(time.Minute), 1000) {
		if d.To != list[1] {
			t.Fatal("a message is left")
		}
	}
}

func TestLate(t *testing.T) {
	q, a := New(start), nodes(1)[0]
	q.Put(a, message{"later", forEver, ""}, time.Minute, start)
	q.Put(a, message{"m", forEver, ""}, 0, start)
	for at := time.Duration(0); at <= time.Second; at += 100 * time.Millisecond {
		q.Due(after(at), 9)
	}
	late := func(age time.Duration) (list []string) {
		q.Late(age, after(time.Second), func(_ *roster.Node, m Message, tries int, since time.Time) {
			list = append(list, fmt.Sprint(m.(message).name, tries, since.Sub(start)))
		})
		return list
	}
	if got := late(900 * time.Millisecond); !slices.Equal(got, []string{"m3 0s"}) {
		t.Errorf("late are %q", got)
	}
	if got := late(time.Second); len(got) != 0 {
		t.Errorf("late are %q", got)
	}
}
