package roster

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

var start = time.Unix(1e9, 0)

func member(name, boot string, epoch int64) cluster.Member {
	return cluster.Member{Name: name, Boot: boot, Epoch: epoch, Address: name + ":7951"}
}

// id is any number, but the same for the same incarnation.
func id(m cluster.Member) wire.MemberID { return wire.MemberIDOf(m.Name, m.Boot, m.Epoch) }

func join(t *testing.T, r *Roster, m cluster.Member, want Change) *Node {
	t.Helper()
	n, got, err := r.Join(id(m), m, start)
	if err != nil || got != want {
		t.Fatalf("%v joins: %v, %v; want %v", m, got, err, want)
	}
	return n
}

func TestLife(t *testing.T) {
	self, m1, m2 := member("self", "s", 1), member("n", "b", 1), member("n", "b", 2)
	r := New(id(self), self, start)
	n := join(t, r, m1, Came)
	if join(t, r, m1, Nothing) != n {
		t.Error("the same member is another node")
	}
	if r.Ring.Len() != 2 || r.Sender(id(m1)) != n || r.Node(id(m1)) != n || r.ByID("n/b") != n {
		t.Error("the node is not known")
	}
	if join(t, r, m2, Renewed) != n {
		t.Error("the next epoch is another node")
	}
	join(t, r, m1, Nothing) // an old piece of news
	if r.Sender(id(m1)) != nil || r.Sender(id(m2)) != n || r.Node(id(m1)) != n {
		t.Error("the former incarnation may speak, or is not known any more")
	}
	if _, change := r.Leave(id(m1), start); change != Nothing || !n.Alive {
		t.Error("the former incarnation took the present one away")
	}
	if _, change := r.Leave(id(m2), start); change != Went || n.Alive || r.Ring.Len() != 1 {
		t.Error("it did not go")
	}
	if _, change := r.Leave(id(m2), start); change != Nothing {
		t.Error("it went twice")
	}
	join(t, r, m1, Came) // whoever took its place may not have been an agent at all
	if r.Sender(id(m1)) != n || r.Sender(id(m2)) != nil {
		t.Error("the one that is there may not speak")
	}
	join(t, r, m2, Renewed)
	if _, change := r.Leave(id(self), start); change != Nothing || !r.Self().Alive {
		t.Error("this node left")
	}
}

// What others say of former or later incarnations of this node changes nothing.
func TestSelf(t *testing.T) {
	self := member("self", "s", 5)
	r := New(id(self), self, start)
	for _, epoch := range []int64{1, 9} {
		m := member("self", "s", epoch)
		if n := join(t, r, m, Nothing); n != r.Self() || n.Member != id(self) {
			t.Errorf("epoch %d took this agent's place", epoch)
		}
		if r.Node(id(m)) != r.Self() || r.Sender(id(m)) != nil {
			t.Errorf("epoch %d is not known as this node, or may speak for it", epoch)
		}
	}
}

func TestNamesakes(t *testing.T) {
	self := member("self", "s", 1)
	r := New(id(self), self, start)
	var nodes []*Node
	for i := range 4 {
		nodes = append(nodes, join(t, r, member("n", fmt.Sprint(i), 1), Came))
	}
	for _, n := range nodes {
		if s := r.Namesake(n); s == nil || s == n || s.Name != "n" {
			t.Errorf("%s has namesake %v", n.ID, s)
		}
	}
	if r.Namesake(r.Self()) != nil {
		t.Error("this node has a namesake")
	}
	// They go one after the other, the middle one first.
	for i, gone := range []int{2, 0, 3} {
		r.Leave(nodes[gone].Member, start)
		r.Tidy(start.Add(time.Duration(i+1) * time.Hour))
		if r.ByID(nodes[gone].ID) != nil || r.Node(nodes[gone].Member) != nil {
			t.Errorf("%s is not forgotten", nodes[gone].ID)
		}
	}
	if r.ByID("n/1") != nodes[1] || r.Namesake(nodes[1]) != nil || r.Len() != 2 {
		t.Error("the last of a name is not alone")
	}
}

