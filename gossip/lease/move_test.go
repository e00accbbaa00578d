package lease

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

// grid is that of package retry.
const grid = 250 * time.Millisecond

// Only what a newcomer keeps is sent to it, spread over five seconds; and what it took over is sent again to whoever
// takes it over when it goes.
func TestComeAndGo(t *testing.T) {
	l := newLab(t, 20)
	const n = 500
	for i := range n {
		l.set(i)
	}
	l.ackDue()
	newcomer := l.join("newcomer", 1)
	begun := l.now
	sent, times := l.until(begun.Add(6 * time.Second))
	if len(sent) < n*3/22/2 || len(sent) > n*3/22*2 {
		t.Errorf("sent %d leases to the newcomer, about %d expected", len(sent), n*3/22)
	}
	for _, d := range sent {
		if d.To != newcomer {
			t.Fatalf("sent to %s", d.To.Name)
		}
	}
	first, last := times[0].Sub(begun), times[len(times)-1].Sub(begun)
	if first > time.Second || last < 4*time.Second || last > moveSpread+grid {
		t.Errorf("sent between %v and %v", first, last)
	}

	kept := len(sent)
	l.leave(newcomer)
	begun = l.now
	sent, _ = l.until(begun.Add(6 * time.Second))
	if len(sent) != kept {
		t.Errorf("sent %d leases anew, it had kept %d", len(sent), kept)
	}
	for _, d := range sent {
		if d.To == newcomer {
			t.Fatal("sent to the one that went")
		}
	}
	// The keepers are the same as if nobody had come.
	for _, le := range l.leases {
		for i, want := range l.r.Keepers(le.hash, 3) {
			if le.keepers[i].Node != want {
				t.Fatalf("%v is kept by %v, want %v", le.Key.IP, le.keepers, want)
			}
		}
	}
}

// What a keeper is to know no more is not sent to it.
func TestFormerKeeper(t *testing.T) {
	l := newLab(t, 3)
	for i := range 50 {
		l.set(i) // nobody acknowledges it
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		l.join(name, 1)
	}
	l.now = start.Add(time.Minute)
	for _, d := range l.due() {
		if !slices.Contains(l.r.Keepers(lease(d).hash, 3), d.To) {
			t.Fatalf("%v is sent to %s", lease(d).Key.IP, d.To.Name)
		}
	}
}

// What nobody else knows yet is sent at once.
func TestFirstContact(t *testing.T) {
	l := newLab(t, 0)
	for i := range 100 {
		l.set(i)
	}
	l.ackDue()
	l.join("n0", 1)
	if sent, _ := l.until(start.Add(firstSpread + grid)); len(sent) != 100 {
		t.Errorf("sent %d leases to the first in time", len(sent))
	}
	l.join("n1", 1)
	begun := l.now
	if sent, _ := l.until(begun.Add(firstSpread + grid)); len(sent) > 50 {
		t.Errorf("sent %d leases to the second at once", len(sent))
	}
}

// A new incarnation of a keeper has forgotten everything.
func TestKeeperRenewed(t *testing.T) {
	l := newLab(t, 2)
	l.set(1)
	l.ackDue()
	n := l.join("n1", 2)
	sent, _ := l.until(start.Add(6 * time.Second))
	if len(sent) != 1 || sent[0].To != n || lease(sent[0]).Key != key(1) {
		t.Errorf("sent %+v", sent)
	}
	l.join("n1", 3)
	l.Withdraw(l.id(1), nil, l.now)
	if sent := l.ackDue(); slices.Contains(receivers(sent), "n1") {
		t.Error("sent the end of what it never knew")
	}
}

// A member with another role keeps nothing.
func TestOtherRole(t *testing.T) {
	l := newLab(t, 1)
	m := cluster.Member{Name: "r", Boot: "b", Role: cluster.Reporter, Address: "r"}
	changes, err := l.r.Join(wire.MemberIDOf("r", "b", 0), m, l.now)
	if err != nil || changes[0].Kind != roster.Came {
		t.Fatal(changes, err)
	}
	l.set(1)
	if got := receivers(l.ackDue()); !slices.Equal(got, []string{"n0", "self"}) {
		t.Errorf("sent to %v", got)
	}
}

func TestBounds(t *testing.T) {
	l := newLab(t, 0)
	for i := range MaxLeases {
		l.set(i)
	}
	more := detector.Key{Network: "other", IP: key(1).IP}
	if l.Set(more, l.binding(1), l.now) || l.Len() != MaxLeases || l.Has(more) {
		t.Errorf("%d leases", l.Len())
	}
	l.set(1) // what is there can change
	l.Withdraw(l.id(2), nil, l.now)
	if !l.Set(more, l.binding(1), l.now) {
		t.Error("there is no room where one went")
	}
}

// A pod that gets and gives up addresses without end while no keeper answers makes the queue no longer than the bounds.
func TestFlappingIsBounded(t *testing.T) {
	l := newLab(t, 10)
	const n = 30000
	uninformed := 0
	for i := range uint64(n) {
		b := l.binding(i + 1)
		l.Set(key(int(i)), b, l.now)
		l.q.Due(l.now, 100)
		uninformed += l.Withdraw(ID{key(int(i)), b.Holder.ID}, nil, l.now)
	}
	waiting := 0
	for _, m := range l.r.Keepers(0, 100) {
		waiting += len(l.q.RemoveAll(m))
	}
	if waiting != gonePolicy.Max || uninformed != 3*n-gonePolicy.Max || l.Len() != 0 {
		t.Errorf("%d messages wait, %d are counted as lost", waiting, uninformed)
	}
}

// Two agents have one IP. The first by its name keeps what the IP keeps, whichever comes or goes first.
func TestMovedWithinAnIP(t *testing.T) {
	l := newLab(t, 10)
	for i := range 50 {
		l.set(i)
	}
	at := func(name string, port int) *roster.Node {
		m := cluster.Member{Name: name, Boot: "b", Epoch: 1, Address: fmt.Sprintf("10.0.0.1:%d", port)}
		changes, err := l.r.Join(wire.MemberIDOf(name, "b", 1), m, l.now)
		if err != nil || len(changes) != 1 {
			t.Fatal(changes, err)
		}
		l.Moved(changes[0].Node, l.now)
		return changes[0].Node
	}
	keeps := func(n *roster.Node) (count int) {
		for _, l := range l.leases {
			if l.keeper(n) != nil {
				count++
			}
		}
		return count
	}
	second := at("o2", 1)
	all := keeps(second)
	first := at("o1", 2)
	if keeps(first) != all || keeps(second) != 0 || all == 0 {
		t.Errorf("of %d the first keeps %d, the second %d", all, keeps(first), keeps(second))
	}
	third := at("o3", 3)
	if l.leave(first); keeps(second) != all || keeps(third) != 0 {
		t.Errorf("of %d the second keeps %d, the third %d", all, keeps(second), keeps(third))
	}
	for _, lease := range l.leases {
		want := l.r.Keepers(lease.hash, 3)
		if !slices.EqualFunc(lease.keepers, want, func(k keeper, n *roster.Node) bool { return k.Node == n }) {
			t.Errorf("%v has other keepers", lease.Key)
		}
	}
}
