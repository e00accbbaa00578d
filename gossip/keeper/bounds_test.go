package keeper

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

// With many holders newcomers are told of one, and one of them.
func TestChain(t *testing.T) {
	l := newLab(t)
	var nodes []*roster.Node
	for i := range maxHolders + 20 {
		nodes = append(nodes, l.node(fmt.Sprintf("n%d", i), 1))
	}
	partners := make(map[string]bool)
	for i, n := range nodes {
		l.pass(time.Millisecond)
		tells, refused := l.Take(n, pod(1, 1), l.now)
		if refused != Taken {
			t.Fatalf("holder %d refused: %s", i, refused)
		}
		got := l.text(tells)
		switch {
		case i == 0:
		case i < maxClaims:
			if len(tells) != i+1 || len(tells[0].Rival.Claims) != i || tells[0].Rival.Total != i+1 {
				t.Fatalf("holder %d: %q", i, got)
			}
		case i < maxHolders:
			want := []string{fmt.Sprintf("n%d: n%d1", i, i-1), fmt.Sprintf("n%d: n%d1 n%d1", i-1, i, i-2)}
			if !slices.Equal(got, want) {
				t.Fatalf("holder %d: %q, want %q", i, got, want)
			}
		default:
			if len(tells) != 1 || tells[0].To != n || len(tells[0].Rival.Claims) != 1 {
				t.Fatalf("holder %d: %q", i, got)
			}
			partners[got[0][strings.Index(got[0], ":"):]] = true
		}
	}
	if l.Len() != maxHolders || l.Overfull != 20 {
		t.Errorf("%d leases, %d not kept", l.Len(), l.Overfull)
	}
	if len(partners) != 20 {
		t.Errorf("the last 20 are told of %d others", len(partners))
	}
	// In the middle a holder has two neighbours.
	l.pass(31 * time.Second)
	l.take(nodes[20], pod(1, 1), "n20: n191 n211", "n19: n201 n181", "n21: n201 n221")
}

func TestRoom(t *testing.T) {
	l := newLab(t)
	var nodes []*roster.Node
	for i := range maxHolders {
		n := l.node(fmt.Sprintf("n%d", i), 1)
		nodes = append(nodes, n)
		if i == 10 {
			l.Take(n, host(1), l.now)
		} else {
			l.Take(n, pod(1, 1), l.now)
		}
	}
	late := l.node("late", 1)
	l.Take(late, pod(1, 1), l.now)
	if l.Overfull != 0 || l.entries[key(1)].find(l.sender(nodes[10]), wire.Holder{Netns: 1}) != nil {
		t.Error("a pod found no room before a host")
	}
	l.gone(nodes[3])
	l.Take(l.node("later", 1), host(1), l.now)
	if l.Overfull != 0 || l.entries[key(1)].find(l.sender(nodes[3]), wire.Holder{Netns: 1}) != nil {
		t.Error("the living found no room before the dead")
	}
	l.Take(l.node("latest", 1), host(1), l.now)
	if l.Overfull != 1 || l.Len() != maxHolders {
		t.Error("there was room for one too many")
	}
}

func TestManyOfOneNode(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	for i := range maxHolders {
		l.take(a, pod(uint64(i+1), uint64(i+1)))
	}
	if l.Len() != maxOfNode {
		t.Errorf("%d leases of one node", l.Len())
	}
	tells, _ := l.Take(b, pod(1, 1), l.now)
	if len(tells) != 2 || tells[0].To != b || tells[1].To != a {
		t.Errorf("told %q", l.text(tells))
	}
	// Withdrawals take up no room of others, and are bounded.
	for i := range 1000 {
		l.take(a, withdrawn(uint64(1000+i), uint64(1000+i)))
	}
	if n := len(l.entries[key(1)].records); n > 2*maxHolders {
		t.Errorf("%d records of one key", n)
	}
}

// One that floods is refused, and others have their room.
func TestFlood(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	refused := make(map[Refusal]int)
	for i := range 100000 {
		if i%100 == 0 {
			l.pass(10 * time.Millisecond) // 10,000 a second
		}
		lease := pod(uint64(i+1), 1)
		lease.Key = key(i)
		_, why := l.Take(a, lease, l.now)
		refused[why]++
	}
	if n := refused[Taken]; n < takeBurst || n > takeBurst+11*takeRate {
		t.Errorf("took %d in ten seconds: %v", n, refused)
	}
	for i := range 20000 {
		l.pass(time.Millisecond)
		lease := pod(uint64(200000+i), 1)
		lease.Key = key(i + 65536)
		lease.Key.Network = "other"
		l.Take(a, lease, l.now)
	}
	if len(l.senders[a].records) > maxOfSender {
		t.Errorf("%d leases of one node", len(l.senders[a].records))
	}
	l.take(b, pod(1, 1), "b: a1", "a: b1")
}

// Whoever has been told too much is told the rest later: the lease that it was about is
// told again, because it is not acknowledged.
func TestTellingIsBounded(t *testing.T) {
	l := newLab(t)
	a := l.node("a", 1)
	n := tellBurst + 500
	var others []*roster.Node
	for i := range 10 {
		others = append(others, l.node(fmt.Sprintf("n%d", i), 1))
	}
	told, refused := 0, 0
	lease := func(i int) wire.Lease {
		p := pod(uint64(i+1), 1)
		p.Key = key(i)
		return p
	}
	for i := range n {
		l.Take(a, lease(i), l.now)
	}
	var again []int
	take := func(i int) {
		tells, why := l.Take(others[i%10], lease(i), l.now)
		for _, tell := range tells {
			if tell.To == a {
				told++
			}
		}
		if why != Taken {
			again = append(again, i)
			refused++
		}
	}
	for i := range n {
		take(i)
	}
	if told != tellBurst || refused != n-tellBurst {
		t.Errorf("told %d, refused %d of %d", told, refused, n)
	}
	l.pass(2 * time.Second)
	for _, i := range slices.Clone(again) {
		take(i)
	}
	if told != n {
		t.Errorf("told %d of %d", told, n)
	}
}

func TestForget(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	l.take(a, pod(1, 1))
	l.take(a, withdrawn(2, 2))
	l.take(b, pod(1, 1), "b: a1", "a: b1")
	l.Forget(a)
	l.Forget(a)
	if l.Len() != 1 || l.Table.gone.len != 0 || len(l.senders) != 1 {
		t.Errorf("%d leases, %d withdrawals, %d nodes", l.Len(), l.Table.gone.len, len(l.senders))
	}
	l.take(b, pod(1, 1))
}
