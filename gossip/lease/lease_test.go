package lease

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

var start = time.Unix(1e9, 0)

// lab is a table with its roster, its queue and a clock.
type lab struct {
	*Table
	t   *testing.T
	r   *roster.Roster
	q   *retry.Queue
	now time.Time
}

func newLab(t *testing.T, nodes int) *lab {
	r := roster.New(wire.MemberIDOf("self", "s", 1), cluster.Member{Name: "self", Boot: "s", Epoch: 1}, start)
	q := retry.New(start)
	l := &lab{Table: New(r, q, 3, rand.N[time.Duration]), t: t, r: r, q: q, now: start}
	for i := range nodes {
		l.join(fmt.Sprintf("n%d", i), 1)
	}
	return l
}

func (l *lab) join(name string, epoch int64) *roster.Node {
	l.t.Helper()
	m := cluster.Member{Name: name, Boot: "b", Epoch: epoch, Address: name}
	changes, err := l.r.Join(wire.MemberIDOf(name, "b", epoch), m, l.now)
	if err != nil || len(changes) != 1 {
		l.t.Fatal(changes, err)
	}
	n := changes[0].Node
	switch changes[0].Kind {
	case roster.Came:
		l.Moved(n, l.now)
	case roster.Renewed:
		l.Renewed(n, l.now)
	}
	return n
}

func (l *lab) leave(n *roster.Node) {
	l.r.Leave(n.Incarnation, true, l.now)
	l.q.RemoveAll(n)
	l.Moved(n, l.now)
}

func key(i int) detector.Key {
	return detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
}

func (l *lab) binding(netns uint64) cluster.Binding {
	return cluster.Binding{
		Holder:   detector.Holder{ID: detector.HolderID{Node: l.r.Self().ID, Netns: netns}},
		Evidence: detector.Announced, FirstSeen: start.Add(-time.Minute),
	}
}

func (l *lab) id(i int) ID { return ID{key(i), l.binding(1).Holder.ID} }

// set leases key i.
func (l *lab) set(i int) {
	l.t.Helper()
	if !l.Set(key(i), l.binding(1), l.now) {
		l.t.Fatal("there is no room")
	}
}

func (l *lab) due() []retry.Due { return l.q.Due(l.now, 1e6) }

func lease(d retry.Due) *Lease { return d.Message.(*Lease) }

// ack acknowledges a message, as the program does. It reports whether that counts.
func (l *lab) ack(to *roster.Node, seq uint64) bool {
	m := l.q.Waiting(to, seq)
	if m != nil {
		l.Acked(to, m.(*Lease), l.now)
	}
	return m != nil
}

// ackDue acknowledges all that is due, as good keepers do, and returns what was sent.
func (l *lab) ackDue() []retry.Due {
	sent := l.due()
	for _, d := range sent {
		l.ack(d.To, d.Seq)
	}
	return sent
}

// until goes on to a time, acknowledging all that becomes due.
func (l *lab) until(at time.Time) (all []retry.Due, times []time.Time) {
	for {
		next := l.q.Next()
		if next.IsZero() || next.After(at) {
			l.now = at
			return all, times
		}
		l.now = next
		for _, d := range l.ackDue() {
			all, times = append(all, d), append(times, l.now)
		}
	}
}

