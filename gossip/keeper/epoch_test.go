package keeper

import (
	"testing"
	"time"

	"github.com/dupip/dupip/detector/cluster"
)

// An agent whose place another took is there again: what was leased in its name meanwhile is not in its way. What is not leased again expires.
func TestFormerEpochReturns(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	l.take(b, pod(1, 7))
	l.take(a, pod(1, 5), "b7", "b: a5")
	l.gone(a)
	other := l.node("a", 1<<60)
	l.take(other, pod(1<<60, 6), "b7", "b: a6 a5")
	l.take(other, withdrawn(1<<61, 5))
	l.gone(other)
	l.pass(time.Minute)
	back := l.node("a", 1)
	l.take(back, pod(2, 5), "b7", "b: a5 a6")
	l.pass(leaseTTL - time.Minute)
	l.take(b, pod(2, 7), "a5", "a: b7")
	l.take(back, withdrawn(3, 5))
	l.take(b, pod(3, 7))
}

func TestNewEpoch(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	l.take(a, pod(100, 1))
	again := pod(101, 2)
	again.Key = key(2)
	l.take(a, again)
	l.gone(a)
	l.take(b, pod(1, 1), "a1") // it may well be there while its agent is upgraded
	a2 := l.node("a", 2)
	if a2 != a {
		t.Fatal("the next epoch is another node")
	}
	again.Seq = 1
	l.take(a, again)
	l.pass(leaseTTL - time.Second)
	l.take(a, again)
	l.pass(time.Second)
	l.take(b, pod(2, 1))
	if l.Len() != 2 {
		t.Errorf("%d leases, want b's and the one that was leased again", l.Len())
	}
}

// Leased again by a new agent a conflict is nothing new to the others.
func TestUpgradeIsQuiet(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	l.take(a, pod(100, 1))
	l.take(b, pod(1, 1), "a1", "a: b1")
	l.node("a", 2)
	l.take(a, pod(1, 1), "b1")
	l.pass(11 * time.Second)
	if l.Len() != 2 {
		t.Errorf("%d leases", l.Len())
	}
}

func TestReboot(t *testing.T) {
	l := newLab(t)
	old, b := l.node("a/old", 1), l.node("b", 1)
	l.take(old, pod(1, 1))
	l.gone(old)
	l.take(b, pod(1, 5), "a1") // its node may come back
	l.take(b, withdrawn(2, 5))
	young := l.node("a/new", 1)
	l.take(young, pod(1, 2)) // the same pod as before
	l.take(b, pod(3, 5), "a2", "a: b5")
}

// Two live nodes of one name, and a machine that came back before it was missed.
func TestNamesakes(t *testing.T) {
	l := newLab(t)
	one, two := l.node("a/one", 1), l.node("a/two", 1)
	l.take(one, pod(1, 1))
	l.take(two, pod(1, 2), "a1", "a: a2")

	l = newLab(t)
	one = l.nodeAt(cluster.Member{Name: "a", Boot: "one", Address: "10.0.0.1:7951"})
	two = l.nodeAt(cluster.Member{Name: "a", Boot: "two", Address: "10.0.0.1:7951"})
	l.take(one, pod(1, 1))
	l.take(two, pod(1, 2))
}