func TestNames(t *testing.T) {
	self := member("self", "s", 1)
	r := New(id(self), self, start)
	odd := member("a/b", "c", 1)
	if _, _, err := r.Join(id(odd), odd, start); !errors.Is(err, ErrName) || r.Len() != 1 {
		t.Errorf("joined with %d nodes: %v", r.Len(), err)
	}
}

func TestTidy(t *testing.T) {
	self, m1, m2 := member("self", "s", 1), member("n", "b", 1), member("n", "b", 2)
	r := New(id(self), self, start)
	join(t, r, m1, Came)
	join(t, r, m2, Renewed)
	dead := join(t, r, member("dead", "b", 1), Came)
	r.Leave(dead.Member, start)
	if gone := r.Tidy(start.Add(9 * time.Minute)); len(gone) != 0 || r.Node(id(m1)) == nil || r.Node(dead.Member) != dead {
		t.Errorf("forgot %v too early", gone)
	}
	if gone := r.Tidy(start.Add(11 * time.Minute)); len(gone) != 1 || gone[0] != dead {
		t.Errorf("forgot %v", gone)
	}
	if r.Node(id(m1)) != nil || r.Node(dead.Member) != nil || r.Node(id(m2)) == nil || r.Len() != 2 {
		t.Error("the wrong ones are remembered")
	}
}

// As many nodes as can be known, all there, leave no room for another. Incarnations of one
// node never do: whoever comes last is known.
func TestBounds(t *testing.T) {
	self := member("self", "s", 1)
	r := New(id(self), self, start)
	var err error
	for i := range maxNodes + 10 {
		m := member(fmt.Sprint(i), "b", 1)
		_, _, err = r.Join(id(m), m, start)
	}
	if !errors.Is(err, ErrFull) || r.Len() != maxNodes {
		t.Errorf("%d nodes, %v", r.Len(), err)
	}
	for epoch := range int64(maxNodes + 10) {
		m := member("0", "b", 2+epoch)
		if n := join(t, r, m, Renewed); r.Sender(id(m)) != n {
			t.Fatalf("epoch %d is not known", m.Epoch)
		}
	}
	if len(r.byMember) > 2*maxNodes {
		t.Errorf("%d members are known", len(r.byMember))
	}
	if r.Node(id(member("0", "b", 1))) != nil || r.Node(id(member("0", "b", maxNodes+10))) == nil {
		t.Error("not the oldest incarnation was forgotten")
	}
}

// Nodes that came and went, however many, keep no newcomer out.
func TestGoneMakeRoom(t *testing.T) {
	self := member("self", "s", 1)
	r := New(id(self), self, start)
	r.Tidy(start)
	stays := join(t, r, member("stays", "b", 1), Came)
	var first, last *Node
	for i := range maxNodes - 2 {
		last = join(t, r, member(fmt.Sprint(i), "b", 1), Came)
		r.Leave(last.Member, start.Add(time.Duration(i)*time.Millisecond))
		if first == nil {
			first = last
		}
	}
	newcomer := join(t, r, member("newcomer", "b", 1), Came)
	if r.Sender(newcomer.Member) != newcomer || r.Sender(stays.Member) != stays || r.ByID(last.ID) != last {
		t.Error("the newcomer, one that is there or the last that went is not known")
	}
	if r.ByID(first.ID) != nil || r.Node(first.Member) != nil {
		t.Error("the first that went is still known")
	}
	forgotten := r.Tidy(start.Add(time.Second)) // others have to forget them, too
	if len(forgotten) == 0 || forgotten[0] != first || slices.Contains(forgotten, last) {
		t.Errorf("%d are forgotten", len(forgotten))
	}
	if r.Len() != maxNodes+1-len(forgotten) {
		t.Errorf("%d nodes after %d were forgotten", r.Len(), len(forgotten))
	}
	if more := r.Tidy(start.Add(2 * time.Second)); len(more) != 0 {
		t.Errorf("%d are forgotten twice", len(more))
	}
}