func receivers(sent []retry.Due) []string {
	set := make(map[string]bool)
	for _, d := range sent {
		set[d.To.Name] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func TestAlone(t *testing.T) {
	l := newLab(t, 0)
	l.set(1)
	sent := l.ackDue()
	if got := receivers(sent); !slices.Equal(got, []string{"self"}) {
		t.Errorf("sent to %v", got)
	}
	if got := lease(sent[0]); got.ID != l.id(1) || got.Binding != l.binding(1) || got.Gone {
		t.Errorf("sent %+v", got)
	}
}

func TestAllKeepIfFew(t *testing.T) {
	l := newLab(t, 2)
	for i := range 10 {
		l.set(i)
		if got := receivers(l.ackDue()); !slices.Equal(got, []string{"n0", "n1", "self"}) {
			t.Errorf("sent to %v", got)
		}
	}
}

// A lease is sent to each keeper until that acknowledges it, without end.
func TestRepeat(t *testing.T) {
	l := newLab(t, 10)
	l.set(1)
	var at []time.Duration
	for range 8 {
		sent := l.due()
		if len(sent) != 3 || len(receivers(sent)) != 3 {
			t.Fatalf("sent %d times to %v", len(sent), receivers(sent))
		}
		at = append(at, l.now.Sub(start))
		l.now = l.q.Next()
	}
	want := []time.Duration{0, 250, 750, 1750, 3750, 8750, 13750, 18750}
	for i, d := range at {
		if d != want[i]*time.Millisecond {
			t.Fatalf("sent after %v, want after %v ms", at, want)
		}
	}
	sent := l.due()
	l.ack(sent[0].To, sent[0].Seq)
	l.ack(sent[1].To, sent[1].Seq)
	if l.ack(sent[2].To, 7777) || l.ack(sent[2].To, sent[0].Seq) {
		t.Error("another acknowledgement counts")
	}
	l.now = l.q.Next()
	if again := l.due(); len(again) != 1 || again[0].To != sent[2].To {
		t.Errorf("sent to %v, want %s", receivers(again), sent[2].To.Name)
	}
}

func TestRefresh(t *testing.T) {
	l := newLab(t, 10)
	for i := range 100 {
		l.set(i)
	}
	l.ackDue()
	sent, times := l.until(start.Add(89 * time.Second))
	if len(sent) != 0 {
		t.Fatalf("refreshed after %v", times[0].Sub(start))
	}
	sent, times = l.until(start.Add(151 * time.Second))
	refreshed := make(map[string]bool)
	for _, d := range sent {
		refreshed[fmt.Sprint(d.To.Name, lease(d).ID)] = true
	}
	if len(refreshed) != 300 || len(sent) > 320 {
		t.Errorf("%d refreshments of %d, want 300", len(sent), len(refreshed))
	}
	// Not all at once, nor each at a time of its own.
	slices.SortFunc(times, time.Time.Compare)
	if n := len(slices.Compact(times)); n < 100 || n > 242 {
		t.Errorf("refreshed at %d times", n)
	}
}

func TestChange(t *testing.T) {
	l := newLab(t, 10)
	l.set(1)
	l.ackDue()
	again := l.binding(1)
	again.LastSeen, again.Holder.Pod.Name = start, "cart"
	if l.Set(key(1), again, l.now); l.q.Next().Before(start.Add(time.Minute)) {
		t.Error("sent again what is the same")
	}
	for i, change := range []func(*cluster.Binding){
		func(b *cluster.Binding) { b.Holder.MAC = detector.MAC{2} },
		func(b *cluster.Binding) { b.Evidence = detector.Data },
		func(b *cluster.Binding) { b.Occurrences = 1 },
		func(b *cluster.Binding) { b.Holder.Place = detector.PlaceBridge },
		func(b *cluster.Binding) { b.FirstSeen = start },
	} {
		b := l.binding(1)
		l.Set(key(1), b, l.now)
		l.ackDue()
		change(&b)
		l.Set(key(1), b, l.now)
		first := l.due()
		if len(first) != 3 || lease(first[0]).Binding != b {
			t.Errorf("change %d: sent %+v", i, first)
		}
		b.Occurrences++
		l.Set(key(1), b, l.now)
		for _, d := range first {
			if l.ack(d.To, d.Seq) { // of what was before
				t.Errorf("change %d: the acknowledgement of another version counts", i)
			}
		}
		if sent := l.ackDue(); len(sent) != 3 || lease(sent[0]).Binding != b {
			t.Errorf("change %d: sent %+v", i, sent)
		}
	}
}

func TestWithdraw(t *testing.T) {
	l := newLab(t, 10)
	l.set(1)
	if !l.Has(key(1)) || l.Has(key(2)) || !l.Live(l.id(1)) || l.Len() != 1 {
		t.Error("the lease is not there")
	}
	first := l.ackDue()
	if !l.Keeps(first[0].To, key(1)) || l.Keeps(first[0].To, key(2)) {
		t.Error("the keepers are wrong")
	}
	l.Withdraw(l.id(1), nil, l.now)
	l.Withdraw(l.id(1), nil, l.now)
	l.Withdraw(l.id(2), nil, l.now)
	if l.Has(key(1)) || l.Live(l.id(1)) || l.Len() != 0 || l.Keeps(first[0].To, key(1)) {
		t.Error("the lease is there")
	}
	sent := l.due()
	if len(sent) != 3 || !lease(sent[0]).Gone || lease(sent[0]).ID != l.id(1) {
		t.Fatalf("sent %+v", sent)
	}
	for _, d := range sent[1:] {
		l.ack(d.To, d.Seq)
	}
	tries := 0
	for !l.q.Next().IsZero() && tries < 100 {
		l.now = l.q.Next()
		tries += len(l.due())
	}
	if d := l.now.Sub(start); tries < 4 || tries > 20 || d != gonePolicy.GiveUp {
		t.Errorf("sent %d times in %v to one that does not answer", tries, d)
	}
	if len(l.leases)+len(l.keys) != 0 {
		t.Error("something is left")
	}
}

// What a keeper may know is withdrawn there, and nothing else.
func TestWhoIsInformedOfTheEnd(t *testing.T) {
	changed := func(l *lab) {
		b := l.binding(1)
		b.Occurrences = 1
		l.Set(key(1), b, l.now)
	}
	end := func(l *lab) { l.Withdraw(l.id(1), nil, l.now) }
	set := func(l *lab) { l.set(1) }
	send := func(l *lab) { l.due() }
	ack := func(l *lab) { l.ackDue() }
	for _, test := range []struct {
		name  string
		steps []func(*lab)
		want  int
	}{
		{"never sent", []func(*lab){set, end}, 0},
		{"sent", []func(*lab){set, send, end}, 3},
		{"a change was not sent", []func(*lab){set, ack, changed, end}, 3},
		{"the end was not sent, and it is there again", []func(*lab){set, ack, end, set, end}, 3},
		{"there and gone again, never sent", []func(*lab){set, end, set, end}, 0},
	} {
		l := newLab(t, 10)
		for _, step := range test.steps {
			step(l)
		}
		sent := l.due()
		for _, d := range sent {
			if !lease(d).Gone {
				t.Errorf("%s: sent %+v", test.name, lease(d))
			}
		}
		if len(sent) != test.want || l.Len() != 0 {
			t.Errorf("%s: %d were informed, want %d", test.name, len(sent), test.want)
		}
	}
}

func TestBackAgain(t *testing.T) {
	l := newLab(t, 10)
	l.set(1)
	before := l.ackDue()
	l.Withdraw(l.id(1), nil, l.now)
	gone := l.due()
	l.set(1)
	for _, d := range gone {
		if l.ack(d.To, d.Seq) {
			t.Error("the acknowledgement of the end counts for the lease")
		}
	}
	sent := l.ackDue()
	if got := receivers(sent); !slices.Equal(got, receivers(before)) || lease(sent[0]).Gone || sent[0].Seq <= gone[0].Seq {
		t.Errorf("sent %+v to %v", lease(sent[0]), got)
	}
	if l.Len() != 1 || !l.Has(key(1)) {
		t.Error("the lease is not there")
	}
}

func TestResend(t *testing.T) {
	l := newLab(t, 10)
	for i := range 20 {
		l.set(i)
	}
	of := make(map[*roster.Node]int)
	for _, d := range l.ackDue() {
		of[d.To]++
	}
	l.now = start.Add(time.Second)
	l.Resend(nil, l.now)
	if sent := l.ackDue(); len(sent) != 60 {
		t.Errorf("sent %d messages again, want 60", len(sent))
	}
	for n, want := range of {
		l.Resend(n, l.now)
		if sent := l.ackDue(); len(sent) != want || sent[0].To != n {
			t.Errorf("sent %d messages again to %v, want %d", len(sent), receivers(sent), want)
		}
	}
}
