package keeper

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/gossip/roster"
)

// Of very many holders each is notified of its neighbours, and those for which there is no room of one.
func TestChain(t *testing.T) {
	l := newLab(t)
	var nodes []*roster.Node
	for i := range maxHolders + 20 {
		nodes = append(nodes, l.node(fmt.Sprintf("n%d", i), 1))
	}
	partners := make(map[string]bool)
	for i, n := range nodes {
		l.pass(time.Millisecond)
		others, notify, refused := l.accept(n, pod(1, 1))
		if want := map[bool]Refusal{true: Overfull}[i >= maxHolders]; refused != want {
			t.Fatalf("holder %d is refused: %s", i, refused)
		}
		switch {
		case i == 0:
		case i < maxOthers:
			if len(notify) != i || len(others.Others) != i || others.Total != i+1 {
				t.Fatalf("holder %d: %q, %d are notified", i, text(others), len(notify))
			}
		case i < maxHolders:
			if want := fmt.Sprintf("n%d1", i-1); text(others) != want || len(notify) != 1 || notify[0] != nodes[i-1] {
				t.Fatalf("holder %d: %q, want %q", i, text(others), want)
			}
			want := fmt.Sprintf("n%d1 n%d1", i, i-2)
			if got := text(l.Others(nodes[i-1], key(1))); got != want {
				t.Fatalf("holder %d: %q, want %q", i-1, got, want)
			}
		default:
			if len(notify) != 0 || len(others.Others) != 1 || others.Total != maxHolders+1 {
				t.Fatalf("holder %d: %q, %d are notified", i, text(others), len(notify))
			}
			partners[text(others)] = true
		}
	}
	if l.Len() != maxHolders {
		t.Errorf("%d leases", l.Len())
	}
	if len(partners) != 20 {
		t.Errorf("the last 20 are notified of %d others", len(partners))
	}
	// In the middle a holder has two neighbours.
	l.pass(notifyAgain)
	l.take(nodes[20], pod(1, 1), "n211 n191", "n21: n221 n201", "n19: n201 n181")
}

func TestRoom(t *testing.T) {
	l := newLab(t)
	var nodes []*roster.Node
	for i := range maxHolders {
		n := l.node(fmt.Sprintf("n%d", i), 1)
		nodes = append(nodes, n)
		if i == 10 {
			l.accept(n, host(1))
		} else {
			l.accept(n, pod(1, 1))
		}
	}
	kept := func(n *roster.Node) bool {
		return l.entries[key(1)].find(l.sender(n), detector.HolderID{Node: n.ID, Netns: 1}) != nil
	}
	if !kept(nodes[10]) || !kept(nodes[3]) {
		t.Fatal("they are not there")
	}
	if _, _, why := l.accept(l.node("late", 1), pod(1, 1)); why != Accepted || kept(nodes[10]) {
		t.Error("a pod found no room before a host")
	}
	l.gone(nodes[3])
	if _, _, why := l.accept(l.node("later", 1), host(1)); why != Accepted || kept(nodes[3]) {
		t.Error("the living found no room before the dead")
	}
	if _, _, why := l.accept(l.node("latest", 1), host(1)); why != Overfull || l.Len() != maxHolders {
		t.Error("there was room for one too many")
	}
}

func TestManyOfOneNode(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	for i := range maxHolders {
		l.accept(a, pod(uint64(i+1), uint64(i+1)))
	}
	if l.Len() != maxOfNode {
		t.Errorf("%d leases of one node", l.Len())
	}
	if others, notify, _ := l.accept(b, pod(1, 1)); len(others.Others) != maxOthers || !slices.Equal(notify, []*roster.Node{a}) {
		t.Errorf("others are %q", text(others))
	}
	// What a former agent leased makes room.
	a = l.node("a", 2)
	if _, _, refused := l.accept(a, pod(1, 5000)); refused != Accepted || l.Len() != maxOfNode+1 {
		t.Errorf("refused: %q, %d leases", refused, l.Len())
	}
	// Withdrawals take up no room of others, and are bounded.
	for i := range 1000 {
		l.accept(a, withdrawn(uint64(1000+i), uint64(1000+i)))
	}
	if n := len(l.entries[key(1)].records); n != maxHolders+maxOfNode+1 {
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
		_, _, why := l.accept(a, lease)
		refused[why]++
	}
	if n := refused[Accepted]; n < acceptBurst || n > acceptBurst+11*acceptRate {
		t.Errorf("accepted %d in ten seconds: %v", n, refused)
	}
	for i := range maxOfSender {
		l.pass(time.Millisecond)
		lease := pod(uint64(200000+i), 1)
		lease.Key = key(i)
		lease.Key.Network = "other"
		_, _, why := l.accept(a, lease)
		refused[why]++
	}
	if l.senders[a].leases != maxOfSender || refused[RefusedSender] == 0 || l.Len() != maxOfSender {
		t.Errorf("%d leases of one node: %v", l.senders[a].leases, refused)
	}
	l.take(b, pod(1, 1), "a1", "a: b1")
}

// A node with as many leases as it may have can end one and begin another: what has ended takes no room of leases.
func TestWithdrawalsTakeNoRoom(t *testing.T) {
	l := newLab(t)
	a, forgotten := l.node("a", 1), 0
	lease := func(i int) {
		t.Helper()
		p := pod(uint64(2*i+1), 1)
		p.Key = key(i)
		p.Key.Network = fmt.Sprint(i >> 16)
		if _, _, why := l.accept(a, p); why != Accepted {
			t.Fatalf("lease %d is refused: %s", i, why)
		}
	}
	end := func(i int) {
		p := withdrawn(uint64(2*i+2), 1)
		p.Key = key(i)
		p.Key.Network = fmt.Sprint(i >> 16)
		if _, _, why := l.accept(a, p); why == Forgotten {
			forgotten++
		} else if why != Accepted {
			t.Fatalf("the end of %d is refused: %s", i, why)
		}
	}
	for i := range maxOfSender {
		l.now = l.now.Add(time.Millisecond)
		lease(i)
	}
	for i := range 2 * maxGone {
		l.now = l.now.Add(2 * time.Millisecond)
		end(i)
		lease(i + maxOfSender)
	}
	if l.Len() != maxOfSender || l.Table.gone.Len() != maxGone || len(l.entries) != maxOfSender+maxGone || forgotten != maxGone {
		t.Errorf("%d leases, %d withdrawals, %d forgotten, %d keys", l.Len(), l.Table.gone.Len(), forgotten, len(l.entries))
	}
}

// All leases together have a bound.
func TestAllLeases(t *testing.T) {
	l := newLab(t)
	for i := range maxLeases + 1 {
		if i%1000 == 0 {
			l.now = l.now.Add(time.Second)
		}
		p := pod(1, uint64(i+1))
		p.Key = key(i)
		p.Key.Network = fmt.Sprint(i >> 16)
		_, _, why := l.accept(l.node(fmt.Sprint("n", i/maxOfSender), 1), p)
		if want := map[bool]Refusal{true: RefusedAll, false: Accepted}[i == maxLeases]; why != want {
			t.Fatalf("lease %d: %q, want %q", i, why, want)
		}
	}
}
