package lease

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

var start = time.Unix(1e9, 0)

// lab is a table with its roster and a clock.
type lab struct {
	*Table
	t   *testing.T
	r   *roster.Roster
	now time.Time
}

func newLab(t *testing.T, nodes int) *lab {
	self := cluster.Member{Name: "self", Boot: "s", Epoch: 1}
	r := roster.New(wire.MemberIDOf("self", "s", 1), self, start)
	l := &lab{Table: New(r, 3, start), t: t, r: r, now: start}
	l.seq = 0
	for i := range nodes {
		l.join(fmt.Sprintf("n%d", i), 1)
	}
	return l
}

func (l *lab) join(name string, epoch int64) *roster.Node {
	l.t.Helper()
	n, change, err := l.r.Join(wire.MemberIDOf(name, "b", epoch), cluster.Member{Name: name, Boot: "b", Epoch: epoch}, l.now)
	if err != nil {
		l.t.Fatal(err)
	}
	switch change {
	case roster.Came:
		l.Came(n, l.now)
	case roster.Renewed:
		l.Renewed(n, l.now)
	}
	return n
}

func (l *lab) leave(n *roster.Node) {
	l.r.Leave(n.Member, l.now)
	l.Went(n, l.now)
}

func key(i int) detector.Key {
	return detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
}

func (l *lab) claim(netns uint64) cluster.Binding {
	return cluster.Binding{
		Holder:   detector.Holder{ID: detector.HolderID{Node: l.r.Self().ID, Netns: netns}},
		Evidence: detector.Announced, FirstSeen: start.Add(-time.Minute),
	}
}

func (l *lab) id(i int) ID { return ID{key(i), l.claim(1).Holder.ID} }

// set leases key i.
func (l *lab) set(i int) {
	l.t.Helper()
	if !l.Set(key(i), l.claim(1), l.now) {
		l.t.Fatal("there is no room")
	}
}

func (l *lab) due() []Send { return l.Due(nil, l.now, 1e6) }

// ack acknowledges all that is sent until nothing is due, as good keepers do, and returns
// what was sent.
func (l *lab) ackDue() []Send {
	sends := l.due()
	for _, s := range sends {
		l.Acked(s.To, s.Lease.Seq, l.now)
	}
	return sends
}

// until goes on to a time, acknowledging all that becomes due.
func (l *lab) until(at time.Time) (all []Send, times []time.Time) {
	for {
		next := l.Next()
		if next.IsZero() || next.After(at) {
			l.now = at
			return all, times
		}
		l.now = next
		for _, s := range l.ackDue() {
			all, times = append(all, s), append(times, l.now)
		}
	}
}

func nodes(sends []Send) []string {
	set := make(map[string]bool)
	for _, s := range sends {
		set[s.To.Name] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func TestAlone(t *testing.T) {
	l := newLab(t, 0)
	l.set(1)
	sends := l.ackDue()
	if got := nodes(sends); !slices.Equal(got, []string{"self"}) {
		t.Errorf("told %v", got)
	}
	want := wire.Lease{Seq: 1, Key: key(1), Claim: wire.Claim{
		Holder:   wire.Holder{Member: l.r.Self().Member, Netns: 1},
		Evidence: detector.Announced, FirstSeen: time.Minute,
	}}
	if sends[0].Lease != want {
		t.Errorf("told %+v, want %+v", sends[0].Lease, want)
	}
}

func TestAllKeepIfFew(t *testing.T) {
	l := newLab(t, 2)
	for i := range 10 {
		l.set(i)
		if got := nodes(l.ackDue()); !slices.Equal(got, []string{"n0", "n1", "self"}) {
			t.Errorf("told %v", got)
		}
	}
}

// Sent again after 250 ms, 1 s and 4 s, then every 5 s.
func TestRetry(t *testing.T) {
	l := newLab(t, 10)
	l.set(1)
	var at []time.Duration
	for range 7 {
		sends := l.due()
		if len(sends) != 3 || len(nodes(sends)) != 3 {
			t.Fatalf("sent %d times to %v", len(sends), nodes(sends))
		}
		at = append(at, l.now.Sub(start))
		l.now = l.Next()
	}
	want := []time.Duration{0, 250, 1000, 4000, 9000, 14000, 19000}
	for i, d := range at {
		if d != want[i]*time.Millisecond {
			t.Errorf("sent after %v, want after %v ms", at, want)
			break
		}
	}
	if n, by := l.Unacked(l.now); n != 1 || len(by) != 3 {
		t.Errorf("%d unacknowledged, by %d keepers", n, len(by))
	}
	// Two acknowledge: the third is told again.
	sends := l.due()
	l.Acked(sends[0].To, 1, l.now)
	l.Acked(sends[1].To, 1, l.now)
	l.Acked(sends[2].To, 7, l.now) // something else
	l.now = l.Next()
	if again := l.due(); len(again) != 1 || again[0].To != sends[2].To {
		t.Errorf("told %v, want %s", nodes(again), sends[2].To.Name)
	}
	l.Acked(sends[2].To, 1, l.now)
	if n, by := l.Unacked(l.now); n != 0 || len(by) != 0 {
		t.Errorf("%d unacknowledged", n)
	}
}

func TestRefresh(t *testing.T) {
	l := newLab(t, 10)
	for i := range 100 {
		l.set(i)
	}
	l.ackDue()
	sends, times := l.until(start.Add(89 * time.Second))
	if len(sends) != 0 {
		t.Fatalf("refreshed after %v", times[0].Sub(start))
	}
	sends, times = l.until(start.Add(151 * time.Second))
	told := make(map[string]int)
	for _, s := range sends {
		told[fmt.Sprint(s.To.Name, s.Lease.Seq)]++
	}
	if len(told) != 300 || len(sends) > 320 {
		t.Errorf("%d refreshments of %d, want 300", len(sends), len(told))
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
	l.set(1)
	if l.Next().Before(start.Add(time.Minute)) {
		t.Error("told again what is the same")
	}
	for i, change := range []func(*cluster.Binding){
		func(c *cluster.Binding) { c.Holder.MAC = detector.MAC{2} },
		func(c *cluster.Binding) { c.Evidence = detector.Data },
		func(c *cluster.Binding) { c.Occurrences = 1 },
		func(c *cluster.Binding) { c.FirstSeen = start },
	} {
		c := l.claim(1)
		change(&c)
		l.Set(key(1), c, l.now)
		old := uint64(i + 1)
		sends := l.due()
		if len(sends) != 3 || sends[0].Lease.Seq != old+1 {
			t.Errorf("change %d: sent %+v", i, sends)
		}
		for _, s := range sends {
			l.Acked(s.To, old, l.now) // of what was before
		}
		l.now = l.Next()
		if len(l.ackDue()) != 3 {
			t.Errorf("change %d: the acknowledgement of another version counted", i)
		}
	}
}

func TestWithdraw(t *testing.T) {
	l := newLab(t, 10)
	l.set(1)
	if !l.Has(key(1)) || l.Has(key(2)) || !l.Live(l.id(1)) || l.Len() != 1 {
		t.Error("the lease is not there")
	}
	l.ackDue()
	if !l.Withdraw(l.id(1), l.now) || l.Withdraw(l.id(1), l.now) || l.Withdraw(l.id(2), l.now) {
		t.Error("withdrew the wrong ones")
	}
	if l.Has(key(1)) || l.Live(l.id(1)) || l.Len() != 0 {
		t.Error("the lease is there")
	}
	sends := l.due()
	if len(sends) != 3 || !sends[0].Lease.Gone || sends[0].Lease.Claim.Evidence != 0 {
		t.Fatalf("sent %+v", sends)
	}
	for _, s := range sends[1:] {
		l.Acked(s.To, s.Lease.Seq, l.now)
	}
	sent := 0
	for !l.Next().IsZero() && sent < 100 {
		l.now = l.Next()
		sent += len(l.due())
	}
	if d := l.now.Sub(start); sent < 4 || sent > 16 || d < goneFor || d > goneFor+20*time.Second {
		t.Errorf("sent %d times in %v to one that does not answer", sent, d)
	}
	if len(l.leases)+len(l.bySeq)+len(l.keys) != 0 {
		t.Error("something is left")
	}
}

// Withdrawn before any keeper was told, it is nobody's business.
func TestWithdrawUntold(t *testing.T) {
	l := newLab(t, 10)
	l.set(1)
	l.Withdraw(l.id(1), l.now)
	if sends := l.due(); len(sends) != 0 || len(l.leases) != 0 {
		t.Errorf("sent %+v", sends)
	}
}

// Changed and withdrawn before the change was told, it is still known to its keepers.
func TestWithdrawUntoldChange(t *testing.T) {
	l := newLab(t, 10)
	l.set(1)
	l.ackDue()
	c := l.claim(1)
	c.Occurrences = 1
	l.Set(key(1), c, l.now)
	l.Withdraw(l.id(1), l.now)
	if sends := l.ackDue(); len(sends) != 3 || !sends[0].Lease.Gone {
		t.Errorf("sent %+v", sends)
	}
}

func TestBackAgain(t *testing.T) {
	l := newLab(t, 10)
	l.set(1)
	first := nodes(l.ackDue())
	l.Withdraw(l.id(1), l.now)
	l.due()
	l.set(1)
	sends := l.ackDue()
	if got := nodes(sends); !slices.Equal(got, first) || sends[0].Lease.Seq != 3 || sends[0].Lease.Gone {
		t.Errorf("told %v %+v, want %v", got, sends[0].Lease, first)
	}
	if l.Len() != 1 || !l.Has(key(1)) {
		t.Error("the lease is not there")
	}
}
